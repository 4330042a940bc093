# Functions for a target of NVMe over fabrics that is a program of this project
# (`hil-tests/examples/nvme_target`), with blocks of $bytes bytes, and of $stride bytes in its file.
# Starts the target, and waits until it takes connections.
start() {
    rm -f /tmp/target
    nvme_target --address 192.0.2.1:4420 --nqn "$name" --volume /tmp/volume --blocks $((8388608 / bytes)) \
        --block-bytes "$bytes" > /tmp/target 2>&1 &
    process=$!
    for second in 1 2 3 4 5 6 7 8 9 10; do
        grep -q "^target: $name" /tmp/target 2> /dev/null && return
        sleep 1
    done
    failed "the target does not start"
}
# Prints the data of the first 256 KiB of the target's file, in which 8 bytes of protection information follow
# each block.
stored() {
    head -c $((262144 / bytes * stride)) /tmp/volume |
        hexdump -v -e "$stride/1 \"%02x\" \"\\n\"" | cut -c 1-$((bytes * 2)) | xxd -r -p
}
# Changes a byte of block 9 in the target's file, at an offset in the block.
change() {
    before=$(dd if=/tmp/volume bs=1 skip=$((9 * stride + $1)) count=1 2> /dev/null | hexdump -e '1/1 "%d"')
    printf "\\x$(printf %02x $((before ^ 1)))" |
        dd of=/tmp/volume bs=1 seek=$((9 * stride + $1)) conv=notrunc 2> /dev/null
}
