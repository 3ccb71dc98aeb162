# intact.sh start ADDRESS NAMESPACE...: serves on the verbs device that has the address. A namespace is BYTES:BLOCK_SIZE:TYPE, a
#   volume in memory; type 0 is none. Numbered from 1. Parameters: SUBNQN, ALLOWED (the host NQN that may connect).
# intact.sh metric NAME: the sum of a metric's values, as `# NAME SUM`
# intact.sh ended STATUS REGEX: it ended by itself with that status, and its log has the regular expression
# intact.sh stop: it ends gently
. /checks/lib.sh
log=$WORK/intact.log
is_ready() { grep -q "^ready nvme rdma" $WORK/intact.out; }
has_ended() { [ -e $WORK/intact.status ]; }
metric() {
    # A metric's name ends at a brace or a blank.
    wget -q -O - http://127.0.0.1:9420/metrics | awk -v name="$1" \
        '{ split($1, part, "{"); if (part[1] == name || part[1] == name "_total") sum += $NF } END { print sum + 0 }'
}
case $1 in
    start)
        modprobe -a ib_uverbs rdma_ucm
        address=$2
        shift 2
        {
            printf '[device]\nprovider = "verbs"\naddress = "%s"\n[metrics]\naddress = "127.0.0.1:9420"\n' "$address"
            printf '[[nvme.subsystem]]\nnqn = "%s"\nhosts = ["%s"]\n' "$SUBNQN" "$ALLOWED"
            nsid=0
            for namespace in "$@"; do
                nsid=$((nsid + 1))
                echo "[[nvme.subsystem.namespace]]"
                echo "volume = \"n$nsid\""
            done
            nsid=0
            for namespace in "$@"; do
                nsid=$((nsid + 1))
                IFS=: read -r bytes block_size type <<END
$namespace
END
                printf '[[volume]]\nname = "n%s"\nmemory = %s\nblock_size = %s\n' $nsid "$bytes" "$block_size"
                [ "$type" = 0 ] || echo "protection = { type = $type }"
            done
        } >$WORK/intact.toml
        check intact_check /checks/intact check $WORK/intact.toml
        rm -f $WORK/intact.status
        (
            /checks/intact serve $WORK/intact.toml >$WORK/intact.out 2>$log &
            echo $! >$WORK/intact.pid
            wait $!
            echo $? >$WORK/intact.status
        ) </dev/null >/dev/null 2>&1 &
        wait_for 20 is_ready
        if is_ready; then ok intact_ready; else not_ok intact_ready "$(tail -n 4 $log)"; fi
        ;;
    metric) echo "# $2 $(metric "$2")" ;;
    ended)
        wait_for 20 has_ended
        check_equal intact_ended "$2" "$(cat $WORK/intact.status 2>&1)"
        check_text intact_said "$3" cat $log
        ;;
    stop)
        kill "$(cat $WORK/intact.pid)"
        wait_for 20 has_ended
        check_equal intact_ended 0 "$(cat $WORK/intact.status 2>&1)"
        # Nothing that was worth a warning happened.
        grep -E "WARN|ERROR" $log | sed 's/^/# /'
        ;;
esac
