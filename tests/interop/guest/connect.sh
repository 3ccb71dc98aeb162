# connect.sh QUEUES NSID:BLOCK_SIZE:BYTES... [-- ARG...]: connects with nvme-cli, and looks at what the kernel made of it
. /checks/lib.sh
queues=$1
shift
namespaces=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    namespaces="$namespaces $1"
    shift
done
[ $# -gt 0 ] && shift
check connect connect "$queues" --reconnect-delay=1 --ctrl-loss-tmo=120 --keep-alive-tmo=5 "$@"
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
