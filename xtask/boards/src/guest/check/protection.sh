# NVMe over fabrics with T10 protection information. Target and initiator of the kernel register integrity
# regions, and the device compares the blocks that pass. A disk of scsi_debug stores the protection
# information, and compares nothing when it is read. Linux has to report each changed part for its block, and
# for no other.
load /etc/storage
load /etc/protection
# Each command is sent once, hence each error is reported once.
echo 0 > /sys/module/nvme_core/parameters/max_retries
# Attaches a volume with protection information of type $type, and with blocks of $bytes bytes.
attach() {
    # A disk without `dif` has type 1 for Linux (DIX type 0).
    insmod /lib/modules/scsi_debug.ko dix=1 dif=$((type == 3 ? 3 : 0)) sector_size=$bytes dev_size_mb=8 ||
        failed "insmod scsi_debug"
    for second in 1 2 3 4 5 6 7 8 9 10; do
        disk=$(basename "$(ls -d /sys/block/sd* 2> /dev/null)")
        grep -q T10-DIF-TYPE$type-CRC "/sys/block/$disk/integrity/format" 2> /dev/null && break
        sleep 1
    done
    grep -q T10-DIF-TYPE$type-CRC "/sys/block/$disk/integrity/format" || failed "no disk of type $type"
    # Linux asks a disk of type 3 to compare. From now on, Linux takes this disk for one without a type.
    echo 0 > "$(ls /sys/block/"$disk"/device/scsi_disk/*/protection_type)" || failed "the type of the disk"
    target=/sys/kernel/config/nvmet
    name=nqn.2026-11.test:protected
    mkdir $target/subsystems/$name
    echo 1 > $target/subsystems/$name/attr_allow_any_host
    echo 1 > $target/subsystems/$name/attr_pi_enable
    mkdir $target/subsystems/$name/namespaces/1
    echo -n "/dev/$disk" > $target/subsystems/$name/namespaces/1/device_path
    echo 1 > $target/subsystems/$name/namespaces/1/enable || failed "the protected volume"
    mkdir $target/ports/1
    echo rdma > $target/ports/1/addr_trtype
    echo ipv4 > $target/ports/1/addr_adrfam
    echo 192.0.2.1 > $target/ports/1/addr_traddr
    echo 4420 > $target/ports/1/addr_trsvcid
    echo 1 > $target/ports/1/param_pi_enable
    ln -s $target/subsystems/$name $target/ports/1/subsystems/$name || failed "nvmet-rdma"
    # Linux creates three keys for each place of a queue. Short queues are ready soon, also on a busy machine.
    echo -n "transport=rdma,traddr=192.0.2.1,trsvcid=4420,nqn=$name,hostnqn=nqn.2026-11.test:host,\
hostid=00000000-0000-4000-8000-000000000001,queue_size=16,nr_io_queues=1,keep_alive_tmo=300" \
        > /dev/nvme-fabrics || failed "nvme-rdma"
    for second in 1 2 3 4 5 6 7 8 9 10; do
        volume=$(ls /dev/nvme[0-9]n1 2> /dev/null) && break
        sleep 1
    done
    grep -q T10-DIF-TYPE$type-CRC "/sys/block/$(basename "$volume")/integrity/format" ||
        failed "the volume has no protection of type $type"
}
detach() {
    echo 1 > "$(ls /sys/class/nvme/*/delete_controller)" || failed "disconnecting"
    rm $target/ports/1/subsystems/$name
    rmdir $target/ports/1 $target/subsystems/$name/namespaces/1 $target/subsystems/$name
    rmmod scsi_debug || failed "rmmod scsi_debug"
}
# Sends a command for block 9: `read` or `write`, a file, what is compared (1 the reference tag, 2 the
# application tag, 4 the guard), and further options. Up to Linux 6, the file has the block with its
# protection information. Later kernels refuse its length, and the device inserts and strips the protection
# information.
case $(uname -r) in
6.*) inserts=0 ;;
*) inserts=8 ;;
esac
io() {
    way=$1 file=$2 checks=$(($3 | inserts))
    shift 3
    # `nvme` shortens no file.
    [ "$way" = write ] || rm -f "$file"
    nvme "$way" "$volume" -s 9 -c 0 -z $((bytes + 8 - inserts)) -d "$file" -p $checks "$@" > /tmp/io 2>&1 ||
        ! cat /tmp/io
}
# Writes block 9 with its right guard, and with these numbers as application and reference tag. Nothing is
# compared.
mark() {
    app=$1 ref=$2
    cp /tmp/right /tmp/marked
    if [ $inserts = 0 ]; then
        tags=$(printf '\\x%02x' $((app >> 8)) $((app & 255)) 0 0 0 "$ref")
        (head -c $((bytes + 2)) /tmp/right; printf "$tags") > /tmp/marked
    fi
    io write /tmp/marked 0 -a "$app" -m 0xffff -r "$ref" || failed "writing tags $app, $ref"
}
# Reads a block as Linux does: the guard is compared, and for type 1 the reference tag.
block() { dd if="$volume" of=/tmp/block bs=$bytes skip="$1" count=1 iflag=direct 2> /dev/null; }
# Compares the first blocks of the volume and of the disk with those of a file.
same() {
    for place in "$volume" "/dev/$disk"; do
        dd if="$place" of=/tmp/read bs="$(stat -c %s "$1")" count=1 iflag=direct 2> /dev/null ||
            failed "reading $place"
        cmp "$1" /tmp/read || failed "the bytes of $place"
    done
}
# Checks what the kernel has said since the last call: this number of errors of a kind (0 guard, 1 reference
# tag, 2 application tag), and no other warning.
reported() {
    kind=$1 count=$2
    dmesg > /tmp/messages
    wrong=$(grep -c "Got SIGERR .* err_type $kind " /tmp/messages)
    all=$(grep -c "Got SIGERR" /tmp/messages)
    [ "$wrong" = "$count" ] && [ "$all" = "$count" ] ||
        failed "type $type, $bytes bytes: $wrong of $all errors have kind $kind, wanted $count"
    others=$(warnings | grep -v -e 'Got SIGERR' -e 'PI error found type' -e 'I/O Cmd' \
        -e 'protection error, dev nvme')
    [ -z "$others" ] || failed "more than the planned error: $others"
    dmesg -c > /tmp/messages
}
# Reads blocks 0 to 15 at once, and blocks 8 to 10 one by one. Block 9 has a wrong part of this kind. Both
# devices of a transfer report the error, and Linux fails the read.
changed() {
    what=$1 kind=$2
    dd if="$volume" of=/tmp/read bs=$((bytes * 16)) count=1 iflag=direct 2> /dev/null &&
        failed "$what: Linux reads 16 blocks"
    # The last byte of block 9, with the protection information of ten blocks.
    last=$(printf %x $(((bytes + 8) * 10 - 1)))
    [ "$(dmesg | grep -c "Got SIGERR .* err_offset $last ")" = 2 ] || failed "$what: not at block 9"
    block 8 && block 10 || failed "$what: Linux reads no other block"
    block 9 && failed "$what: Linux reads block 9"
    dmesg | grep -q "protection error, dev nvme.*, sector $((9 * bytes / 512)) op 0x0:(READ)" ||
        failed "$what: no protection error at its sector"
    reported "$kind" 4
}
# Changes the data of block 9 on the disk by a SCSI command. Its protection information stays.
overwrite() {
    dd if=/dev/urandom of=/tmp/other bs=$bytes count=1 2> /dev/null
    sg_dd blk_sgio=1 if=/tmp/other of="/dev/$disk" bs=$bytes seek=9 count=1 > /tmp/io 2>&1 ||
        failed "overwriting: $(cat /tmp/io)"
}
protect() {
    type=$1 bytes=$2
    attach
    dmesg -c > /tmp/messages
    # The kernel computes the protection information, and compares it again behind the volume. The kernel
    # also compares what it reads from the disk, and computes what it writes to the disk.
    dd if=/dev/urandom of=/tmp/written bs=256k count=2 2> /dev/null
    dd if=/tmp/written of="$volume" bs=256k oflag=direct 2> /dev/null || failed "writing"
    same /tmp/written
    dd if=/dev/urandom of=/tmp/written bs=256k count=1 2> /dev/null
    dd if=/tmp/written of="/dev/$disk" bs=256k oflag=direct 2> /dev/null || failed "writing the disk"
    same /tmp/written
    reported 0 0
    io read /tmp/right 0 || failed "reading block 9"
    overwrite
    changed guard 0
    # Linux compares application tags only for a command that asks for this.
    every=$((type == 1 ? 7 : 6))
    mark 0x1234 9
    io read /tmp/read $every -r 9 -a 0x1234 -m 0xffff && cmp /tmp/read /tmp/marked ||
        failed "reading an application tag: $(cat /tmp/io)"
    io read /tmp/read $every -r 9 -a 0x1235 -m 0xfff0 || failed "a mask of the application tag"
    block 9 || failed "an application tag is compared"
    reported 0 0
    io read /tmp/read $every -r 9 -a 0x1235 -m 0xffff | grep -q 'Application Tag Check Error' ||
        failed "no error of the application tag: $(cat /tmp/io)"
    reported 2 1
    mark 0 10
    if [ $type = 1 ]; then
        changed "reference tag" 1
    else
        block 9 || failed "type 3 has compared a reference tag"
        reported 0 0
    fi
    mark 0 9
    block 9 || failed "the right block"
    if [ $inserts = 0 ]; then
        # A wrong guard of the initiator is refused before the disk has it.
        (head -c $bytes /tmp/right; printf '\xff\xfe\0\0\0\0\0\x09') > /tmp/refused
        io write /tmp/refused 4 | grep -q 'Guard Check Error' || failed "a wrong guard is written"
        block 9 || failed "the block that was refused"
        reported 0 2
    else
        # The device of the initiator inserts the protection information of 16 blocks. It strips and
        # compares the protection information when it reads the blocks.
        head -c $((bytes * 16)) /tmp/written > /tmp/first
        command="$volume -s 0 -c 15 -z $((bytes * 16)) -p $((every & 5 | 8)) -r 0 -d"
        nvme write $command /tmp/first > /tmp/io 2>&1 || failed "inserting: $(cat /tmp/io)"
        same /tmp/first
        nvme read $command /tmp/read > /tmp/io 2>&1 && cmp /tmp/first /tmp/read ||
            failed "stripping: $(cat /tmp/io)"
        reported 0 0
        overwrite
        nvme read $command /tmp/read 2>&1 | grep -q 'Guard Check Error' || failed "stripping a wrong guard"
        [ "$(dmesg | grep -c "Got SIGERR .* err_offset $last ")" = 2 ] || failed "stripping: not at block 9"
        reported 0 2
    fi
    detach
    echo "passed: NVMe over fabrics with protection information of type $type, blocks of $bytes bytes"
}
no_warning
dmesg -c > /tmp/messages
protect 1 512
protect 1 4096
protect 3 512
protect 3 4096
rmmod nvmet_rdma nvme_rdma || failed "rmmod nvmet_rdma nvme_rdma"
