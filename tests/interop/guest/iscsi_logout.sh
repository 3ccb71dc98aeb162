# iscsi_logout.sh: and nothing is left of the session
. /checks/lib.sh
. /checks/iscsi_lib.sh
check iscsi_logout node "$IQN" --logout
wait_for 10 no_session
if no_session; then ok iscsi_logout_gone; else not_ok iscsi_logout_gone "$(session) is still there"; fi
