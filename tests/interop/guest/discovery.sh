# discovery.sh: what a host finds, and what a stranger does not
. /checks/lib.sh
stranger=nqn.2014-08.org.nvmexpress:uuid:5740a6ee-0000-4000-8000-000000000000
stranger_id=5740a6ee-0000-4000-8000-000000000000

discover() { nvme discover -t rdma -a "$TRADDR" -s 4420 -q "$1" -I "$2"; }
kernel_says() { dmesg | grep -q "$1"; }

list=$(discover "$HOSTNQN" "$HOSTID" 2>&1)
case $TRADDR in *:*) family=ipv6 ;; *) family=ipv4 ;; esac
# has NAME LINE: the discovery log has a line, whatever its spaces
has() { if echo "$list" | tr -s ' ' | grep -Fqx "$2"; then ok "$1"; else not_ok "$1" "no '$2' in: $list"; fi; }
has discovery_subnqn "subnqn: $SUBNQN"
has discovery_trtype "trtype: rdma"
has discovery_adrfam "adrfam: $family"
has discovery_subtype "subtype: nvme subsystem"
has discovery_trsvcid "trsvcid: 4420"
has discovery_traddr "traddr: $TRADDR"

list=$(discover $stranger $stranger_id 2>&1)
if echo "$list" | grep -q "$SUBNQN"; then not_ok discovery_hides_from_stranger "$list"; else ok discovery_hides_from_stranger; fi

dmesg -c >/dev/null
if nvme connect -t rdma -a "$TRADDR" -s 4420 -n "$SUBNQN" -q $stranger -I $stranger_id >/tmp/refused 2>&1; then
    not_ok stranger_refused "connected"
elif kernel_says "is not allowed, hostnqn: $stranger"; then ok stranger_refused
else not_ok stranger_refused "$(dmesg | tail -n 3)"; fi

dmesg -c >/dev/null
if nvme connect -t rdma -a "$TRADDR" -s 4420 -n "$SUBNQN:nowhere" -q "$HOSTNQN" -I "$HOSTID" >/tmp/refused 2>&1; then
    not_ok unknown_subsystem_refused "connected"
elif kernel_says "Connect Invalid Data Parameter, subsysnqn"; then ok unknown_subsystem_refused
else not_ok unknown_subsystem_refused "$(dmesg | tail -n 3)"; fi
