#!/bin/sh
# Follows the emulator's README as an ordinary user: as root of a user namespace, who has no rights outside.
# The working directory is an empty Debian system, which becomes the root directory of all programs of the
# emulator. Its folder /home/user has the archive. The arguments are the commands of the sections "First
# steps" and "Several machines" of the README. `cargo xtask dist --check-chroot` starts the script in new
# user, mount and network namespaces.
set -eu
steps=$1 machines=$2

# The processes in $started end with the script.
started=
trap 'kill $started 2> /dev/null || true' EXIT

for place in proc dev; do mount --rbind "/$place" "$place"; done
ip link set lo up
chrooted='chroot . /usr/bin/env -i PATH=/usr/bin:/bin sh -euc'
# Each of these functions replaces the process that calls it, so that `$!` is the number of the program.
on_first() { exec $chrooted "cd /home/user; $1"; }
in_second() { exec nsenter --target "$second" --net --mount sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"; }
on_second() { in_second $chrooted "cd /home/user; $1"; }

(on_first "$steps wait \$!")
echo 'the first steps work'

# The second machine has its own network, and each machine its own /tmp. The second one lasts as long as its
# first process.
unshare --net --mount sh -c 'mount -t tmpfs none tmp && : > tmp/is_made && exec sleep 600' & second=$!
started=$second
until (in_second test -e tmp/is_made); do sleep 0.05; done
mount -t tmpfs none tmp
ip link add one type veth peer name two
ip link set two netns "$second"
ip address add 10.0.0.1/24 dev one
ip link set one up
(in_second ip address add 10.0.0.2/24 dev two)
(in_second ip link set two up)
(in_second ip link set lo up)

# Prints a command of the section "Several machines", without its comment and its `&`.
command() { printf '%s\n' "$machines" | sed -n "$1{s/#.*//; s/& *\$//; p}"; }
folder='cd mlx5-emulate-*/; '
(on_first "$folder$(command 1)")
until_is_there() { i=0; until grep -qs "$@"; do sleep 0.1; i=$((i + 1)); [ $i -lt 600 ]; done; }
on_first "${folder}exec $(command 2)" > tmp/first.log & started="$started $!"
until_is_there ready tmp/first.log
on_second "${folder}exec $(command 3)" > tmp/second.log & started="$started $!"
until_is_there ready tmp/second.log
on_first "${folder}exec $(command 4)" & server=$!
started="$started $server"
# The port of ibv_rc_pingpong, 18515, in the kernel's table of sockets that listen.
until_is_there ':4853 0*:0000 0A' /proc/net/tcp /proc/net/tcp6
(on_second "${folder}exec $(command 5)")
wait "$server"
echo 'two machines reach each other'
