#!/bin/busybox sh
# First program of a guest, in the initramfs: mounts the root disk read-only, unpacks the checks, and hands over to agent.sh.
export PATH=/bin:/sbin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
modprobe -a virtio_pci virtio_blk crc32c_generic ext4
waited=0
while [ ! -b /dev/vda ] || [ ! -b /dev/vdb ]; do
    sleep 0.1
    waited=$((waited + 1))
    [ $waited -lt 100 ] || { echo "init: no disks vda and vdb"; poweroff -f; }
done
mount -t ext4 -o ro /dev/vda /root || { echo "init: cannot mount the root disk"; poweroff -f; }
for folder in tmp run var mnt checks; do mount -t tmpfs tmpfs "/root/$folder"; done
mount --move /dev /root/dev
mount --move /proc /root/proc
mount --move /sys /root/sys
tar -xf /root/dev/vdb -C /root/checks || { echo "init: cannot unpack the checks"; poweroff -f; }
exec switch_root /root /bin/sh /checks/agent.sh
