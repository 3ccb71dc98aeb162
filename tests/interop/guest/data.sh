# data.sh N|lunN BYTES...: writes of each size, compared with a model that includes the neighbours
. /checks/lib.sh
device=$(block "$1")
label=$(label "$1")
shift
model=$WORK/model
random_file 2621440 $model
check "data_${label}_fill" dd if=$model of="$device" bs=512K oflag=direct
for bytes in "$@"; do
    random_file "$bytes" $WORK/part
    # Not aligned to the transfer's own size, so that neighbours on both sides lie in the same pages of the device.
    at=$((bytes + 20480))
    dd if=$WORK/part of=$model bs="$bytes" count=1 seek=$at oflag=seek_bytes conv=notrunc 2>/dev/null
    written=$(dd if=$WORK/part of="$device" bs="$bytes" count=1 seek=$at oflag=direct,seek_bytes 2>&1) || { not_ok "data_${label}_$bytes" "$written"; continue; }
    dd if="$device" of=$WORK/back bs="$bytes" count=1 skip=$at iflag=direct,skip_bytes 2>/dev/null
    cmp $WORK/part $WORK/back || { not_ok "data_${label}_$bytes" "read back other data"; continue; }
    dd if="$device" of=$WORK/whole bs=512K count=5 iflag=direct 2>/dev/null
    check "data_${label}_$bytes" cmp $model $WORK/whole
done
