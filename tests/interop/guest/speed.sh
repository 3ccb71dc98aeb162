# speed.sh ROUNDS SECONDS NAME=ADDRESS...: targets at these addresses take turns with random reads of namespace 1, of 4 KiB at
# depth 32 and of 128 KiB at depth 8. A line `# NAME BLOCK_SIZE IOPS` for each.
. /checks/lib.sh
rounds=$1 seconds=$2
shift 2
reads() {
    fio --name=reads --filename="$(block 1)" --direct=1 --ioengine=libaio --rw=randread --bs="$1" --iodepth="$2" --time_based \
        --runtime="$seconds" --ramp_time=1 --output-format=terse --terse-version=3 2>/dev/null | cut -d';' -f8
}
round=0
failed=
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    for target in "$@"; do
        TRADDR=${target#*=}
        output=$(connect 1 2>&1) || { failed="round $round: ${target%=*}: connect: $output"; break 2; }
        wait_for 10 has_capacity 1 || { failed="round $round: ${target%=*}: no namespace"; break 2; }
        echo "# ${target%=*} 4 $(reads 4k 32)"
        echo "# ${target%=*} 128 $(reads 128k 8)"
        nvme disconnect -n "$SUBNQN" >/dev/null 2>&1
    done
done
if [ -z "$failed" ]; then ok speed; else not_ok speed "$failed"; fi
