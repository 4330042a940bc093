# The drivers let go of the device and take it again, also while a program uses it.
is_active() {
    [ -z "$gid" ] || ip link set "$(ls "/sys/bus/pci/devices/$function/net")" up
    for second in 1 2 3 4 5 6 7 8 9 10; do
        grep -q ACTIVE $port/state 2> /dev/null && return
        sleep 1
    done
    failed "the port is not active: $1"
}
ib_write_bw -D 60 ${gid:+-x $gid} > /tmp/server 2>&1 &
server=$!
sleep 1
ib_write_bw -D 60 ${gid:+-x $gid} 127.0.0.1 > /tmp/client 2>&1 &
client=$!
sleep 3
kill -0 $server $client || failed "no load: $(cat /tmp/client)"
echo "$function" > $driver/unbind || failed "unbind"
kill -9 $server $client 2> /dev/null
wait
echo "$function" > $driver/bind || failed "bind"
is_active bind
echo "passed: unbind and bind under load"
echo "$function" > $driver/unbind
grep -q flr "/sys/bus/pci/devices/$function/reset_method" || failed "the function has no FLR"
echo flr > "/sys/bus/pci/devices/$function/reset_method"
echo 1 > "/sys/bus/pci/devices/$function/reset" || failed "FLR"
echo "$function" > $driver/bind || failed "bind after FLR"
is_active FLR
echo "passed: FLR"
rmmod rdma_ucm rdma_cm ib_cm iw_cm mlx5_ib mlx5_core || failed "rmmod"
insmod /lib/modules/mlx5_core.ko && insmod /lib/modules/mlx5_ib.ko || failed "insmod"
is_active insmod
echo "passed: rmmod and insmod"
