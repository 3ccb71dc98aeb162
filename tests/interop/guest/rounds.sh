# rounds.sh COUNT QUEUES: connects, reads and disconnects
. /checks/lib.sh
round=0
failed=
while [ $round -lt "$1" ]; do
    round=$((round + 1))
    output=$(connect "$2" 2>&1) || { failed="round $round: connect: $output"; break; }
    wait_for 10 has_capacity 1 || { failed="round $round: no namespace"; break; }
    output=$(dd if="$(block 1)" of=/dev/null bs=64K count=1 iflag=direct 2>&1) || { failed="round $round: read: $output"; break; }
    output=$(nvme disconnect -n "$SUBNQN" 2>&1) || { failed="round $round: disconnect: $output"; break; }
done
if [ -z "$failed" ]; then ok rounds; else not_ok rounds "$failed"; fi
