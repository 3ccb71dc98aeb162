# nvmet.sh DEVICE...: makes this guest a target with Linux's own nvmet-rdma.
# A device is a block device, or null:BYTES:BLOCK_SIZE, a RAM disk. Namespaces are numbered from 1.
# Parameters: SUBNQN, ALLOWED (the host NQN that may connect), ADDRESSES (what to listen on).
. /checks/lib.sh
set -e
modprobe -a nvmet nvmet-rdma
mount -t configfs configfs /sys/kernel/config 2>/dev/null || true
root=/sys/kernel/config/nvmet
subsystem=$root/subsystems/$SUBNQN
mkdir "$subsystem" "$root/hosts/$ALLOWED"
echo 0 >"$subsystem/attr_allow_any_host"
ln -s "$root/hosts/$ALLOWED" "$subsystem/allowed_hosts/"
nsid=0
for device in "$@"; do
    nsid=$((nsid + 1))
    case $device in
        null:*)
            modprobe null_blk nr_devices=0
            IFS=: read -r _ bytes block_size <<END
$device
END
            disk=/sys/kernel/config/nullb/disk$nsid
            mkdir "$disk"
            echo 1 >"$disk/memory_backed"
            echo "$block_size" >"$disk/blocksize"
            echo $((bytes / 1048576)) >"$disk/size"
            echo 1 >"$disk/discard"
            echo 1 >"$disk/power"
            # Named after its index, or after its folder in newer kernels.
            device=/dev/disk$nsid
            [ -b "$device" ] || device=/dev/nullb$(cat "$disk/index")
            ;;
    esac
    mkdir "$subsystem/namespaces/$nsid"
    printf %s "$device" >"$subsystem/namespaces/$nsid/device_path"
    echo "7715ac70-0000-4000-8000-00000000000$nsid" >"$subsystem/namespaces/$nsid/device_uuid"
    echo 1 >"$subsystem/namespaces/$nsid/enable"
done
port=0
for address in $ADDRESSES; do
    port=$((port + 1))
    mkdir "$root/ports/$port"
    case $address in *:*) echo ipv6 ;; *) echo ipv4 ;; esac >"$root/ports/$port/addr_adrfam"
    echo rdma >"$root/ports/$port/addr_trtype"
    echo "$address" >"$root/ports/$port/addr_traddr"
    echo 4420 >"$root/ports/$port/addr_trsvcid"
    ln -s "$subsystem" "$root/ports/$port/subsystems/"
done
ok nvmet
