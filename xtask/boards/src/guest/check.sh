# Programs of rdma-core, server and client in one guest. The first that fails ends the script.
ibv_devinfo || exit 1
pair() {
    "$@" > /tmp/server 2>&1 &
    sleep 1
    "$@" 127.0.0.1 > /tmp/client 2>&1 && wait $! || {
        cat /tmp/server /tmp/client
        echo "$* failed"
        exit 1
    }
    echo "$* passed"
}
pair ibv_rc_pingpong -n 200
pair ibv_rc_pingpong -e -n 50
pair ibv_uc_pingpong -n 200
pair ibv_ud_pingpong -n 200
pair ibv_srq_pingpong -n 200 -q 4
# mlx5_ib registers memory by UMRs: it has made free regions, which UMRs fill.
mount -t debugfs none /sys/kernel/debug
grep -q '[1-9]' /sys/kernel/debug/mlx5/*/mr_cache/*/cur || {
    echo "mlx5_ib has no regions for UMRs"
    exit 1
}
echo "regions by UMRs"
# Commands of a program (DEVX), and queues in its memory.
for case in r028 r031 r002; do
    hil --device mlx5_0 --filter "$case" > /tmp/hil 2>&1 && grep "^hil: passed" /tmp/hil || {
        cat /tmp/hil
        exit 1
    }
done
# The drivers let go of the device, and take it again.
rmmod rdma_ucm rdma_cm ib_cm iw_cm mlx5_ib mlx5_core || exit 1
insmod /lib/modules/mlx5_core.ko && insmod /lib/modules/mlx5_ib.ko && ibv_devinfo | grep PORT_ACTIVE
