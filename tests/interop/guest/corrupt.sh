# corrupt.sh fill NSID: makes and mounts a file system with a file to be damaged on the media, and one to be left alone
# corrupt.sh read: the damaged file gives an I/O error and no wrong byte; the other one reads
. /checks/lib.sh
damaged=/mnt/volume/damaged
case $1 in
    fill)
        mkfs.ext4 -q -F "$(block "$2")"
        mkdir -p /mnt/volume
        check corrupt_mount mount -t ext4 "$(block "$2")" /mnt/volume
        line=0
        while [ $line -lt 4096 ]; do
            printf 'marked line %08d of the file that is to be damaged\n' $line
            line=$((line + 1))
        done >$WORK/marked
        cp $WORK/marked $damaged
        random_file 1048576 $WORK/sound
        cp $WORK/sound /mnt/volume/sound
        check corrupt_sync sync
        ;;
    read)
        echo 3 >/proc/sys/vm/drop_caches
        if cat $damaged >$WORK/found 2>$WORK/error; then not_ok corrupt_io_error "the damaged file was read"
        elif grep -q "Input/output error" $WORK/error; then ok corrupt_io_error
        else not_ok corrupt_io_error "$(cat $WORK/error)"; fi
        # What was read before the error is right.
        head -c "$(stat -c %s $WORK/found)" $WORK/marked >$WORK/marked.head
        check corrupt_no_wrong_data cmp $WORK/marked.head $WORK/found
        check corrupt_other_file cmp $WORK/sound /mnt/volume/sound
        ;;
    healed)
        # Writing the file anew writes new blocks and tuples.
        check corrupt_rewrite sh -c "cp $WORK/marked $damaged && sync"
        echo 3 >/proc/sys/vm/drop_caches
        check corrupt_healed cmp $WORK/marked $damaged
        check corrupt_umount umount /mnt/volume
        ;;
esac
