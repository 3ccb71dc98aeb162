# iscsi_discovery.sh: what a host finds by SendTargets, and what a stranger does not
. /checks/lib.sh
. /checks/iscsi_lib.sh
list=$(discover iser 2>&1)
# lists NAME TARGET: with its portal and group
lists() { if echo "$list" | grep -Fqx "$portal,1 $2"; then ok "$1"; else not_ok "$1" "no '$portal,1 $2' in: $list"; fi; }
lists iscsi_discovery "$IQN"
lists iscsi_discovery_chap "$IQN:chap"
list=$(discover stranger 2>&1)
if echo "$list" | grep -q "$IQN"; then not_ok iscsi_discovery_hides_from_stranger "$list"; else ok iscsi_discovery_hides_from_stranger; fi
iscsiadm -m node -T "$IQN" -p "$portal" -I stranger -o new >/dev/null 2>&1
check_fails iscsi_discovery_stranger_refused 24 "authorization failure" iscsiadm -m node -T "$IQN" -p "$portal" -I stranger --login
iscsiadm -m node -T "$IQN" -p "$portal" -I stranger -o delete >/dev/null 2>&1
