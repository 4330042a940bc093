# NVMe over fabrics: target and initiator of the kernel in this guest. The bytes are compared three ways: the
# ones that were written, the ones that come back over the wire, and the ones in the target's file.
offer
attach_volume
write_and_read
dd if=/tmp/volume of=/tmp/stored bs=1M count=4 2> /dev/null
cmp /tmp/written /tmp/stored || failed "the bytes of the file"
detach_volume
retract
rmmod nvmet_rdma nvme_rdma || failed "rmmod nvmet_rdma nvme_rdma"
echo "passed: NVMe over fabrics, 4 MiB compared three ways"
