# fs.sh N|lunN: a file system is made, filled, checked and read again
. /checks/lib.sh
device=$(block "$1")
label=$(label "$1")
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
check "fs_${label}_mkfs" mkfs.ext4 -q -F "$device"
mkdir -p /mnt/volume
check "fs_${label}_mount" mount -t ext4 "$device" /mnt/volume
check "fs_${label}_copy" cp -a $tree /mnt/volume/
check "fs_${label}_umount" umount /mnt/volume
check "fs_${label}_fsck" e2fsck -f -n "$device"
check "fs_${label}_remount" mount -t ext4 "$device" /mnt/volume
(cd /mnt/volume/tree && find . -type f -exec sha256sum {} + | sort) >$WORK/tree.found
check "fs_${label}_compare" cmp $WORK/tree.sums $WORK/tree.found
check_equal "fs_${label}_link" ../small/1 "$(readlink /mnt/volume/tree/deep/link)"
check "fs_${label}_final_umount" umount /mnt/volume
