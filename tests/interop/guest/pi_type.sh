# pi_type.sh NSID BLOCK_SIZE TYPE LBA: what is different with protection of types 2 and 3, by passthrough. Type 2 counts from any
# reference tag; type 3 has the same one in each block, and checks none.
. /checks/lib.sh
. /checks/pi_lib.sh
device=$(block "$1") bs=$2 type=$3 lba=$4
count=2
data=$((count * bs))
stream=$((count * (bs + 8)))
name=pi_type_$type
# A number that is not the block's.
ref=0x89ab0000
step=1
[ "$type" = 2 ] || step=0
tags="-r $ref -a 0x1234 -m 0xffff"

random_file $data $WORK/pi.data
interleave $WORK/pi.data 0x1234 $ref 0 $step >$WORK/pi.good
interleave $WORK/pi.data 0x1234 $ref 0x0100 $step >$WORK/pi.guard
interleave $WORK/pi.data 0x4321 $ref 0 $step >$WORK/pi.app
interleave $WORK/pi.data 0x1234 0x1234 0 $step >$WORK/pi.ref
interleave $WORK/pi.data 0xffff 0xdead 0x5555 $step >$WORK/pi.app_ones
interleave $WORK/pi.data 0xffff 0xffffffff 0x5555 0 >$WORK/pi.all_ones

# The type, as Identify says it.
check_text ${name}_identify "^dps *: (0x)?$type$" nvme id-ns "$device"
check ${name}_unwritten take 7 $tags
check ${name}_write put $WORK/pi.good 7 $tags
check ${name}_read take_is $WORK/pi.good 7 $tags
check_status ${name}_write_bad_guard 282 put $WORK/pi.guard 7 $tags
check_status ${name}_write_bad_app 283 put $WORK/pi.app 7 $tags
check ${name}_bad_writes_moved_nothing take_is $WORK/pi.good 7 $tags
if [ "$type" = 2 ]; then
    check_status ${name}_write_other_ref 284 put $WORK/pi.ref 7 $tags
    put $WORK/pi.ref 0 >/dev/null 2>&1
    check_status ${name}_read_other_ref 284 take 7 $tags
    check_status ${name}_read_other_ref_pract 284 take 15 $tags
else
    check ${name}_write_other_ref put $WORK/pi.ref 7 $tags
    check ${name}_read_other_ref take_is $WORK/pi.ref 7 $tags
    check ${name}_read_other_ref_pract take_is $WORK/pi.data 15 $tags
fi
put $WORK/pi.guard 0 >/dev/null 2>&1
check_status ${name}_read_bad_guard 282 take 7 $tags
# What takes a block out of all checks: with type 3 the reference tag has to be ones, too.
if [ "$type" = 2 ]; then check ${name}_app_ones put $WORK/pi.app_ones 7 $tags
else check_status ${name}_app_ones 282 put $WORK/pi.app_ones 7 $tags; fi
check ${name}_all_ones put $WORK/pi.all_ones 7 $tags
check ${name}_all_ones_read take_is $WORK/pi.all_ones 7 $tags
check ${name}_pract put $WORK/pi.data 15 $tags
check ${name}_pract_tuples take_is $WORK/pi.good 7 $tags
check ${name}_pract_read take_is $WORK/pi.data 15 $tags
head -c $data /dev/zero >$WORK/pi.zero
interleave $WORK/pi.zero 0x1234 $ref 0 $step >$WORK/pi.zeroes
check ${name}_zeroes nvme write-zeroes "$device" -s "$lba" -c $((count - 1)) -p 8 $tags
check ${name}_zeroes_checked take_is $WORK/pi.zeroes 7 $tags
compare_with() { nvme compare "$device" -s "$lba" -c $((count - 1)) -z $stream -d "$1" -p 7 $tags; }
check ${name}_compare compare_with $WORK/pi.zeroes
check_status ${name}_compare_different 285 compare_with $WORK/pi.good
check ${name}_verify nvme verify "$device" -s "$lba" -c $((count - 1)) -p 7 $tags
