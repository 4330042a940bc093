# NVMe over fabrics with protection information of type 1: the target is a program of this project
# (`hil-tests/examples/nvme_target`), and the initiator is Linux's. The devices of both compare the blocks
# that pass. Each command is sent once, hence each error is reported once.
failed() {
    echo "$*"
    cat /tmp/target
    dmesg | tail -n 20
    exit 1
}
load /etc/storage
echo 0 > /sys/module/nvme_core/parameters/max_retries
# Reads a block as Linux does: guard and reference tag are compared.
block() { /bin/dd if="$volume" of=/tmp/block bs=$bytes skip="$1" count=1 iflag=direct 2> /dev/null; }
# Checks what the device of the initiator has reported since the last call: this number of errors of a kind (0
# guard, 1 reference tag). The drivers have warned of nothing else.
reported() {
    dmesg > /tmp/messages
    wrong=$(grep -c "Got SIGERR .* err_type $1 " /tmp/messages)
    all=$(grep -c "Got SIGERR" /tmp/messages)
    [ "$wrong" = "$2" ] && [ "$all" = "$2" ] || failed "$bytes bytes: $wrong of $all errors, wanted $2"
    others=$(warnings | grep -v -e 'Got SIGERR' -e 'PI error found type' -e 'I/O Cmd' \
        -e 'protection error, dev nvme')
    [ -z "$others" ] || failed "more than the planned error: $others"
    dmesg -c > /tmp/messages
}
# Reads 16 blocks at once, and three blocks one by one. A part of block 9 is wrong: its words in the target's
# output and in Linux's error log, and the number of the kind for Linux.
wrong() {
    words=$1 status=$2 kind=$3
    lines=$(grep -c '^target: LBA' /tmp/target)
    dd if="$volume" of=/tmp/read bs=$((bytes * 16)) count=1 iflag=direct 2> /dev/null &&
        failed "wrong $words: Linux reads 16 blocks"
    block 8 && block 10 || failed "wrong $words: Linux reads no other block"
    block 9 && failed "wrong $words: Linux reads block 9"
    dmesg | grep -q "protection error, dev nvme.*, sector $((9 * bytes / 512)) op 0x0:(READ)" ||
        failed "wrong $words: no protection error at its sector"
    dmesg | grep -q "Got SIGERR .* err_offset $(printf %x $((stride * 10 - 1))) " ||
        failed "wrong $words: not at block 9"
    reported "$kind" 2
    [ $(($(grep -c '^target: LBA' /tmp/target) - lines)) = 2 ] &&
        [ "$(tail -n 2 /tmp/target | grep -c "^target: LBA 9: bad $words ")" = 2 ] ||
        failed "wrong $words: the target has said $(cat /tmp/target)"
    nvme error-log "${volume%n1}" -e 1 > /tmp/log || failed "the error log: $(cat /tmp/log)"
    grep -q "^lba[[:space:]]*: 0x9$" /tmp/log && grep -q "^status_field[[:space:]]*: $status" /tmp/log ||
        failed "wrong $words: the error log has $(cat /tmp/log)"
}
# Waits until the connection is in a state.
until_state() {
    for second in $(seq 60); do
        grep -q "$1" /sys/class/nvme/*/state && return
        sleep 1
    done
    failed "the connection is not $1"
}
own() {
    bytes=$1 stride=$(($1 + 8))
    rm -f /tmp/volume
    start
    attach_volume ,queue_size=16,nr_io_queues=1,keep_alive_tmo=30,reconnect_delay=1,ctrl_loss_tmo=300
    grep -q T10-DIF-TYPE1-CRC "/sys/block/$(basename "$volume")/integrity/format" ||
        failed "the volume has no protection of type 1"
    # The bytes are compared three ways: the ones that were written, the ones that come back over the wire,
    # and the ones in the target's file.
    write_and_read
    head -c 262144 /tmp/written > /tmp/first
    stored | cmp /tmp/first - || failed "the bytes of the file"
    reported 0 0
    change "$bytes"
    wrong guard 0x4282 0
    change "$bytes"
    block 9 || failed "the right guard"
    change $((bytes + 7))
    wrong "reference tag" 0x4284 1
    # Linux writes the block anew.
    /bin/dd if=/tmp/first of="$volume" bs=$bytes skip=9 seek=9 count=1 oflag=direct 2> /dev/null ||
        failed "writing block 9"
    block 9 || failed "the block that was written anew"
    stored | cmp /tmp/first - || failed "the bytes of block 9"
    case $(uname -r) in
    6.*)
        # A wrong guard of a program, which the command asks to compare, is refused and not stored. Later
        # kernels take no protection information of a program.
        (head -c "$bytes" /tmp/first; printf '\xff\xfe\0\0\0\0\0\x09') > /tmp/refused
        nvme write "$volume" -s 9 -c 0 -z $stride -d /tmp/refused -p 4 2>&1 |
            grep -q 'Guard Check Error' || failed "a wrong guard is written"
        reported 0 1
        block 9 || failed "the block that was refused"
        ;;
    esac
    stored | cmp /tmp/first - || failed "the bytes that no command has changed"
    ! grep -v -e '^target: LBA 9' -e "^target: $name" /tmp/target || failed "the target has said more"
    # The target dies and comes back. Linux warns of the lost connection alone, connects again, and finds the
    # volume as it was.
    kill -9 $process
    wait $process 2> /dev/null
    until_state connecting
    start
    until_state live
    dd if="$volume" of=/tmp/read bs=1M count=4 iflag=direct 2> /dev/null || failed "reading"
    cmp /tmp/written /tmp/read || failed "the bytes after the second connection"
    others=$(warnings | grep -v -e 'nvme nvme[0-9]*: ')
    [ -z "$others" ] || failed "more than the lost connection: $others"
    dmesg -c > /tmp/messages
    detach_volume
    reported 0 0
    kill $process
    wait $process 2> /dev/null
    echo "passed: NVMe over fabrics, our target, blocks of $bytes bytes with protection information"
}
no_warning
dmesg -c > /tmp/messages
own 512
own 4096
rmmod nvmet_rdma nvme_rdma || failed "rmmod nvmet_rdma nvme_rdma"
