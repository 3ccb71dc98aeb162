# data.sh NSID: writes of 4 KiB to 1 MiB, compared with a model that includes the neighbours
. /checks/lib.sh
device=$(block "$1")
model=$WORK/model
random_file 2621440 $model
check "data_n$1_fill" dd if=$model of="$device" bs=512K oflag=direct
for kib in 4 8 12 32 64 128 256 512 1024; do
    random_file $((kib * 1024)) $WORK/part
    # Not aligned to the transfer's own size, so that neighbours on both sides lie in the same pages of the device.
    at=$((kib + 20))
    dd if=$WORK/part of=$model bs=4K seek=$((at / 4)) conv=notrunc 2>/dev/null
    written=$(dd if=$WORK/part of="$device" bs=${kib}K count=1 seek=$((at * 1024)) oflag=direct,seek_bytes 2>&1) || { not_ok "data_n$1_${kib}KiB" "$written"; continue; }
    dd if="$device" of=$WORK/back bs=${kib}K count=1 skip=$((at * 1024)) iflag=direct,skip_bytes 2>/dev/null
    cmp $WORK/part $WORK/back || { not_ok "data_n$1_${kib}KiB" "read back other data"; continue; }
    dd if="$device" of=$WORK/whole bs=512K count=5 iflag=direct 2>/dev/null
    check "data_n$1_${kib}KiB" cmp $model $WORK/whole
done
