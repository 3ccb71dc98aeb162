# fio_pi.sh NSID BLOCK_SIZE METADATA GUARD_BITS: fio makes and checks tuples (PRACT=0), then has the target do both (PRACT=1); what one
# made, the other finds right.
. /checks/lib.sh
. /checks/pi_lib.sh
. /checks/fio_lib.sh
namespace "$@"
blocks=1024
whole="--size=$((blocks * block))"
split() { echo "--bssplit=$1/30:$(($1 * 4))/40:$(($1 * 16))/30"; }

# The flags stand in the commands, so that the target checks each block, too.
check ${name}_fill pi 0 $all $whole --rw=write --bs=$((4 * block))
check_equal ${name}_filled "0 $((blocks / 4))" "$(issued)"
check ${name}_mix pi 0 $all $whole --rw=randrw "$(split $block)"
check_mixed ${name}_mixed
check ${name}_read pi 0 $all $whole --rw=read --bs=$((4 * block))
check_equal ${name}_read_all "$((blocks / 4)) 0" "$(issued)"

# Another host's program has the target check what is stored; a third implementation makes the same tuples of the data.
lba=$((blocks / 2)) count=2
stream=$((count * block))
check ${name}_stored take 7 -r $lba -a 0x1234 -m 0xffff
number=0
while [ $number -lt $count ]; do
    dd if=$WORK/pi.back bs=$block skip=$number count=1 2>/dev/null | head -c $bs
    number=$((number + 1))
done >$WORK/pi.data
interleave $WORK/pi.data 0x1234 $lba 0 1 "$guard_bits" >$WORK/pi.good
check ${name}_stored_tuples cmp $WORK/pi.good $WORK/pi.back

# An application tag that isn't the one stored: the target refuses. Its mask says which bits count, to both.
refused ${name}_other_app 83 one read $lba 0 $all --apptag=0x4321
check ${name}_app_masked one read $lba 0 $all --apptag=0x12ff --apptag_mask=0xff00
refused ${name}_app_masked_wrong 83 one read $lba 0 $all --apptag=0x13ff --apptag_mask=0xff00

# Not asked for guards, fio makes none: so it made the others.
check ${name}_no_guard_write one write $lba 0 REFTAG,APPTAG
check ${name}_no_guard_unasked one read $lba 0 REFTAG,APPTAG
refused ${name}_no_guard_found 82 one read $lba 0 $all

if [ "$metadata" = $tuple ]; then
    check ${name}_pract pi 1 $all --size=$((blocks * block_size)) --rw=randrw "$(split "$block_size")" --verify=crc32c --verify_fatal=1
else
    # The metadata travels with the data, and fio verifies no data with tuples in it.
    check ${name}_pract pi 1 $all $whole --rw=randrw "$(split $block)"
fi
check_mixed ${name}_pract_mixed
check ${name}_pract_heal one write $lba 1 $all
check ${name}_pract_tuples pi 0 $all $whole --rw=read --bs=$((4 * block))
check_equal ${name}_pract_tuples_all "$((blocks / 4)) 0" "$(issued)"
