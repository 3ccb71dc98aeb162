# What every check uses. Parameters arrive as environment variables:
#   TRADDR SUBNQN         where the target listens (port 4420), and the subsystem
#   HOSTNQN HOSTID        this host's identity, allowed on the subsystem
#   IQN INITIATOR         iSER: the target (port 3260), and this host's name, which it allows
# Output: `ok NAME`, `not ok NAME: why`, and `# remark`.

WORK=/tmp/work
mkdir -p $WORK

ok() { echo "ok $1"; }
not_ok() {
    not_ok_name=$1
    shift
    echo "not ok $not_ok_name: $(echo "$*" | tail -n 4 | tr '\n' '|')"
}

# check NAME COMMAND...: ok when the command succeeds
check() {
    check_name=$1
    shift
    if check_output=$("$@" 2>&1); then ok "$check_name"; else not_ok "$check_name" "status $?: $check_output"; fi
}

# check_text NAME REGEX COMMAND...: ok when the command succeeds and its output has the extended regular expression
check_text() {
    check_name=$1 check_regex=$2
    shift 2
    if ! check_output=$("$@" 2>&1); then not_ok "$check_name" "status $?: $check_output"
    elif echo "$check_output" | grep -Eq "$check_regex"; then ok "$check_name"
    else not_ok "$check_name" "no '$check_regex' in: $check_output"; fi
}

# check_status NAME CODE COMMAND...: ok when nvme-cli fails with NVMe status CODE (three hex digits: type and code)
check_status() {
    check_name=$1 check_code=$2
    shift 2
    if check_output=$("$@" 2>&1); then not_ok "$check_name" "succeeded instead of status 0x$check_code"
    # More and Do Not Retry stand above the type and code.
    elif echo "$check_output" | grep -Eiq "\(0x[4-7]?$check_code\)"; then ok "$check_name"
    else not_ok "$check_name" "no status 0x$check_code in: $check_output"; fi
}

# check_fails NAME CODES REGEX COMMAND...: ok when the command ends with that status, or one of those, and says so
check_fails() {
    check_name=$1 check_codes=$2 check_regex=$3
    shift 3
    check_ended=0
    check_output=$("$@" 2>&1) || check_ended=$?
    case " $check_codes " in
        *" $check_ended "*)
            if echo "$check_output" | grep -Eiq "$check_regex"; then ok "$check_name"
            else not_ok "$check_name" "no '$check_regex' in: $check_output"; fi
            ;;
        *) not_ok "$check_name" "status $check_ended instead of $check_codes: $check_output" ;;
    esac
}

# check_equal NAME EXPECTED ACTUAL
check_equal() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "expected '$2', got '$3'"; fi; }

# wait_for SECONDS COMMAND...: until the command succeeds
wait_for() {
    wait_tenths=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        wait_tenths=$((wait_tenths - 1))
        [ $wait_tenths -gt 0 ] || return 1
        sleep 0.1
    done
}

# The controller connected to SUBNQN, as nvme0
controller() {
    for sys in /sys/class/nvme/nvme*; do
        [ "$(cat "$sys/subsysnqn" 2>/dev/null)" = "$SUBNQN" ] && { basename "$sys"; return 0; }
    done
    return 1
}

# block N: the block device of a namespace. A multipath head has a node, its paths have none.
# block lunN: that of a logical unit
block() {
    case $1 in
        lun*)
            for sys in /sys/block/sd*; do
                # HOST:CHANNEL:TARGET:LUN
                case $(readlink -f "$sys/device") in */session*:"${1#lun}") [ -b "/dev/${sys##*/}" ] && { echo "/dev/${sys##*/}"; return 0; } ;; esac
            done
            return 1
            ;;
    esac
    for sys in /sys/block/nvme*; do
        [ "$(cat "$sys/nsid" 2>/dev/null)" = "$1" ] && [ -b "/dev/${sys##*/}" ] && { echo "/dev/${sys##*/}"; return 0; }
    done
    return 1
}

# label N|lunN: what names of checks have for it
label() { case $1 in lun*) echo "$1" ;; *) echo "n$1" ;; esac; }

is_live() { [ "$(cat "/sys/class/nvme/$(controller)/state")" = live ]; }

# has_capacity N|lunN: the block device is there, with room
has_capacity() { device=$(block "$1") && [ "$(blockdev --getsize64 "$device")" -gt 0 ]; }

# connect QUEUES ARG...
connect() {
    queues=$1
    shift
    nvme connect -t rdma -a "$TRADDR" -s 4420 -n "$SUBNQN" -q "$HOSTNQN" -I "$HOSTID" -i "$queues" "$@"
}

# random_file BYTES FILE
random_file() { head -c "$1" /dev/urandom >"$2"; }
