# Two guests on one network: packets of the network interface, RoCE and NVMe over fabrics from one to the
# other, and a guest that dies and comes back.
# Runs a server in the other guest, and the client in this guest. Each guest replaces `$gid` by the entry of
# its own table of GIDs.
between() {
    order "$* > /tmp/server 2>&1 & listens $programs"
    eval "timeout 60 $* 192.0.2.1" > /tmp/client 2>&1 || failed "$*: $(cat /tmp/client)"
    echo "passed: between guests: $*"
}
order true
for address in 192.0.2.1 2001:db8::1; do
    ping -c 3 -s 1400 -W 10 $address > /tmp/ping || failed "$(cat /tmp/ping)"
    grep -q ' 0% packet loss' /tmp/ping || failed "$(cat /tmp/ping)"
    /bin/ip neighbour show $address | grep -q 'lladdr 02:6d:6c:00:01:00 .*REACHABLE' ||
        failed "$(/bin/ip neighbour)"
done
echo "passed: between guests: ping over IPv4 (ARP) and IPv6 (neighbour discovery)"
# TCP, whose data the device cuts into packets.
dd if=/dev/urandom of=/tmp/sent bs=1M count=4 2> /dev/null
order 'listen 7001 > /tmp/taken & listens 7001'
nc 192.0.2.1 7001 < /tmp/sent || failed "TCP"
[ "$(md5sum < /tmp/sent)" = "$(answer 'sleep 1; md5sum < /tmp/taken')" ] || failed "the bytes of TCP"
large=$(ethtool -S "$interface" | sed -n 's/^ *tx_tso_packets: //p')
[ "$large" != 0 ] || failed "no data were left to the device to cut"
echo "passed: between guests: 4 MiB over TCP"
between 'ibv_rc_pingpong -g $gid -n 200'
between 'ibv_rc_pingpong -g $gid -e -n 50'
between 'ibv_uc_pingpong -g $gid -n 100'
between 'ibv_ud_pingpong -g $gid -n 100'
between 'ibv_srq_pingpong -g $gid -n 100 -q 4'
between 'ib_write_bw -x $gid -n 200'
between 'ib_read_lat -x $gid -n 200'
for address in 192.0.2.1 2001:db8::1; do
    order "rping -s -C 10 -Vv -a $address > /tmp/server 2>&1 &"
    timeout 60 rping -c -C 10 -Vv -a $address > /tmp/client 2>&1
    [ "$(grep -c 'ping data: rdma-ping' /tmp/client)" = 10 ] || failed "rping: $(cat /tmp/client)"
    echo "passed: between guests: rping over $address"
done
# The library on both sides: the storage example. Both devices have to report the blocks that the target
# corrupts, and no others.
order "storage_target --address 192.0.2.1:7003 --gid-index \$gid --blocks 4096 --corrupt 5 \
> /tmp/server 2>&1 &"
storage_initiator --address 192.0.2.1:7003 --gid-index "$gid" --ios 1000 > /tmp/client 2>&1 ||
    failed "storage: $(cat /tmp/client)"
cat /tmp/client
echo "passed: between guests: the storage example"
order offer
attach_volume ,reconnect_delay=2,ctrl_loss_tmo=300,keep_alive_tmo=5
write_and_read
echo "passed: between guests: NVMe over fabrics, 4 MiB"
no_warning
# The target's guest dies, and comes back with an empty volume. Linux connects again.
order die
dd if="$volume" of=/tmp/read bs=4k count=1 iflag=direct 2> /dev/null &
for second in $(seq 60); do
    grep -q connecting /sys/class/nvme/*/state && break
    sleep 1
done
grep -q connecting /sys/class/nvme/*/state || failed "Linux has not noticed the death"
order offer
for second in $(seq 60); do
    grep -q live /sys/class/nvme/*/state && break
    sleep 1
done
wait
write_and_read
between 'ibv_rc_pingpong -g $gid -n 100'
# Linux warns of the lost connection, and of no other event.
others=$(warnings | grep -v -e 'nvme nvme[0-9]*: ' -e 'nvme[0-9]*n1')
[ -z "$others" ] || failed "more than the lost connection: $others"
dmesg -c > /tmp/messages
echo "passed: a guest that dies and comes back"
detach_volume
ended=1
order end
