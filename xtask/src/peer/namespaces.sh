#!/bin/sh
# Runs programs in two network namespaces, which share no directory, over two gateways. A third gateway does
# not know the secret. `cargo xtask peer` starts the script as root of a user namespace, with the variables
# FABRIC (the gateway), LIBRARY (the stand-in) and FOLDER.
set -u
. "$(dirname "$0")/pair.sh"

mkdir -p "$FOLDER/first" "$FOLDER/second" && cd "$FOLDER" || exit 1
echo 'a secret of 24 letters..' > secret; echo 'another secret of 24 letters' > other
chmod 600 secret other

# The second namespace lasts as long as its first process. The namespace and the gateways end with the script.
unshare --net sleep 600 & second=$!
started="$second"
until [ "$(readlink /proc/$second/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
inside() { nsenter --net="/proc/$second/ns/net" "$@"; }
ip link add one type veth peer name two && ip link set two netns "$second" || fail 'no veth'
ip address add 192.0.2.1/24 dev one && ip link set one up && ip link set lo up || fail 'no address'
inside ip address add 192.0.2.2/24 dev two && inside ip link set two up && inside ip link set lo up ||
    fail 'no second address'

ready() { i=0; until grep -qs "$1" "$2"; do sleep 0.1; i=$((i + 1)); [ $i -lt 300 ] || fail "$2"; done; }
"$FABRIC" --listen 192.0.2.1:4792 --secret secret --dir "$FOLDER/first/d" > first/log 2>&1 &
started="$started $!"
ready ready first/log
inside "$FABRIC" --connect 192.0.2.1:4792 --secret secret --dir "$FOLDER/second/d" > second/log 2>&1 &
started="$started $!"
ready ready second/log
"$FABRIC" --connect 192.0.2.1:4792 --secret other --dir "$FOLDER/third" > third.log 2>&1 &&
    fail 'the third has joined'
[ ! -e third ] || fail 'the third has a directory'
grep -q 'it does not know the secret' first/log || fail 'the hub does not say why it refuses the third'

# Runs a server in the first namespace and a client in the second, at a TCP port.
pair() {
    port=$1; shift
    env LD_PRELOAD="$LIBRARY" MLX5_UVERBS_DIR="$FOLDER/first/d" MLX5_UVERBS_NETDEV=one \
        timeout 60 "$@" -p "$port" > server.log 2>&1 & server=$!
    started="$started $server"
    listens "$port"
    inside env LD_PRELOAD="$LIBRARY" MLX5_UVERBS_DIR="$FOLDER/second/d" MLX5_UVERBS_NETDEV=two \
        timeout 60 "$@" -p "$port" 192.0.2.1 > client.log 2>&1 || { cat client.log server.log; fail "$*"; }
    wait "$server" || { cat server.log; fail "$*: the server"; }
    echo "passed $*"
}
pair 18601 ibv_rc_pingpong -g 2 -c
pair 18602 ib_write_bw -x 2 -n 100
pair 18603 ib_read_bw -x 2 -n 100
pair 18604 ib_send_bw -x 2 -n 100 -c UD
pair 18605 ib_atomic_lat -x 2 -n 100
export UCX_NET_DEVICES=mlx5_0:1
for transport in rc_v rc_x ud_x; do
    export UCX_TLS=$transport
    pair 18606 ucx_perftest -t tag_lat -n 50 -w 5
done
echo 'two namespaces reach each other, a third is refused'
