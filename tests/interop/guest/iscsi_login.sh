# iscsi_login.sh LUN:BLOCK_SIZE:BYTES... [-- KEY VALUE...]: finds the target, logs in, and looks at what the kernel made of it
. /checks/lib.sh
. /checks/iscsi_lib.sh
luns=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    luns="$luns $1"
    shift
done
[ $# -gt 0 ] && shift
node "$IQN" >/dev/null 2>&1 || discover iser >/dev/null 2>&1
# A host that is slow, as emulated ones are, is no dead one.
set_node "$IQN" "node.conn[0].timeo.noop_out_timeout" 10 "$@"
check iscsi_login node "$IQN" --login
check_equal iscsi_logged_in LOGGED_IN "$(session_state 2>&1)"
check_equal iscsi_transport iser "$(iscsiadm -m session 2>&1 | cut -d: -f1)"
for lun in $luns; do
    IFS=: read -r number block_size bytes <<END
$lun
END
    wait_for 10 has_capacity "lun$number"
    device=$(block "lun$number")
    check_equal "iscsi_lun${number}_block_size" "$block_size" "$(blockdev --getss "$device" 2>&1)"
    check_equal "iscsi_lun${number}_capacity" "$bytes" "$(blockdev --getsize64 "$device" 2>&1)"
done
