# Prepares a check. The first program that fails ends the script.
port=/sys/class/infiniband/mlx5_0/ports/1
function=$(basename "$(readlink -f /sys/class/infiniband/mlx5_0/device)")
driver=/sys/bus/pci/drivers/mlx5_core
failed() {
    echo "$*"
    dmesg | tail -n 20
    exit 1
}
# Prints the warnings of the drivers. The two lines that are left out name properties that the device lacks
# on purpose.
warnings() {
    dmesg -r | sed -n 's/^<[0-4]>//p' | grep -E 'mlx5|infiniband|RDMA|ib_|nvme|iser' | grep -v \
        -e 'Failed to get valid vendor specific ID' \
        -e 'firmware level support is missing'
}
no_warning() {
    warned=$(warnings)
    [ -z "$warned" ] || failed "the drivers have warned: $warned"
}
# Waits for one connection, and prints the bytes that arrive. The input of `nc` stays open: at the end of its
# input, `nc` would tell the peer that no bytes follow, and the peer would end.
listen() {
    [ -p /tmp/open ] || mkfifo /tmp/open
    nc -l -p $1 0<> /tmp/open
}
# Waits until a program listens at a TCP port, at most 30 s.
listens() {
    for try in $(seq 300); do
        grep -qi ":$(printf %04X $1) 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 && return
        sleep 0.1
    done
}
# Loads the modules of a list that are not loaded yet.
load() {
    while read -r module; do
        [ -d "/sys/module/$module" ] || insmod "/lib/modules/$module.ko" || failed "insmod $module"
    done < "$1"
}
# The TCP port at which the servers of rdma-core's and perftest's programs listen.
programs=18515
# Runs server and client of a program in this guest. Only the client gets the words after `--`.
pair() {
    server=
    while [ $# != 0 ] && [ "$1" != -- ]; do server="$server $1"; shift; done
    [ $# = 0 ] || shift
    $server > /tmp/server 2>&1 &
    listens $programs
    $server "$@" > /tmp/client 2>&1 && wait $! || {
        cat /tmp/server /tmp/client
        failed "$server failed"
    }
    echo "passed:$server"
}
if grep -q Ethernet $port/link_layer; then
    # Addresses for programs, on the network interface of the port. A second guest has number 2.
    interface=$(ls /sys/class/infiniband/mlx5_0/device/net)
    ip link set "$interface" up
    number=${number:-1}
    ip address add 192.0.2.$number/24 dev "$interface"
    ip -6 address add 2001:db8::$number/64 dev "$interface" nodad 2> /dev/null ||
        ip -6 address add 2001:db8::$number/64 dev "$interface"
    # The table of GIDs follows the addresses after a while. Programs name the entry of the IPv4 address.
    for second in 1 2 3 4 5 6 7 8 9 10; do
        gid=$(grep -l ffff:c000:020$number $port/gids/* 2> /dev/null | head -n 1)
        [ -z "$gid" ] || break
        sleep 1
    done
    [ -n "$gid" ] || failed "no GID of the address"
    gid=$(basename "$gid")
fi
