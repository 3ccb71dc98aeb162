# lio.sh LUN:BLOCK_SIZE:BYTES...: makes this guest a target with Linux's own LIO and ib_isert. Units are files in memory.
# Parameters: IQN, INITIATOR (who may log in, and another with :second behind its name), ADDRESSES (what to listen on), and CHAP_… for a second target with a unit of its
# own, whose name ends in :chap
. /checks/lib.sh
set -e
modprobe -a target_core_mod target_core_file iscsi_target_mod ib_isert
mount -t configfs configfs /sys/kernel/config 2>/dev/null || true
root=/sys/kernel/config/target
# It keeps registrations in a folder.
mkdir -p $root/iscsi $root/core/fileio_0 /var/target/pr
# disk NAME BLOCK_SIZE BYTES
disk() {
    truncate -s "$3" "$WORK/$1"
    mkdir $root/core/fileio_0/"$1"
    echo "fd_dev_name=$WORK/$1,fd_dev_size=$3" >$root/core/fileio_0/"$1"/control
    echo "$1" >$root/core/fileio_0/"$1"/wwn/vpd_unit_serial
    echo 1 >$root/core/fileio_0/"$1"/enable
    echo "$2" >$root/core/fileio_0/"$1"/attrib/block_size
    for attribute in emulate_tpu emulate_tpws emulate_write_cache; do echo 1 >$root/core/fileio_0/"$1"/attrib/$attribute; done
}
# target NAME: its portals and the host that may use it
target() {
    group=$root/iscsi/$1/tpgt_1
    mkdir -p "$group"
    for address in $ADDRESSES; do
        case $address in *:*) portal="[$address]:3260" ;; *) portal=$address:3260 ;; esac
        mkdir "$group/np/$portal"
        echo 1 >"$group/np/$portal/iser"
    done
    echo 0 >"$group/attrib/authentication"
    echo 0 >"$group/attrib/demo_mode_discovery"
    mkdir "$group/acls/$INITIATOR" "$group/acls/$INITIATOR:second"
}
# unit NUMBER DISK: in the group
unit() {
    mkdir "$group/lun/lun_$1"
    ln -s $root/core/fileio_0/"$2" "$group/lun/lun_$1/"
    for initiator in "$INITIATOR" "$INITIATOR:second"; do
        mkdir "$group/acls/$initiator/lun_$1"
        ln -s "$group/lun/lun_$1" "$group/acls/$initiator/lun_$1/"
    done
}
target "$IQN"
for lun in "$@"; do
    IFS=: read -r number block_size bytes <<END
$lun
END
    disk "disk$number" "$block_size" "$bytes"
    unit "$number" "disk$number"
done
echo 1 >"$group/enable"
target "$IQN:chap"
disk chap 512 1048576
unit 0 chap
echo 1 >"$group/attrib/authentication"
auth=$group/acls/$INITIATOR/auth
printf %s "$CHAP_HOST" >"$auth/userid"
printf %s "$CHAP_HOST_SECRET" >"$auth/password"
printf %s "$CHAP_TARGET" >"$auth/userid_mutual"
printf %s "$CHAP_TARGET_SECRET" >"$auth/password_mutual"
echo 1 >"$group/enable"
ok lio
