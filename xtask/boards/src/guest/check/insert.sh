# The device of the target inserts and strips protection information. The initiator is another guest, whose
# device announces no signatures: Linux then asks the target to insert and to strip (PRACT).
# Later kernels than 6 send no request to compare (PRCHK) without protection information of their own. Their
# target then inserts right guards and one reference tag for all blocks of a command, and compares nothing
# while it strips.
case $(uname -r) in
6.*) compares=1 ;;
*) compares= ;;
esac
# Reads blocks of the volume by one command: `blocks N COUNT` reads COUNT blocks, from block N * COUNT on.
blocks() { /bin/dd if="$volume" of=/tmp/read bs=$((bytes * $2)) skip="$1" count=1 iflag=direct 2> /dev/null; }
# Writes and reads the volume, for which this guest has no protection information.
written_and_read() {
    grep -q T10 "/sys/block/$(basename "$volume")/integrity/format" 2> /dev/null &&
        failed "this guest has protection information: $(cat /sys/block/*/integrity/format)"
    [ "$(blockdev --getss "$volume")" = $bytes ] || failed "blocks of $(blockdev --getss "$volume") bytes"
    dd if=/dev/urandom of=/tmp/written bs=256k count=2 2> /dev/null
    dd if=/tmp/written of="$volume" bs=256k oflag=direct 2> /dev/null || failed "writing"
    dd if="$volume" of=/tmp/read bs=256k count=2 iflag=direct 2> /dev/null || failed "reading"
    cmp /tmp/written /tmp/read || failed "the bytes that were read"
}
inserted() {
    type=$1 bytes=$2
    order "type=$1; bytes=$2; offer_protected > /tmp/offered 2>&1"
    attach_volume ,queue_size=16,nr_io_queues=1,keep_alive_tmo=300
    # Each command is sent once, hence each error is reported once.
    echo 0 > /sys/module/nvme_core/parameters/max_retries
    written_and_read
    # The target's Linux compares the protection information that its device has inserted.
    answer 'dd if=/dev/$disk bs=256k count=2 iflag=direct 2> /dev/null | md5sum; dmesg | tail -n 5' > /tmp/sum
    if [ -n "$compares" ] || [ $type = 3 ]; then
        grep -q "$(md5sum < /tmp/written)" /tmp/sum || failed "the bytes of the disk: $(cat /tmp/sum)"
    else
        grep -q 'ref tag error at location 1 (rcvd 0)' /tmp/sum || failed "other tags: $(cat /tmp/sum)"
    fi
    no_warning
    [ -z "$compares" ] || changed_guard
    detach_volume
    order retract_protected
    echo "passed: the target inserts and strips${compares:+ and compares}, type $type, blocks of $bytes bytes"
}
# Block 9 has a wrong guard. The device of the target finds this while it strips.
wrong_guard() {
    blocks 0 16 && failed "Linux reads 16 blocks"
    blocks 8 1 && blocks 10 1 || failed "Linux reads no other block"
    blocks 9 1 && failed "Linux reads block 9"
    dmesg | grep -q "protection error, dev nvme.*, sector $((9 * bytes / 512)) op 0x0:(READ)" ||
        failed "no protection error at the sector of block 9"
    others=$(warnings | grep -v -e 'I/O Cmd' -e 'protection error, dev nvme')
    [ -z "$others" ] || failed "more than the planned error: $others"
    dmesg -c > /tmp/messages
}
changed_guard() {
    order 'overwrite; dmesg -c > /tmp/messages'
    wrong_guard
    # The target has two errors, one of 16 blocks and one of block 9.
    answer 'dmesg -c | grep "Got SIGERR"; last_byte' > /tmp/answered
    [ "$(grep -c 'err_type 0 ' /tmp/answered)" = 2 ] || failed "errors of the target: $(cat /tmp/answered)"
    grep -q "err_offset $(tail -n 1 /tmp/answered) " /tmp/answered ||
        failed "not at block 9: $(cat /tmp/answered)"
}
# The same with a target of this project.
own() {
    bytes=$1
    order "bytes=$1; stride=$(($1 + 8)); rm -f /tmp/volume; start > /tmp/started 2>&1"
    attach_volume ,queue_size=16,nr_io_queues=1,keep_alive_tmo=300
    written_and_read
    answer 'stored | md5sum' > /tmp/sum
    grep -q "$(head -c 262144 /tmp/written | md5sum)" /tmp/sum ||
        failed "the bytes of the file: $(cat /tmp/sum)"
    no_warning
    [ -z "$compares" ] || {
        order "change $bytes"
        wrong_guard
    }
    detach_volume
    order 'kill $process; wait $process 2> /dev/null'
    answer 'cat /tmp/target' > /tmp/answered
    errors=$((compares * 2))
    [ "$(grep -c '^target: LBA 9: bad guard ' /tmp/answered)" = $errors ] &&
        [ "$(grep -c LBA /tmp/answered)" = $errors ] || failed "errors of the target: $(cat /tmp/answered)"
    echo "passed: our target inserts and strips${compares:+ and compares}, blocks of $bytes bytes"
}
inserted 1 512
inserted 1 4096
inserted 3 512
inserted 3 4096
own 512
own 4096
ended=1
order end
