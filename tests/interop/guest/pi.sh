# pi.sh DEVICE BLOCK_SIZE LBA: passthrough with protection information on a type 1 namespace with extended blocks.
# PRINFO's bits: 8 PRACT, 4 guard, 2 application tag, 1 reference tag.
. /checks/lib.sh
. /checks/pi_lib.sh
device=$1 bs=$2 lba=$3
# Two blocks show that reference tags step; more take long to make.
count=2
data=$((count * bs))
stream=$((count * (bs + 8)))
name=pi_$bs

tags="-r $lba -a 0x1234 -m 0xffff"

random_file $data $WORK/pi.data
random_file $data $WORK/pi.other
interleave $WORK/pi.data 0x1234 "$lba" 0 >$WORK/pi.good
interleave $WORK/pi.other 0x1234 "$lba" 0x0100 >$WORK/pi.guard
interleave $WORK/pi.other 0x4321 "$lba" 0 >$WORK/pi.app
interleave $WORK/pi.other 0x1234 $((lba + 1)) 0 >$WORK/pi.ref
interleave $WORK/pi.other 0xffff 0xdead 0x5555 >$WORK/pi.escape
head -c $stream /dev/zero | tr '\000' '\377' >$WORK/ones
check_equal ${name}_streams "$stream $stream" "$(stat -c %s $WORK/pi.good) $(stat -c %s $WORK/pi.escape)"

# A block that was never written reads as zeros, its tuple as ones, and passes every check.
rm -f $WORK/pi.unwritten
block=0
while [ $block -lt $count ]; do
    head -c "$bs" /dev/zero
    head -c 8 $WORK/ones
    block=$((block + 1))
done >$WORK/pi.unwritten
check ${name}_unwritten_checked take_is $WORK/pi.unwritten 7 $tags

# Right tuples pass each check alone and all together, both ways.
for prinfo in 0 1 2 4 7; do
    put $WORK/pi.app 0 >/dev/null 2>&1
    check ${name}_write_$prinfo put $WORK/pi.good $prinfo $tags
    check ${name}_read_$prinfo take_is $WORK/pi.good $prinfo $tags
done

# Wrong ones fail with the field's status and leave the media as it was.
put $WORK/pi.good 7 $tags >/dev/null 2>&1
check_status ${name}_write_bad_guard 282 put $WORK/pi.guard 4 $tags
check_status ${name}_write_bad_app 283 put $WORK/pi.app 2 $tags
check_status ${name}_write_bad_ref 284 put $WORK/pi.ref 1 $tags
check_status ${name}_write_ref_not_lba 181 put $WORK/pi.ref 1 -r $((lba + 1)) -a 0x1234 -m 0xffff
check ${name}_bad_writes_moved_nothing take_is $WORK/pi.good 7 $tags

# A field that is not checked may be wrong: it is stored as it came, and found by the next who asks.
check ${name}_write_unchecked_guard put $WORK/pi.guard 3 $tags
check ${name}_read_unchecked_guard take_is $WORK/pi.guard 3 $tags
check_status ${name}_read_bad_guard 282 take 4 $tags
moves_nothing ${name}_read_bad_guard_moved_nothing
check_status ${name}_read_bad_guard_pract 282 take 12 $tags
check ${name}_write_unchecked_app put $WORK/pi.app 5 $tags
check ${name}_read_unchecked_app take_is $WORK/pi.app 5 $tags
check_status ${name}_read_bad_app 283 take 2 $tags
check_status ${name}_read_bad_app_pract 283 take 10 $tags
check ${name}_write_unchecked_ref put $WORK/pi.ref 6 $tags
check ${name}_read_unchecked_ref take_is $WORK/pi.ref 6 $tags
check_status ${name}_read_bad_ref 284 take 1 $tags
check_status ${name}_read_bad_ref_pract 284 take 9 $tags

# The application tag's mask says which bits count.
put $WORK/pi.good 7 $tags >/dev/null 2>&1
check ${name}_read_app_masked take_is $WORK/pi.good 2 -r "$lba" -a 0x12ff -m 0xff00
check_status ${name}_read_app_masked_wrong 283 take 2 -r "$lba" -a 0x13ff -m 0xff00
check ${name}_read_app_mask_0 take_is $WORK/pi.good 2 -r "$lba" -a 0xabcd -m 0

# An application tag of ones switches all checks of the block off.
check ${name}_write_escape put $WORK/pi.escape 7 $tags
check ${name}_read_escape take_is $WORK/pi.escape 7 $tags

# With PRACT the controller makes the tuples, and takes them off again.
for prinfo in 8 15; do
    put $WORK/pi.escape 0 >/dev/null 2>&1
    check ${name}_write_pract_$prinfo put $WORK/pi.data $prinfo $tags
    check ${name}_write_pract_${prinfo}_tuples take_is $WORK/pi.good 0 $tags
    check ${name}_read_pract_$prinfo take_is $WORK/pi.data $prinfo $tags
done

# Write Zeroes with PRACT makes tuples as a write of zeros would.
head -c $data /dev/zero >$WORK/pi.zero
interleave $WORK/pi.zero 0x1234 "$lba" 0 >$WORK/pi.zeroes
check ${name}_zeroes nvme write-zeroes "$device" -s "$lba" -c $((count - 1)) -p 8 $tags
check ${name}_zeroes_checked take_is $WORK/pi.zeroes 7 $tags

# Compare takes blocks with their tuples; its checks come before the comparison.
put $WORK/pi.good 7 $tags >/dev/null 2>&1
interleave $WORK/pi.other 0x1234 "$lba" 0 >$WORK/pi.different
compare_with() { nvme compare "$device" -s "$lba" -c $((count - 1)) -z $stream -d "$1" -p 7 $tags; }
check ${name}_compare_equal compare_with $WORK/pi.good
check_status ${name}_compare_different 285 compare_with $WORK/pi.different
