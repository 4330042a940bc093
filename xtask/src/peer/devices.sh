#!/bin/sh
# Runs programs over two devices of one network namespace, each with a network interface of its own.
# `cargo xtask peer` starts the script as root of a user namespace, with the variables LIBRARY (the stand-in)
# and FOLDER.
set -u
. "$(dirname "$0")/pair.sh"

mkdir -p "$FOLDER" && cd "$FOLDER" || exit 1
ip link set lo up || fail 'no loopback interface'
for number in 0 1; do
    ip link add "port$number" type veth peer name "wire$number" || fail 'no veth'
    ip address add "198.51.10$number.1/24" dev "port$number" || fail 'no address'
    ip link set "port$number" up && ip link set "wire$number" up || fail 'no link'
done
first=198.51.100.1 second=198.51.101.1
export LD_PRELOAD="$LIBRARY" MLX5_UVERBS_DIR="$FOLDER/d" MLX5_UVERBS_DEVICES=2
export MLX5_UVERBS_NETDEV=port0,port1

shown=$(ibv_devices) || fail "$shown"
[ "$(echo "$shown" | awk '$1 ~ /^mlx5_/ { print $2 }' | sort -u | wc -l)" = 2 ] || fail "$shown"
shown=$(rdma link) || fail "$shown"
echo "$shown" | grep -q 'mlx5_0/1 state ACTIVE .* netdev port0' || fail "$shown"
echo "$shown" | grep -q 'mlx5_1/1 state ACTIVE .* netdev port1' || fail "$shown"
echo 'passed ibv_devices and rdma link'

pair 18701 ibv_rc_pingpong -g 0 -c
pair 18702 ibv_rc_pingpong -g 2 -c
pair 18703 ibv_ud_pingpong -g 2 -s 1024
pair 18704 ib_write_bw -x 3 -F -n 100
pair 18705 ib_send_bw -x 3 -F -n 100 -c UD
pair 18706 ib_atomic_lat -x 3 -F -n 100

packets() { cat "/sys/class/infiniband/mlx5_$1/ports/1/counters/port_xmit_packets"; }
offers() { i=0; until grep -qs ":$1 " "$FOLDER"/d/*.services; do
    sleep 0.05; i=$((i + 1)); [ $i -lt 600 ] || fail "no service at $1"; done; }
# Connects by rdma_cm to an address: the device with this address sends packets, and the other sends none.
by_address() {
    address=$1 one=$2 other=$3 port=$4; shift 4
    before=$(packets "$one") still=$(packets "$other")
    timeout 60 rping -s -C 5 -a "$address" -p "$port" > server.log 2>&1 & server=$!
    started="$started $server"
    offers "$port"
    timeout 60 rping -c -C 5 -Vv -a "$address" -p "$port" > client.log 2>&1
    # The last ping judges `rping`, and not its status: Debian's ends with an error when its thread asks for
    # an event after the main thread has closed the channel.
    grep -q 'rdma-ping-4: ' client.log || { cat client.log server.log; fail "rping $address"; }
    wait "$server"
    [ "$(packets "$one")" -gt "$before" ] || fail "mlx5_$one has sent nothing to $address"
    [ "$(packets "$other")" = "$still" ] || fail "mlx5_$other has sent to $address"
    echo "passed rping $address"
}
by_address "$first" 0 1 18711
by_address "$second" 1 0 18712
shown=$(timeout 60 /usr/bin/python3 "$(dirname "$0")/python/ids.py" 2 "$second" 2>&1) || fail "$shown"
echo 'passed rdma_get_devices and rdma_migrate_id'
echo 'two devices reach each other, and rdma_cm finds each by its address'
