# Functions for scripts that run servers and clients. The processes in $started end with the script.
fail() { echo "$1"; exit 1; }

started=
trap 'kill $started 2>/dev/null' EXIT

listens() { i=0; until grep -qi ":$(printf %04X "$1") 0*:0000 0A" /proc/net/tcp /proc/net/tcp6; do
    sleep 0.05; i=$((i + 1)); [ $i -lt 600 ] || fail "nothing listens at $1"; done; }
# Runs a server on mlx5_0 and a client on $other, at a TCP port.
other=mlx5_1
pair() {
    port=$1; shift
    timeout 60 "$@" -d mlx5_0 -p "$port" > server.log 2>&1 & server=$!
    started="$started $server"
    listens "$port"
    timeout 60 "$@" -d "$other" -p "$port" localhost > client.log 2>&1 ||
        { cat client.log server.log; fail "$*"; }
    wait "$server" || { cat server.log; fail "$*: the server"; }
    echo "passed $*"
}
