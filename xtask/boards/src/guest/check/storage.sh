# NVMe over fabrics: target and initiator of the kernel in this guest. The written bytes, the bytes that come
# back over the wire and the bytes in the target's file are compared.
offer
attach_volume
write_and_read
dd if=/tmp/volume of=/tmp/stored bs=1M count=4 2> /dev/null
cmp /tmp/written /tmp/stored || failed "the bytes of the file"
detach_volume
retract
rmmod nvmet_rdma nvme_rdma || failed "rmmod nvmet_rdma nvme_rdma"
echo "passed: NVMe over fabrics, 4 MiB compared three ways"
