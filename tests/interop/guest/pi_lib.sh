# What checks of protection information use: device, lba, count, bs, data and stream are the caller's variables.

# interleave FILE APP REF FLIP [STEP [GUARD_BITS]]
interleave() {
    hexdump -v -e '1/1 "%u\n"' "$1" |
        awk -v bs="$bs" -v app=$(($2)) -v ref=$(($3)) -v flip=$(($4)) -v step="${5:-1}" -v bits="${6:-16}" \
            -f /checks/interleave.awk | xxd -r -p
}
# put FILE PRINFO [ARG...] and take PRINFO [ARG...]: blocks from lba on; the size tells data from data and tuples
put() {
    put_file=$1 put_prinfo=$2
    shift 2
    nvme write "$device" -s "$lba" -c $((count - 1)) -z "$(stat -c %s "$put_file")" -d "$put_file" -p "$put_prinfo" "$@"
}
take() {
    take_prinfo=$1
    shift
    rm -f $WORK/pi.back
    size=$stream
    [ $((take_prinfo & 8)) -eq 0 ] || size=$data
    nvme read "$device" -s "$lba" -c $((count - 1)) -z $size -d $WORK/pi.back -p "$take_prinfo" "$@"
}
take_is() { take_want=$1; shift; take "$@" && cmp "$take_want" $WORK/pi.back; }
# moves_nothing NAME: after a failed read, nothing of the blocks reached the file
moves_nothing() { if [ -s $WORK/pi.back ]; then not_ok "$1" "the host got $(stat -c %s $WORK/pi.back) bytes"; else ok "$1"; fi; }
