# Functions for the second of two guests, which has the first one carry out orders.
# Sends a line to the other guest, which may still be booting.
send() {
    for try in $(seq 60); do
        echo "$*" | timeout 5 nc 192.0.2.1 7000 2> /dev/null && sleep 1 && return
        sleep 1
    done
    echo "the other guest takes no order"
}
# Has the other guest carry out a line, and returns after the line: the guest takes its next line only then.
# After its last line it takes none.
order() {
    send "$*"
    case $* in end | die) ;; *) send true ;; esac
}
failed() {
    echo "$*"
    dmesg | tail -n 20
    [ -n "$ended" ] || order end
    exit 1
}
# Has the other guest carry out a line in a shell of its own, and prints its output.
answer() {
    listen 7002 > /tmp/answer &
    order "($*) 2>&1 | nc 192.0.2.2 7002"
    wait $!
    cat /tmp/answer
}
