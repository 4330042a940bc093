# Functions for a disk with T10 protection information of type $type, and with blocks of $bytes bytes. The
# disk of scsi_debug stores the protection information, and compares nothing when blocks are read.
make_disk() {
    load /etc/protection
    # A disk without `dif` has type 1 for Linux (DIX type 0).
    insmod /lib/modules/scsi_debug.ko dix=1 dif=$((type == 3 ? 3 : 0)) sector_size=$bytes dev_size_mb=8 ||
        failed "insmod scsi_debug"
    for second in 1 2 3 4 5 6 7 8 9 10; do
        disk=$(basename "$(ls -d /sys/block/sd* 2> /dev/null)")
        grep -q T10-DIF-TYPE$type-CRC "/sys/block/$disk/integrity/format" 2> /dev/null && break
        sleep 1
    done
    grep -q T10-DIF-TYPE$type-CRC "/sys/block/$disk/integrity/format" || failed "no disk of type $type"
    # Linux would ask a disk of type 3 to compare. From now on, Linux takes this disk for one without a type.
    echo 0 > "$(ls /sys/block/"$disk"/device/scsi_disk/*/protection_type)" || failed "the type of the disk"
}
# Offers the disk as a volume of NVMe over fabrics.
offer_protected() {
    make_disk
    prepare "/dev/$disk"
    echo 1 > $subsystem/attr_pi_enable
    echo 1 > $target/ports/1/param_pi_enable
    publish
}
retract_protected() {
    retract
    rmmod scsi_debug || failed "rmmod scsi_debug"
}
# Changes the data of block 9 on the disk by a SCSI command. The block's protection information stays.
overwrite() {
    dd if=/dev/urandom of=/tmp/other bs=$bytes count=1 2> /dev/null
    sg_dd blk_sgio=1 if=/tmp/other of="/dev/$disk" bs=$bytes seek=9 count=1 > /tmp/io 2>&1 ||
        failed "overwriting: $(cat /tmp/io)"
}
# Prints the offset of the last byte of block 9, in hex, where protection information follows each block.
last_byte() { printf %x $(((bytes + 8) * 10 - 1)); }
