#!/bin/busybox sh
# The first process of the virtual DPU: makes the machine ready for SSH, and ends it where SSH ends.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir /dev/pts
mount -t devpts devpts /dev/pts
while read -r module; do
    insmod "/lib/modules/$module.ko"
done < /etc/modules
ip link set lo up
# The network inside of QEMU, where this address is the one that ports are forwarded to.
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
dropbearconvert openssh dropbear /etc/dropbear/openssh_host_key /etc/dropbear/host_key
# Keys only, nothing forwarded, in the foreground with its log on the console.
dropbear -F -E -s -j -k -r /etc/dropbear/host_key
poweroff -f
