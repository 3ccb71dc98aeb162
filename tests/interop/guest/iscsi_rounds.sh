# iscsi_rounds.sh COUNT: logs in, reads and logs out
. /checks/lib.sh
. /checks/iscsi_lib.sh
node "$IQN" >/dev/null 2>&1 || discover iser >/dev/null 2>&1
round=0
failed=
while [ $round -lt "$1" ]; do
    round=$((round + 1))
    output=$(node "$IQN" --login 2>&1) || { failed="round $round: login: $output"; break; }
    wait_for 10 has_capacity lun0 || { failed="round $round: no unit"; break; }
    output=$(dd if="$(block lun0)" of=/dev/null bs=64K count=1 iflag=direct 2>&1) || { failed="round $round: read: $output"; break; }
    output=$(node "$IQN" --logout 2>&1) || { failed="round $round: logout: $output"; break; }
    wait_for 10 no_session || { failed="round $round: the session stays"; break; }
done
if [ -z "$failed" ]; then ok iscsi_rounds; else not_ok iscsi_rounds "$failed"; fi
