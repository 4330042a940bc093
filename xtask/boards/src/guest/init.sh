#!/bin/busybox sh
# The first process of the guest: loads Linux's drivers, runs a command, and switches the guest off. The
# kernel sets `output` to the serial port of the command, from its own command line.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ip link set lo up
while read -r module; do
    insmod "/lib/modules/$module.ko"
done < /etc/modules
# The working folder of the host's command, if QEMU shares it.
mkdir /host
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=262144 host /host 2> /dev/null
if [ -s /etc/command ]; then
    stty raw -echo < "/dev/$output"
    sh /etc/command < /dev/null > "/dev/$output" 2>&1
else
    setsid sh -c "exec sh -l < /dev/$output > /dev/$output 2>&1"
fi
echo "guest: status $?" > /dev/console
poweroff -f
