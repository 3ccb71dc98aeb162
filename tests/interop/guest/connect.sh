# connect.sh [-r] QUEUES NSID:BLOCK_SIZE:BYTES... [-- ARG...]: connects with nvme-cli, and looks at what the kernel made of it
# -r: this host was restarted, and may meet connections of its former life. A target refuses those as stale and ends them, so
#     it tries again, for a few seconds.
. /checks/lib.sh
tries=1
if [ "$1" = -r ]; then
    tries=5
    shift
fi
queues=$1
shift
namespaces=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    namespaces="$namespaces $1"
    shift
done
[ $# -gt 0 ] && shift
# connect_soon ARG...: as connect; again when it was refused as stale
connect_soon() {
    while ! connect "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] && dmesg | tail -n 3 | grep -q 'status 10 (stale conn)' || return 1
        sleep 1
    done
}
check connect connect_soon "$queues" --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5 "$@"
wait_for 15 is_live
sys=/sys/class/nvme/$(controller)
check_equal connect_live live "$(cat "$sys/state")"
# The admin queue counts too.
check_equal connect_queue_count $((queues + 1)) "$(cat "$sys/queue_count")"
for namespace in $namespaces; do
    IFS=: read -r nsid block_size bytes <<END
$namespace
END
    wait_for 10 has_capacity "$nsid"
    device=$(block "$nsid")
    check_equal "connect_n${nsid}_block_size" "$block_size" "$(blockdev --getss "$device" 2>&1)"
    check_equal "connect_n${nsid}_capacity" "$bytes" "$(blockdev --getsize64 "$device" 2>&1)"
done
