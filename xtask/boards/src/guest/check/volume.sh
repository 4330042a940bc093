# NVMe over fabrics: functions for the target and for the initiator.
target=/sys/kernel/config/nvmet
name=nqn.2026-11.test:volume
subsystem=$target/subsystems/$name
# Prepares the file or the disk at a path as a volume. `publish` offers the volume.
prepare() {
    load /etc/storage
    [ -d $target ] || mount -t configfs none /sys/kernel/config
    mkdir $subsystem
    echo 1 > $subsystem/attr_allow_any_host
    mkdir $subsystem/namespaces/1
    echo -n "$1" > $subsystem/namespaces/1/device_path
    mkdir $target/ports/1
    echo rdma > $target/ports/1/addr_trtype
    echo ipv4 > $target/ports/1/addr_adrfam
    echo 192.0.2.1 > $target/ports/1/addr_traddr
    echo 4420 > $target/ports/1/addr_trsvcid
}
publish() {
    echo 1 > $subsystem/namespaces/1/enable || failed "the volume"
    ln -s $subsystem $target/ports/1/subsystems/$name || failed "nvmet-rdma"
}
retract() {
    rm $target/ports/1/subsystems/$name
    rmdir $target/ports/1 $subsystem/namespaces/1 $subsystem
}
# Offers a file of zeros as a volume.
offer() {
    dd if=/dev/zero of=/tmp/volume bs=1M count=8 2> /dev/null
    prepare /tmp/volume
    echo 1 > $subsystem/namespaces/1/buffered_io
    # An initiator that connects again compares the identifiers of the volume.
    echo 00000000-0000-4000-8000-000000000002 > $subsystem/namespaces/1/device_uuid
    echo 00000000-0000-4000-8000-000000000002 > $subsystem/namespaces/1/device_nguid
    publish
}
# Attaches the volume, with further options of the connection.
attach_volume() {
    load /etc/storage
    echo -n "transport=rdma,traddr=192.0.2.1,trsvcid=4420,nqn=$name,hostnqn=nqn.2026-11.test:host,\
hostid=00000000-0000-4000-8000-000000000001$1" \
        > /dev/nvme-fabrics || failed "nvme-rdma"
    for second in 1 2 3 4 5 6 7 8 9 10; do
        volume=$(ls /dev/nvme[0-9]n1 2> /dev/null) && break
        sleep 1
    done
    [ -b "$volume" ] || failed "no volume"
}
detach_volume() { echo 1 > "$(ls /sys/class/nvme/*/delete_controller)" || failed "disconnecting"; }
# Writes 4 MiB to the volume, and compares them with the bytes that come back.
write_and_read() {
    dd if=/dev/urandom of=/tmp/written bs=1M count=4 2> /dev/null
    dd if=/tmp/written of="$volume" bs=1M oflag=direct 2> /dev/null || failed "writing"
    dd if="$volume" of=/tmp/read bs=1M count=4 iflag=direct 2> /dev/null || failed "reading"
    cmp /tmp/written /tmp/read || failed "the bytes that were read"
}
