# disconnect.sh: and nothing is left of the controller
. /checks/lib.sh
check_text disconnect "disconnected 1 controller" nvme disconnect -n "$SUBNQN"
if controller >/dev/null; then not_ok disconnect_gone "$(controller) is still there"; else ok disconnect_gone; fi
