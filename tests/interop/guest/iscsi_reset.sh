# iscsi_reset.sh LUN: task management while a load runs: resets of the unit and of the target, which abort commands
. /checks/lib.sh
device=$(block "$1")
for kind in device target; do
    round=0
    failed=
    while [ $round -lt 3 ]; do
        round=$((round + 1))
        output=$(sg_reset --no-escalate --$kind "$device" 2>&1) || { failed="round $round: $output"; break; }
    done
    if [ -z "$failed" ]; then ok "iscsi_reset_$kind"; else not_ok "iscsi_reset_$kind" "$failed"; fi
done
