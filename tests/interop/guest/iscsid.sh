# iscsid.sh: starts open-iscsi's daemon, with ib_iser as the transport of records, and interfaces of two names
. /checks/lib.sh
. /checks/iscsi_lib.sh
modprobe -a sd_mod ib_iser
mount -t tmpfs tmpfs /etc/iscsi
mkdir -p /run/lock/iscsi /etc/iscsi/ifaces
cp /etc/iscsid.conf /etc/iscsi/
echo "InitiatorName=$INITIATOR" >/etc/iscsi/initiatorname.iscsi
# iface NAME INITIATOR
iface() { printf 'iface.iscsi_ifacename = %s\niface.transport_name = iser\niface.initiatorname = %s\n' "$1" "$2" >"/etc/iscsi/ifaces/$1"; }
iface iser "$INITIATOR"
iface stranger "$INITIATOR:stranger"
iscsid
answers() { iscsiadm -m iface; }
wait_for 10 answers
check_text iscsid "^iser iser," iscsiadm -m iface
