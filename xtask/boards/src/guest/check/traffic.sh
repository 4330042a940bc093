# Counters of packets. The network interface, the port and the device count the same packets.
# The commands name `/bin/ip`, because busybox has an `ip` of its own without counters and neighbours.
count() { ethtool -S "$interface" | sed -n "s/^ *$1: //p"; }
sent() { /bin/ip -s link show dev "$interface" | sed -n '/TX:/{n;s/^ *[0-9]* *\([0-9]*\).*/\1/p}'; }
neighbour=02:00:00:00:00:09
/bin/ip neighbour replace 192.0.2.9 lladdr $neighbour dev "$interface"
unicast=$(count tx_vport_unicast_packets)
bytes=$(count tx_vport_unicast_bytes)
broadcast=$(count tx_vport_broadcast_packets)
port_packets=$(count tx_packets_phy)
packets=$(sent)
# Three packets of 98 bytes to a neighbour that does not answer, and requests for the address of another.
ping -c 3 -s 56 -W 1 192.0.2.9 > /dev/null 2>&1
ping -c 1 -W 1 192.0.2.10 > /dev/null 2>&1
unicast=$(($(count tx_vport_unicast_packets) - unicast))
bytes=$(($(count tx_vport_unicast_bytes) - bytes))
broadcast=$(($(count tx_vport_broadcast_packets) - broadcast))
port_packets=$(($(count tx_packets_phy) - port_packets))
packets=$(($(sent) - packets))
[ "$unicast $bytes" = "3 294" ] || failed "$unicast unicast packets of $bytes bytes"
[ "$broadcast" -ge 1 ] || failed "no request for an address was counted"
[ "$packets" -ge $((unicast + broadcast)) ] || failed "ip -s link tells of $packets packets"
[ "$port_packets" -ge $((unicast + broadcast)) ] || failed "the port tells of $port_packets packets"
echo "passed: packets counted by ip -s link and ethtool -S"
