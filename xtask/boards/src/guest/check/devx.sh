# Registration by UMRs, and commands of a program (DEVX).
# mlx5_ib registers memory by UMRs: it keeps free regions, which UMRs fill. Later kernels than 6 show these
# regions in no file.
mount -t debugfs none /sys/kernel/debug
case $(uname -r) in
6.*)
    grep -q '[1-9]' /sys/kernel/debug/mlx5/*/mr_cache/*/cur || failed "mlx5_ib has no regions for UMRs"
    echo "passed: regions by UMRs"
    ;;
esac
for case in r028 r031 r002; do
    hil --device mlx5_0 --filter "$case" > /tmp/hil 2>&1 && grep "^hil: passed" /tmp/hil || {
        cat /tmp/hil
        failed "hil failed"
    }
done
