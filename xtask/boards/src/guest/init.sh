#!/bin/busybox sh
# The first process of the guest: loads Linux's drivers, runs a command, and switches the guest off.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
ip link set lo up
while read -r module; do
    insmod "/lib/modules/$module.ko"
done < /etc/modules
echo "guest: begin"
sh /etc/command
echo "guest: status $?"
poweroff -f
