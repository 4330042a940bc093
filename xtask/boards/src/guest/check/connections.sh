# Connections by the kernel's connection manager. `-V` compares the data.
for address in 192.0.2.1 2001:db8::1; do
    rping -s -C 10 -Vv -a $address > /tmp/server 2>&1 &
    sleep 1
    rping -c -C 10 -Vv -a $address > /tmp/client 2>&1 && wait $! || {
        cat /tmp/server /tmp/client
        failed "rping over $address failed"
    }
    [ "$(grep -c 'ping data: rdma-ping' /tmp/client)" = 10 ] || failed "rping over $address: $(cat /tmp/client)"
    echo "passed: rping over $address"
done
