# fs.sh NSID: a file system is made, filled, checked and read again
. /checks/lib.sh
device=$(block "$1")
tree=$WORK/tree
if [ ! -d $tree ]; then
    mkdir -p $tree/small $tree/deep/a/b/c/d
    cp /usr/bin/nvme /usr/bin/e2fsck /usr/bin/ip /bin/busybox $tree/
    cp /checks/* $tree/deep/a/b/c/d/
    number=0
    while [ $number -lt 100 ]; do
        number=$((number + 1))
        random_file $((number * 97)) $tree/small/$number
    done
    ln -s ../small/1 $tree/deep/link
    truncate -s 3M $tree/hole
    (cd $tree && find . -type f -exec sha256sum {} + | sort) >$WORK/tree.sums
fi
check "fs_n$1_mkfs" mkfs.ext4 -q -F "$device"
mkdir -p /mnt/volume
check "fs_n$1_mount" mount -t ext4 "$device" /mnt/volume
check "fs_n$1_copy" cp -a $tree /mnt/volume/
check "fs_n$1_umount" umount /mnt/volume
check "fs_n$1_fsck" e2fsck -f -n "$device"
check "fs_n$1_remount" mount -t ext4 "$device" /mnt/volume
(cd /mnt/volume/tree && find . -type f -exec sha256sum {} + | sort) >$WORK/tree.found
check "fs_n$1_compare" cmp $WORK/tree.sums $WORK/tree.found
check_equal "fs_n$1_link" ../small/1 "$(readlink /mnt/volume/tree/deep/link)"
check "fs_n$1_final_umount" umount /mnt/volume
