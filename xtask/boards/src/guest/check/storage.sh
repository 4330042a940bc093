# NVMe over fabrics: target and initiator of the kernel in this guest. The bytes are compared three ways: the
# ones that were written, the ones that come back over the wire, and the ones in the target's file.
load /etc/storage
mount -t configfs none /sys/kernel/config
target=/sys/kernel/config/nvmet
name=nqn.2026-11.test:volume
dd if=/dev/zero of=/tmp/volume bs=1M count=8 2> /dev/null
dd if=/dev/urandom of=/tmp/written bs=1M count=4 2> /dev/null
mkdir $target/subsystems/$name
echo 1 > $target/subsystems/$name/attr_allow_any_host
mkdir $target/subsystems/$name/namespaces/1
echo -n /tmp/volume > $target/subsystems/$name/namespaces/1/device_path
echo 1 > $target/subsystems/$name/namespaces/1/buffered_io
echo 1 > $target/subsystems/$name/namespaces/1/enable || failed "the volume"
mkdir $target/ports/1
echo rdma > $target/ports/1/addr_trtype
echo ipv4 > $target/ports/1/addr_adrfam
echo 192.0.2.1 > $target/ports/1/addr_traddr
echo 4420 > $target/ports/1/addr_trsvcid
ln -s $target/subsystems/$name $target/ports/1/subsystems/$name || failed "nvmet-rdma"
echo -n "transport=rdma,traddr=192.0.2.1,trsvcid=4420,nqn=$name,hostnqn=nqn.2026-11.test:host,\
hostid=00000000-0000-4000-8000-000000000001" \
    > /dev/nvme-fabrics || failed "nvme-rdma"
for second in 1 2 3 4 5 6 7 8 9 10; do
    volume=$(ls /dev/nvme[0-9]n1 2> /dev/null) && break
    sleep 1
done
[ -b "$volume" ] || failed "no volume"
dd if=/tmp/written of="$volume" bs=1M oflag=direct 2> /dev/null || failed "writing"
dd if="$volume" of=/tmp/read bs=1M count=4 iflag=direct 2> /dev/null || failed "reading"
cmp /tmp/written /tmp/read || failed "the bytes that were read"
dd if=/tmp/volume of=/tmp/stored bs=1M count=4 2> /dev/null
cmp /tmp/written /tmp/stored || failed "the bytes of the file"
echo 1 > "$(ls /sys/class/nvme/*/delete_controller)" || failed "disconnecting"
rm $target/ports/1/subsystems/$name
rmdir $target/ports/1 $target/subsystems/$name/namespaces/1 $target/subsystems/$name
rmmod nvmet_rdma nvme_rdma || failed "rmmod nvmet_rdma nvme_rdma"
echo "passed: NVMe over fabrics, 4 MiB compared three ways"
