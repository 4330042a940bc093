# NVMe over fabrics with T10 protection information. Target and initiator of the kernel register integrity
# regions, and the device compares the blocks that pass. A disk of scsi_debug stores the protection
# information, and compares nothing when blocks are read. Linux has to report each changed part for its block,
# and for no other block.
# Each command is sent once, hence each error is reported once.
load /etc/storage
echo 0 > /sys/module/nvme_core/parameters/max_retries
# Attaches a volume with protection information of type $type, and with blocks of $bytes bytes.
attach() {
    offer_protected
    # Linux creates three keys for each place of a queue. Short queues are ready soon, also on a busy machine.
    attach_volume ,queue_size=16,nr_io_queues=1,keep_alive_tmo=300
    grep -q T10-DIF-TYPE$type-CRC "/sys/block/$(basename "$volume")/integrity/format" ||
        failed "the volume has no protection of type $type"
}
# Sends a command for some blocks. The arguments are the number of the first block, the count of blocks,
# `read` or `write`, a file, the sum of the parts that are compared (1 the reference tag, 2 the application
# tag, 4 the guard), and further options. Up to Linux 6, the file has the blocks with their protection
# information. Later kernels refuse a file of this length: the device inserts and strips the protection
# information.
case $(uname -r) in
6.*) inserts=0 ;;
*) inserts=8 ;;
esac
io_at() {
    first=$1 count=$2 way=$3 file=$4 checks=$(($5 | inserts))
    shift 5
    # `nvme` does not shorten a file that exists.
    [ "$way" = write ] || rm -f "$file"
    nvme "$way" "$volume" -s $first -c $((count - 1)) -z $((count * (bytes + 8 - inserts))) -d "$file" \
        -p $checks "$@" > /tmp/io 2>&1 || ! cat /tmp/io
}
# Sends a command for block 9.
io() { io_at 9 1 "$@"; }
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
block() { /bin/dd if="$volume" of=/tmp/block bs=$bytes skip="$1" count=1 iflag=direct 2> /dev/null; }
# Compares the first blocks of the volume and of the disk with those of a file.
same() {
    for place in "$volume" "/dev/$disk"; do
        dd if="$place" of=/tmp/read bs="$(stat -c %s "$1")" count=1 iflag=direct 2> /dev/null ||
            failed "reading $place"
        cmp "$1" /tmp/read || failed "the bytes of $place"
    done
}
# Checks the messages of the kernel since the last call: this number of errors of a kind (0 guard, 1 reference
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
# Reads blocks 0 to 15 at once, and blocks 8 to 10 one by one. Block 9 has a wrong part of this kind. Target
# and initiator both report the error, and Linux fails the read.
changed() {
    what=$1 kind=$2
    dd if="$volume" of=/tmp/read bs=$((bytes * 16)) count=1 iflag=direct 2> /dev/null &&
        failed "$what: Linux reads 16 blocks"
    last=$(last_byte)
    [ "$(dmesg | grep -c "Got SIGERR .* err_offset $last ")" = 2 ] || failed "$what: not at block 9"
    block 8 && block 10 || failed "$what: Linux reads no other block"
    block 9 && failed "$what: Linux reads block 9"
    dmesg | grep -q "protection error, dev nvme.*, sector $((9 * bytes / 512)) op 0x0:(READ)" ||
        failed "$what: no protection error at its sector"
    reported "$kind" 4
}
protect() {
    type=$1 bytes=$2
    attach
    dmesg -c > /tmp/messages
    # The kernel computes the protection information of blocks that are written to the volume, and compares
    # the protection information of blocks that are read. The kernel does the same for the disk.
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
    # All other blocks have the application tag 0.
    io_at 0 16 read /tmp/read $every -r 0 -a 0 -m 0xffff | grep -q 'Application Tag Check Error' ||
        failed "no error of the application tag in 16 blocks: $(cat /tmp/io)"
    dmesg | grep -q "Got SIGERR .* err_type 2 err_offset $(last_byte) " ||
        failed "application tag: not at block 9"
    reported 2 2
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
        # A block with a wrong guard is refused before the disk stores the block.
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
    detach_volume
    retract_protected
    echo "passed: NVMe over fabrics with protection information of type $type, blocks of $bytes bytes"
}
no_warning
dmesg -c > /tmp/messages
protect 1 512
protect 1 4096
protect 3 512
protect 3 4096
rmmod nvmet_rdma nvme_rdma || failed "rmmod nvmet_rdma nvme_rdma"
