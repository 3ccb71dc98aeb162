# load.sh start N|lunN WRITES IOPS: writes so many blocks of 8 KiB at random in the background, then reads them back and verifies
# load.sh running: it has not ended
# load.sh wait SECONDS WRITES: it ended well within the time, having written and read so many blocks
. /checks/lib.sh
case $1 in
    start)
        rm -f $WORK/load.*
        (
            fio --name=load --filename="$(block "$2")" --direct=1 --ioengine=libaio --iodepth=16 --rw=randwrite --bs=8k --io_size=$(($3 * 8))k \
                --rate_iops="$4" --verify=crc32c --verify_fatal=1 --do_verify=1 --output=$WORK/load.log >$WORK/load.err 2>&1
            echo $? >$WORK/load.status
        ) </dev/null >/dev/null 2>&1 &
        ok load_started
        ;;
    running)
        if [ -e $WORK/load.status ]; then not_ok load_running "ended with $(cat $WORK/load.status): $(tail -n 3 $WORK/load.err $WORK/load.log)"
        else ok load_running; fi
        ;;
    wait)
        wait_for "$2" test -e $WORK/load.status
        grep -E "READ:|WRITE:" $WORK/load.log | sed 's/^ */# /'
        writes=$(sed -n 's/.*issued rwts: total=[0-9]*,\([0-9]*\),.*/\1/p' $WORK/load.log)
        reads=$(sed -n 's/.*issued rwts: total=\([0-9]*\),.*/\1/p' $WORK/load.log)
        echo "# $writes writes, $reads reads"
        if [ ! -e $WORK/load.status ]; then not_ok load_verified "did not end"; dmesg | tail -n 20 >&2
        elif [ "$(cat $WORK/load.status)" != 0 ]; then not_ok load_verified "status $(cat $WORK/load.status): $(tail -n 3 $WORK/load.err $WORK/load.log)"
        elif [ "${writes:-0}" -lt "$3" ] || [ "${reads:-0}" -lt "$3" ]; then not_ok load_verified "only $writes writes and $reads reads"
        else ok load_verified; fi
        ;;
esac
