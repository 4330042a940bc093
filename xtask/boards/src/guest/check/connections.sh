# Connections by the kernel's connection manager. `-V` compares the data. The pings judge `rping`, and not its
# status: Debian's ends with an error when its thread asks for an event after the main thread has closed the
# channel.
for address in 192.0.2.1 2001:db8::1; do
    rping -s -C 10 -Vv -a $address > /tmp/server 2>&1 &
    sleep 1
    rping -c -C 10 -Vv -a $address > /tmp/client 2>&1
    [ "$(grep -c 'ping data: rdma-ping' /tmp/client)" = 10 ] || {
        cat /tmp/server /tmp/client
        failed "rping over $address failed"
    }
    wait $!
    echo "passed: rping over $address"
done
