# reset.sh NSID: the host resets the controller; data and queues are as before
. /checks/lib.sh
ctrl=$(controller)
device=$(block "$1")
queues=$(cat "/sys/class/nvme/$ctrl/queue_count")
random_file 262144 $WORK/before
dd if=$WORK/before of="$device" bs=256K oflag=direct 2>/dev/null
check reset nvme reset "/dev/$ctrl"
wait_for 10 is_live
check_equal reset_live live "$(cat "/sys/class/nvme/$ctrl/state")"
check_equal reset_queue_count "$queues" "$(cat "/sys/class/nvme/$ctrl/queue_count")"
dd if="$device" of=$WORK/after bs=256K count=1 iflag=direct 2>/dev/null
check reset_data cmp $WORK/before $WORK/after
