# A guest and programs of the host on the stand-in, on one network. The TCP connections between them go over a
# network interface of QEMU, behind which the host has the address 10.0.2.2.
load /etc/user
for outside in $(ls /sys/class/net); do
    case $outside in lo | "$interface") ;; *) break ;; esac
done
ip link set "$outside" up
ip address add 10.0.2.15/24 dev "$outside"
# Has a shell of the host carry out a line, and prints the output.
ask() { echo "$*" | timeout 150 nc 10.0.2.2 "$orders"; }
ask ibv_devinfo -v > /tmp/programs
address=$(sed -n 's/^.*GID\[ *1\]:[[:space:]]*\(fe80:[0-9a-f:]*\).*/\1/p' /tmp/programs | head -n 1)
[ -n "$address" ] || failed "no address of the programs: $(cat /tmp/programs)"
# Linux asks for the hardware address before it connects a queue pair, and no interface of the host answers.
# Any hardware address will do, since the device sends by the number of the queue pair.
/bin/ip -6 neighbour replace "$address" lladdr 02:00:00:00:00:02 dev "$interface" || failed "the neighbour"
# The address of the host's programs is link-local, hence this guest also uses its link-local address.
for local in $(ls $port/gids | sort -n); do
    grep -q '^fe80:' "$port/gids/$local" && grep -q 'RoCE v2' "$port/gid_attrs/types/$local" && break
done
# A line for the host: waits until a program listens at the port for data, at most 30 s.
heard="for try in \$(seq 300); do grep -qi ':$(printf %04X $data) 0*:0000 0A' /proc/net/tcp \
/proc/net/tcp6 && break; sleep 0.1; done"
# Runs a server on the host, and the client in this guest. Each side has its own table of GIDs. The first word
# is the program's option that selects an entry of this table.
beside() {
    option=$1
    shift
    ask "timeout 120 $* $option 1 -p $data > log 2>&1 & $heard"
    timeout 60 "$@" "$option" "$local" -p "$data" 10.0.2.2 > /tmp/client 2>&1 ||
        failed "$*: $(cat /tmp/client) $(ask cat log)"
    echo "passed: guest and program: $*"
}
beside -g ibv_rc_pingpong -n 200
beside -g ibv_rc_pingpong -e -n 50
beside -g ibv_uc_pingpong -n 100
beside -g ibv_ud_pingpong -n 100
beside -g ibv_srq_pingpong -n 100 -q 4
beside -x ib_write_bw -n 200
beside -x ib_read_lat -n 200
# The library on both sides: the initiator of the storage example behind Linux's own driver, the target on the
# stand-in. Both devices have to report the blocks that the target corrupts, and no others.
ask "timeout 300 storage_target --address 127.0.0.1:$data --gid-index 1 --blocks 4096 --corrupt 5 \
> log 2>&1 & $heard"
storage_initiator --address "10.0.2.2:$data" --gid-index "$local" --ios 1000 > /tmp/client 2>&1 ||
    failed "storage: $(cat /tmp/client) $(ask cat log)"
cat /tmp/client
echo "passed: guest and program: the storage example"
