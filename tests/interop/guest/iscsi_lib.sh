# What checks of iSER hosts use besides lib.sh: open-iscsi over ib_iser. Its records and names are in /etc/iscsi, a tmpfs.

case $TRADDR in *:*) portal="[$TRADDR]:3260" ;; *) portal=$TRADDR:3260 ;; esac
# discover IFACE: what the portal lists; records of it are kept
discover() { iscsiadm -m discovery -t sendtargets -p "$portal" -I "$1"; }
# node TARGET ARG...: iscsiadm on the record of a target
node() {
    node_target=$1
    shift
    iscsiadm -m node -T "$node_target" -p "$portal" "$@"
}
# set_node TARGET KEY VALUE...: settings of a record
set_node() {
    set_target=$1
    shift
    while [ $# -gt 0 ]; do
        node "$set_target" -o update -n "$1" -v "$2" || return
        shift 2
    done
}
# session: the one session, as session1
session() {
    for sys in /sys/class/iscsi_session/session*; do
        [ -e "$sys" ] && { basename "$sys"; return 0; }
    done
    return 1
}
session_state() { cat "/sys/class/iscsi_session/$(session)/state"; }
no_session() { ! session; }
