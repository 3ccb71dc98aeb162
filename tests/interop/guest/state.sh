# state.sh WANTED SECONDS: waits until the controller is in a state: live, connecting
. /checks/lib.sh
is_wanted() { [ "$(cat "/sys/class/nvme/$(controller)/state")" = "$wanted" ]; }
wanted=$1
wait_for "$2" is_wanted
check_equal "state_$1" "$1" "$(cat "/sys/class/nvme/$(controller)/state" 2>&1)"
