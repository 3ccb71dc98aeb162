# iscsi_chap.sh: CHAP in one direction and in both, right and wrong, by the target whose name ends in :chap
# Parameters: what the host and the target prove themselves with, as CHAP_HOST CHAP_HOST_SECRET CHAP_TARGET CHAP_TARGET_SECRET
. /checks/lib.sh
. /checks/iscsi_lib.sh
target=$IQN:chap
# auth METHOD NAME SECRET NAME_OF_TARGET SECRET_OF_TARGET
auth() {
    set_node "$target" node.session.auth.authmethod "$1" node.session.auth.username "$2" node.session.auth.password "$3" \
        node.session.auth.username_in "$4" node.session.auth.password_in "$5"
}
# enters NAME: login, a read, logout
enters() {
    check "$1" node "$target" --login
    wait_for 10 has_capacity lun0
    check "$1_read" dd if="$(block lun0)" of=/dev/null bs=4K count=4 iflag=direct
    check "$1_logout" node "$target" --logout
    wait_for 10 no_session
}
# Authorization failed (24), or the connection was closed before the host had read that (8, 11); LIO says something else of a name that
# it does not know (5); the host itself gives up (19).
refused() { check_fails "$1" "$2" "login" node "$target" --login; }
set_node "$target" node.session.initial_login_retry_max 1
refused chap_none_refused "24 8 11"
auth CHAP "$CHAP_HOST" "$CHAP_HOST_SECRET" "" ""
enters chap_one_way
auth CHAP "$CHAP_HOST" "$CHAP_HOST_SECRET" "$CHAP_TARGET" "$CHAP_TARGET_SECRET"
enters chap_mutual
auth CHAP "$CHAP_HOST" "wrong$CHAP_HOST_SECRET" "" ""
refused chap_wrong_secret_refused "24 8 11"
auth CHAP "wrong$CHAP_HOST" "$CHAP_HOST_SECRET" "" ""
refused chap_wrong_name_refused "24 5 8 11"
auth CHAP "$CHAP_HOST" "$CHAP_HOST_SECRET" "$CHAP_TARGET" "wrong$CHAP_TARGET_SECRET"
refused chap_wrong_target_secret_refused 19
