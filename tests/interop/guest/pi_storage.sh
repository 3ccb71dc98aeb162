# pi_storage.sh NSID BLOCK_SIZE LBA: a namespace with a guard of 16 bits and a storage tag of 8, type 1, by passthrough: Linux has
# no block I/O for such formats.
. /checks/lib.sh
. /checks/pi_lib.sh
nsid=$1 bs=$2 lba=$3
device=$(block "$nsid")
count=2
data=$((count * bs))
# The upper byte of the field is the storage tag.
field=$((0xa5 << 24 | lba))
other=$((0xa4 << 24 | lba))
# nvme-cli 2.3 finds every storage tag too large, although it shows the size: so commands are put together here.
# io OPCODE PRINFO STC FIELD ARG...: application tag 0x1234, all of it compared
io() {
    opcode=$1 cdw12=$((count - 1 | $2 << 26 | $3 << 24)) tag=$4
    shift 4
    nvme io-passthru "$device" -o "$opcode" -n "$nsid" --cdw10="$lba" --cdw12=$cdw12 --cdw14="$tag" --cdw15=$((0xffff1234)) "$@"
}
put() { put_file=$1; shift; io 1 "$@" -w -l "$(stat -c %s "$put_file")" -i "$put_file"; }
take_is() {
    take_want=$1
    shift
    io 2 "$@" -r -b -l "$(stat -c %s "$take_want")" >$WORK/pi.back && cmp "$take_want" $WORK/pi.back
}

random_file $data $WORK/pi.data
interleave $WORK/pi.data 0x1234 $field 0 >$WORK/pi.good
interleave $WORK/pi.data 0x1234 $other 0 >$WORK/pi.storage
interleave $WORK/pi.data 0x1234 $((field ^ 1 << 8)) 0 >$WORK/pi.ref
check_equal pi_storage_no_block_io 0 "$(blockdev --getsize64 "$device" 2>&1)"
check_text pi_storage_mask "^lbstm : 0xff$" nvme nvm-id-ns "$device"
check_text pi_storage_size "Format +0 : .*\(0\) - Storage Tag Size \(MSB\): 8 " nvme nvm-id-ns -v "$device"
check pi_storage_write put $WORK/pi.good 7 1 $field
check pi_storage_read take_is $WORK/pi.good 7 1 $field
check_status pi_storage_write_other_tag 288 put $WORK/pi.storage 7 1 $field
check_status pi_storage_read_other_tag 288 take_is $WORK/pi.good 7 1 $other
check pi_storage_read_unchecked take_is $WORK/pi.good 7 0 $other
check_status pi_storage_write_other_ref 284 put $WORK/pi.ref 7 1 $field
check pi_storage_write_pract put $WORK/pi.data 15 0 $field
check pi_storage_tuples take_is $WORK/pi.good 7 1 $field
check pi_storage_read_pract take_is $WORK/pi.data 15 1 $field
