# cli.sh NSID: nvme-cli's commands on a namespace without protection
. /checks/lib.sh
device=$(block "$1")
ctrl=/dev/$(controller)
sys=/sys/class/nvme/$(controller)
block_size=$(blockdev --getss "$device")
blocks=$(($(blockdev --getsize64 "$device") / block_size))

check_text cli_id_ctrl_subnqn "^subnqn *: $SUBNQN" nvme id-ctrl "$ctrl"
check_text cli_id_ctrl_serial "^sn *: $(sed 's/ *$//' "$sys/serial")" nvme id-ctrl "$ctrl"
check_text cli_id_ctrl_cntlid "^cntlid *: (0x)?$(printf %x "$(cat "$sys/cntlid")")" nvme id-ctrl "$ctrl"
check_text cli_id_ns "^nsze *: $(printf 0x%x "$blocks")$" nvme id-ns "$device"
check_text cli_list_ns "\[ *0\]:0x1" nvme list-ns "$ctrl"
check_text cli_ns_descs "uuid *: $(cat "/sys/block/${device##*/}/uuid")" nvme ns-descs "$device"
check_text cli_list "$device" nvme list
check_text cli_list_subsys "$SUBNQN" nvme list-subsys
check_text cli_smart_log "^critical_warning[[:space:]]*: 0$" nvme smart-log "$ctrl"
check_text cli_error_log "Error Log Entries" nvme error-log "$ctrl"
check_text cli_fw_log "Firmware Log" nvme fw-log "$ctrl"
check cli_effects_log nvme effects-log "$ctrl"
# nvme-cli 2.3 prints no table: the bytes say whether Identify (admin, 06h) and Read (I/O, 02h) are supported.
effects() { nvme get-log "$ctrl" -i 5 -l 4096 -b | tail -c +$(($1 + 1)) | head -c 1 | hexdump -e '1/1 "%u"'; }
check_equal cli_effects_identify 1 $(($(effects 24) & 1))
check_equal cli_effects_read 1 $(($(effects 1032) & 1))
check cli_changed_ns_list nvme changed-ns-list-log "$ctrl"

check_text cli_get_feature_queues "Current value: *(0x)?[0-9a-f]" nvme get-feature "$ctrl" -f 7
check cli_set_feature_events nvme set-feature "$ctrl" -f 0xb -v 0x100
check_text cli_get_feature_events "Current value: *(0x)?0*100" nvme get-feature "$ctrl" -f 0xb

check cli_flush nvme flush "$device" -n "$1"

random_file $((8 * block_size)) $WORK/eight
head -c $((8 * block_size)) /dev/zero >$WORK/zero
random_file $((8 * block_size)) $WORK/other
# nvme-cli does not shorten a file that is there.
read_eight() { rm -f $WORK/back; nvme read "$device" -s 80 -c 7 -z $((8 * block_size)) -d $WORK/back; }
write_eight() { nvme write "$device" -s 80 -c 7 -z $((8 * block_size)) -d "$1"; }
read_is() { read_eight && cmp "$1" $WORK/back; }
check cli_write write_eight $WORK/eight
check cli_read read_is $WORK/eight
check cli_write_zeroes nvme write-zeroes "$device" -s 80 -c 7
check cli_write_zeroes_reads_zero read_is $WORK/zero
write_eight $WORK/eight >/dev/null 2>&1
check cli_dsm nvme dsm "$device" -d -s 80 -b 8
# Deallocated blocks may read as zero or as they were, and each of them as a whole.
zero_or_as_before() { read_is $WORK/zero || read_is $WORK/eight; }
check cli_dsm_reads_whole zero_or_as_before
check cli_write_after_dsm write_eight $WORK/other
check cli_read_after_dsm read_is $WORK/other
check_status cli_unknown_command_refused 001 nvme io-passthru "$device" -o 0x7e -n "$1"
check_status cli_unknown_admin_command_refused 001 nvme admin-passthru "$ctrl" -o 0x7e
