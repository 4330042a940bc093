#!/bin/busybox sh
# The first process of the virtual DPU: starts the SSH server. When the server ends, switches the machine off.
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
# QEMU's own network forwards a port of the host to this address.
ip address add 10.0.2.15/24 dev eth0
ip link set eth0 up
dropbearconvert openssh dropbear /etc/dropbear/openssh_host_key /etc/dropbear/host_key
# The options of dropbear: keys only, no forwarding, in the foreground, log on the console.
dropbear -F -E -s -j -k -r /etc/dropbear/host_key
poweroff -f
