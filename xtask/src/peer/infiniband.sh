#!/bin/sh
# Runs programs over InfiniBand ports of two devices and of one. `cargo xtask peer` starts the script as root
# of a user namespace, with the variables LIBRARY (the stand-in) and FOLDER.
set -u
. "$(dirname "$0")/pair.sh"

mkdir -p "$FOLDER" && cd "$FOLDER" || exit 1
ip link set lo up || fail 'no loopback interface'
export LD_PRELOAD="$LIBRARY" MLX5_UVERBS_DIR="$FOLDER/d" MLX5_UVERBS_DEVICES=2 MLX5_UVERBS_PORT=infiniband

# Fails unless the output of a program has each of the words.
shows() {
    program=$1; shift
    shown=$($program) || fail "$program: $shown"
    for word; do echo "$shown" | grep -q -- "$word" || fail "$program shows no '$word': $shown"; done
    echo "passed $program"
}
shows 'ibv_devinfo -d mlx5_1' 'port_lid:.*2' 'sm_lid:.*1' 'link_layer:.*InfiniBand'
shows 'ibstat mlx5_1' 'Base lid: 2' 'SM lid: 1' 'State: Active' 'Link layer: InfiniBand'
shows ibstatus 'base lid:.*0x2' 'default gid:.*fe80:0000:0000:0000:026d:6cff:fe78:3502' 'InfiniBand'
shows 'rdma link' 'link mlx5_1/1 subnet_prefix fe80:0000:0000:0000 lid 2 sm_lid 1 lmc 0 state ACTIVE'
[ ! -e /sys/class/infiniband/mlx5_0/device/net ] || fail 'an InfiniBand port has a network interface'

# By LID, and by GID.
pair 18801 ibv_rc_pingpong -c
pair 18802 ibv_uc_pingpong
pair 18803 ibv_ud_pingpong -s 1024
pair 18804 ibv_srq_pingpong
pair 18805 ibv_rc_pingpong -g 0 -c
pair 18806 ibv_ud_pingpong -g 0
pair 18807 ib_write_bw -F -n 100
pair 18808 ib_read_bw -F -n 100
pair 18809 ib_send_bw -F -n 100 -c UD
pair 18810 ib_atomic_lat -F -n 100
pair 18811 ib_send_lat -F -n 100 -x 0
# Both programs on one device.
other=mlx5_0
pair 18812 ibv_rc_pingpong -c
pair 18813 ibv_ud_pingpong
pair 18814 ib_write_lat -F -n 100
echo 'InfiniBand ports reach each other by LID and by GID'
