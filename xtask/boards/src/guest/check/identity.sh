# The model of the device, as Linux's drivers and a program find it.
case $device in
bluefield2) id=0xa2d6 has='signature xts xts-single memcpy' lacks='xts-many' ;;
connectx6dx) id=0x101d has='signature xts xts-single' lacks='xts-many memcpy' ;;
connectx7) id=0x1021 has='signature xts xts-many' lacks='xts-single memcpy' ;;
*) failed "no model $device" ;;
esac
grep -q "^$id\$" "/sys/bus/pci/devices/$function/device" || failed "not a $device"
ibv_devinfo -v > /tmp/info || failed "ibv_devinfo: $(cat /tmp/info)"
grep -q "vendor_part_id:[[:space:]]*$((id))\$" /tmp/info || failed "part: $(cat /tmp/info)"
grep -q PORT_ACTIVE /tmp/info || failed "the port: $(cat /tmp/info)"
pair ibv_rc_pingpong -n 100 ${gid:+-g $gid} -- 127.0.0.1
hil --device mlx5_0 --filter r028_ > /tmp/hil 2>&1 || failed "hil: $(cat /tmp/hil)"
for name in $has; do
    grep -q "^hil: capability $name\$" /tmp/hil || failed "no $name: $(cat /tmp/hil)"
done
for name in $lacks; do
    grep -q "^hil: capability $name\$" /tmp/hil && failed "$name: $(cat /tmp/hil)"
done
echo "passed: $device"
