# No driver has warned. The two known lines name properties that the device lacks on purpose.
warned=$(dmesg -r | sed -n 's/^<[0-4]>//p' | grep -E 'mlx5|infiniband|RDMA|ib_|nvme' | grep -v \
    -e 'Failed to get valid vendor specific ID' \
    -e 'firmware level support is missing')
[ -z "$warned" ] || failed "the drivers have warned: $warned"
