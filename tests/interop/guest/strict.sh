# strict.sh NSID: what Linux's own target lacks or lets the disk below decide: Compare, Verify, ranges, logs
. /checks/lib.sh
device=$(block "$1")
block_size=$(blockdev --getss "$device")
blocks=$(($(blockdev --getsize64 "$device") / block_size))
ctrl=/dev/$(controller)
random_file $((8 * block_size)) $WORK/eight
random_file $((8 * block_size)) $WORK/other
compare_with() { nvme compare "$device" -s 200 -c 7 -z $((8 * block_size)) -d "$1"; }
check compare_write nvme write "$device" -s 200 -c 7 -z $((8 * block_size)) -d $WORK/eight
check compare_equal compare_with $WORK/eight
check_status compare_different 285 compare_with $WORK/other
check_status compare_beyond_end 080 nvme compare "$device" -s "$blocks" -c 0 -z "$block_size" -d $WORK/eight
check verify nvme verify "$device" -s 200 -c 7
check_status read_beyond_end 080 nvme read "$device" -s "$blocks" -c 0 -z "$block_size" -d $WORK/back
check_status read_across_end 080 nvme read "$device" -s $((blocks - 1)) -c 1 -z $((2 * block_size)) -d $WORK/back
check_status write_beyond_end 080 nvme write "$device" -s "$blocks" -c 0 -z "$block_size" -d $WORK/eight
check_status write_zeroes_beyond_end 080 nvme write-zeroes "$device" -s "$blocks" -c 0
# The refused commands stand in the error log, the latest first.
check_text error_log_names_status "^status_field[[:space:]]*: *0x(4|6)?0?80" nvme error-log "$ctrl" -e 4
check_text supported_log_pages "." nvme get-log "$ctrl" -i 0 -l 1024
check_status unknown_log_refused 109 nvme get-log "$ctrl" -i 0x7f -l 512
check_status unknown_feature_refused 002 nvme get-feature "$ctrl" -f 0x7f -l 0
