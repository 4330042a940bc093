# iSCSI over RDMA (iSER) with T10 protection information of type 1: target (LIO) and initiator of the kernel
# in this guest. Both register integrity regions.
grep -v '^ib_iser$' /etc/iser > /tmp/modules
[ ! -f /etc/crc ] || load /etc/crc
load_iser() {
    load /tmp/modules
    insmod /lib/modules/ib_iser.ko pi_enable=1 || failed "ib_iser"
}
load_iser
# All modules are loaded, and this guest has no `modprobe`: Linux calls `true` instead.
echo /bin/true > /proc/sys/kernel/modprobe
mount -t configfs none /sys/kernel/config
target=/sys/kernel/config/target
backend=$target/core/iblock_0/disk
name=iqn.2026-11.test:volume
group=$target/iscsi/$name/tpgt_1
mkdir -p /run/lock /etc/iscsi
echo "InitiatorName=iqn.2026-11.test:host" > /etc/iscsi/initiatorname.iscsi
echo "node.startup = manual" > /etc/iscsi/iscsid.conf
# The daemon takes requests of root only, and looks for the name of the user.
echo 'root:x:0:0::/root:/bin/sh' > /etc/passwd
iscsid || failed "iscsid"
admin() {
    timeout 60 iscsiadm -m node -T $name -p 192.0.2.1:3260 -I iser "$@" > /tmp/admin 2>&1 ||
        failed "iscsiadm $*: $(cat /tmp/admin)"
}
offer_iscsi() {
    mkdir -p $backend
    echo "udev_path=/dev/$disk" > $backend/control
    echo 1 > $backend/enable || failed "the disk of the target"
    mkdir -p $target/iscsi
    mkdir $target/iscsi/$name $group $group/lun/lun_0 $group/np/192.0.2.1:3260
    ln -s $backend $group/lun/lun_0/volume
    echo 1 > $group/np/192.0.2.1:3260/iser || failed "ib_isert"
    for setting in authentication=0 generate_node_acls=1 cache_dynamic_acls=1 demo_mode_write_protect=0 \
        t10_pi=1; do
        echo ${setting#*=} > $group/attrib/${setting%=*} || failed "$setting"
    done
    echo 1 > $group/enable || failed "the target"
}
retract_iscsi() {
    # The target of Linux 6.1 ends a session some 10 s after the initiator. Removing the target earlier
    # corrupts a list of the kernel (`transport_deregister_session_configfs`).
    for second in $(seq 60); do
        [ -n "$(tr -d '\0' < $group/dynamic_sessions)" ] || break
        sleep 1
    done
    echo 0 > $group/enable
    rm $group/lun/lun_0/volume
    rmdir $group/lun/lun_0 $group/np/192.0.2.1:3260 $group $target/iscsi/$name $backend
    rmmod scsi_debug || failed "rmmod scsi_debug"
    # The target ends its connections in the background. Only afterwards can its module be removed.
    rmmod ib_iser || failed "rmmod ib_iser"
    for second in $(seq 30); do
        rmmod ib_isert 2> /dev/null && break
        sleep 1
    done
    [ ! -d /sys/module/ib_isert ] || failed "rmmod ib_isert: $(cat /sys/module/ib_isert/refcnt) users"
}
blocks() {
    /bin/dd if="/dev/$volume" of=/tmp/read bs=$((bytes * $2)) skip="$1" count=1 iflag=direct 2> /dev/null
}
same() {
    for place in "$volume" "$disk"; do
        dd if="/dev/$place" of=/tmp/read bs=256k count=2 iflag=direct 2> /dev/null || failed "reading $place"
        cmp /tmp/written /tmp/read || failed "the bytes of $place"
    done
}
iser() {
    type=1 bytes=$1
    make_disk
    offer_iscsi
    admin -o new
    admin --login
    for second in 1 2 3 4 5 6 7 8 9 10; do
        volume=$(ls /sys/block | grep '^sd' | grep -v "^$disk\$")
        grep -q T10-DIF-TYPE1 "/sys/block/$volume/integrity/format" 2> /dev/null && break
        sleep 1
    done
    format=$(cat "/sys/block/$volume/integrity/format")
    case $format in T10-DIF-TYPE1-*) ;; *) failed "no protection information: $format" ;; esac
    dmesg -c > /tmp/messages
    dd if=/dev/urandom of=/tmp/written bs=256k count=2 2> /dev/null
    dd if=/tmp/written of="/dev/$volume" bs=256k oflag=direct 2> /dev/null || failed "writing"
    same
    no_warning
    # The guard of block 9 becomes wrong. Target and initiator both report the error, in a read of 16 blocks
    # and in a read of one block.
    overwrite
    dmesg -c > /tmp/messages
    blocks 0 16 && failed "Linux reads 16 blocks"
    [ "$(dmesg | grep -c "Got SIGERR .* err_type 0 err_offset $(last_byte) ")" = 2 ] ||
        failed "not at block 9"
    blocks 8 1 && blocks 10 1 || failed "Linux reads no other block"
    blocks 9 1 && failed "Linux reads block 9"
    [ "$(dmesg | grep -c "protection error, dev $volume, sector $((9 * bytes / 512)) op 0x0:(READ)")" = 2 ] ||
        failed "no protection error at its sector"
    [ "$(dmesg | grep -c "Got SIGERR")" = 4 ] || failed "the number of errors"
    others=$(warnings | grep -v -e 'Got SIGERR' -e 'PI error found type 0 at sector')
    [ -z "$others" ] || failed "more than the planned error: $others"
    dmesg -c > /tmp/messages
    admin --logout
    retract_iscsi
    echo "passed: iSER with protection information ($format), blocks of $bytes bytes"
}
iser 512
load_iser
iser 4096
