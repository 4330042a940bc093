# The device fails while programs use it. Linux's health poll notices, resets the device, and recovers.
for try in $(seq 20); do
    dmesg | grep -q 'Fatal error' && break
    timeout 20 ibv_rc_pingpong -n 200 ${gid:+-g $gid} > /dev/null 2>&1 &
    sleep 1
    timeout 20 ibv_rc_pingpong -n 200 ${gid:+-g $gid} 127.0.0.1 > /dev/null 2>&1
done
dmesg | grep -q 'Fatal error' || failed "the device has not failed"
for second in $(seq 120); do
    dmesg | grep -q 'health recovery succeeded' && break
    sleep 1
done
dmesg | grep -q 'health recovery succeeded' || failed "no recovery"
[ -z "$gid" ] || {
    interface=$(ls "/sys/bus/pci/devices/$function/net")
    ip link set "$interface" up
}
for second in $(seq 20); do
    grep -q ACTIVE $port/state 2> /dev/null && break
    sleep 1
done
devlink health show "pci/$function" reporter fw_fatal > /tmp/health || failed "devlink"
cat /tmp/health
grep -q 'state healthy error 1 recover 1' /tmp/health || failed "devlink: $(cat /tmp/health)"
pair ibv_rc_pingpong -n 200 ${gid:+-g 0} -- 127.0.0.1
echo "passed: recovery of a device that has failed"
