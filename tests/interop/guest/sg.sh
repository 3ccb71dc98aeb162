# sg.sh lunN LUNS [NAME...]: sg3-utils' commands on a unit without protection; the target has so many units, and lacks what is
# checked under these names
. /checks/lib.sh
device=$(block "$1")
units=$2
shift 2
lacks=" $* "
# unless_lacking CHECK NAME...: that check, but where the target lacks it
unless_lacking() { case $lacks in *" $2 "*) ;; *) "$@" ;; esac; }
bs=$(blockdev --getss "$device")
blocks=$(($(blockdev --getsize64 "$device") / bs))
last=$((blocks - 1))
# lba and length in hexadecimal bytes, as sg_raw takes them: hex WIDTH NUMBER
hex() { printf "%0$(($1 * 2))x" "$2" | sed 's/../& /g'; }
read_blocks() { dd if="$device" of=$WORK/sg.back bs="$bs" count="$2" skip="$1" iflag=direct 2>/dev/null; }
# holds LBA FILE: blocks are those of a file
holds() { read_blocks "$1" $(($(stat -c %s "$2") / bs)) && cmp "$2" $WORK/sg.back; }
# puts LBA FILE
puts() { dd if="$2" of="$device" bs="$bs" seek="$1" oflag=direct 2>/dev/null; }
random_file $((8 * bs)) $WORK/sg.eight
random_file $((8 * bs)) $WORK/sg.other
head -c $((8 * bs)) /dev/zero >$WORK/sg.zero
random_file "$bs" $WORK/sg.one

check_text sg_inq "Peripheral device type: disk" sg_inq "$device"
check_text sg_inq_version "SPC-[3-6]" sg_inq "$device"
check_text sg_vpd_supported "Device [iI]dentification" sg_vpd "$device"
check_text sg_vpd_serial "Unit serial number: ." sg_vpd -p sn "$device"
check_text sg_vpd_identification "designator type: NAA" sg_vpd -p di "$device"
check_text sg_vpd_ports "Target port descriptor|Target port" sg_vpd -p di_port "$device"
check_text sg_vpd_limits "Maximum compare and write length: [1-9]" sg_vpd -p bl "$device"
check_text sg_vpd_characteristics "rotation|RPM|Non-rotating" sg_vpd -p bdc "$device"
check_text sg_vpd_provisioning "Unmap command supported \(LBPU\): 1" sg_vpd -p lbpv "$device"
check_fails sg_vpd_unknown 5 "Invalid field in cdb" sg_raw -r 252 "$device" 12 01 7f 00 fc 00
check_text sg_readcap_10 "Last LBA=$last .*|Last logical block address=$last " sg_readcap "$device"
check_text sg_readcap_16 "Last (LBA|logical block address)=$last " sg_readcap --16 "$device"
check_text sg_readcap_block "Logical block length=$bs bytes" sg_readcap --16 "$device"
check_text sg_modes_caching "Caching" sg_modes -p 8 "$device"
check_text sg_modes_control "Control" sg_modes -p 0xa "$device"
check_text sg_modes_6 "Caching" sg_modes -6 -a "$device"
check_text sg_modes_changeable "page_code=0x8, page_control=1|[cC]hangeable" sg_modes -p 8 -c 1 "$device"
check_fails sg_modes_unknown 5 "" sg_modes -p 0x3d "$device"
check_equal sg_luns "$units" "$(sg_luns "$device" 2>/dev/null | grep -c '^ *[0-9a-f]\{16\}$')"
check sg_turs sg_turs -n 3 "$device"
check sg_requests sg_requests "$device"
check sg_sync sg_sync "$device"
unless_lacking check_text sg_opcodes "Read\(16\)" sg_opcodes "$device"
check_text sg_rtpg "active/optimized" sg_rtpg -d "$device"

key=0x1a2b3c4d
check sg_persist_register sg_persist --out --register --param-sark=$key "$device"
check_text sg_persist_keys "$key" sg_persist --in -k "$device"
check sg_persist_reserve sg_persist --out --reserve --param-rk=$key --prout-type=5 "$device"
check_text sg_persist_reservation "Write Exclusive, registrants only" sg_persist --in -r "$device"
check_text sg_persist_status "Reservation holder|[kK]ey=$key" sg_persist --in -s "$device"
check_text sg_persist_capabilities "Write Exclusive" sg_persist --in -c "$device"
check sg_persist_write puts 40 $WORK/sg.eight
check_fails sg_persist_wrong_key 24 "conflict" sg_persist --out --release --param-rk=0x99 --prout-type=5 "$device"
check sg_persist_release sg_persist --out --release --param-rk=$key --prout-type=5 "$device"
check_text sg_persist_released "NO reservation held" sg_persist --in -r "$device"
check sg_persist_clear sg_persist --out --clear --param-rk=$key "$device"
check_text sg_persist_cleared "0 registered|NO registered|there are NO" sg_persist --in -k "$device"

check sg_write_same_10 sg_write_same --10 --lba=100 --num=8 --in=$WORK/sg.one --xferlen="$bs" "$device"
for _ in 1 2 3 4 5 6 7 8; do cat $WORK/sg.one; done >$WORK/sg.same
check sg_write_same_10_data holds 100 $WORK/sg.same
puts 100 $WORK/sg.eight
check sg_write_same_16 sg_write_same --16 --lba=100 --num=8 --in=$WORK/sg.one --xferlen="$bs" "$device"
check sg_write_same_16_data holds 100 $WORK/sg.same
check sg_write_same_unmap sg_write_same --16 --unmap --lba=100 --num=8 --xferlen="$bs" "$device"
check sg_write_same_unmap_data holds 100 $WORK/sg.zero
puts 200 $WORK/sg.eight
check sg_unmap sg_unmap --force --lba=200 --num=8 "$device"
check sg_unmap_data holds 200 $WORK/sg.zero
check_fails sg_unmap_beyond_end 22 "out of range" sg_unmap --force --lba="$blocks" --num=8 "$device"

puts 300 $WORK/sg.eight
head -c "$bs" $WORK/sg.eight >$WORK/sg.compare
cat $WORK/sg.compare $WORK/sg.one >$WORK/sg.pair
caw() { sg_compare_and_write --in="$1" --lba=300 --num=1 --xferlen=$((2 * bs)) "$device"; }
check sg_compare_and_write caw $WORK/sg.pair
check sg_compare_and_write_data holds 300 $WORK/sg.one
check_fails sg_compare_and_write_differs 14 "miscompare" caw $WORK/sg.pair
check sg_compare_and_write_kept holds 300 $WORK/sg.one

puts 400 $WORK/sg.eight
check sg_verify sg_verify --lba=400 --count=8 "$device"
check sg_verify_16 sg_verify --16 --lba=400 --count=8 "$device"
check sg_verify_bytes sg_verify --lba=400 --count=8 --ndo=$((8 * bs)) --in=$WORK/sg.eight "$device"
unless_lacking check_fails sg_verify_differs 14 "miscompare" sg_verify --lba=400 --count=8 --ndo=$((8 * bs)) --in=$WORK/sg.other "$device"

# Each length of CDB, with FUA where it has that.
# shellcheck disable=SC2046 # words of a CDB
raw_writes() { sg_raw -s $((8 * bs)) -i $WORK/sg.eight "$device" "$@"; }
# shellcheck disable=SC2046
check sg_raw_write_6 raw_writes 0a $(hex 3 500) 08 00
check sg_raw_write_6_data holds 500 $WORK/sg.eight
check sg_raw_write_10_fua raw_writes 2a 08 $(hex 4 510) 00 $(hex 2 8) 00
check sg_raw_write_10_data holds 510 $WORK/sg.eight
check sg_raw_write_12_fua raw_writes aa 08 $(hex 4 520) $(hex 4 8) 00 00
check sg_raw_write_12_data holds 520 $WORK/sg.eight
check sg_raw_write_16_fua raw_writes 8a 08 $(hex 8 530) $(hex 4 8) 00 00
check sg_raw_write_16_data holds 530 $WORK/sg.eight
check sg_raw_write_verify raw_writes 2e 02 $(hex 4 540) 00 $(hex 2 8) 00
check sg_raw_write_verify_data holds 540 $WORK/sg.eight
# More is asked for than the command has: the rest stays as it was.
short_read() { rm -f $WORK/sg.back; sg_raw -r $((8 * bs)) -o $WORK/sg.back "$device" 28 00 $(hex 4 530) 00 $(hex 2 3) 00; }
check_text sg_raw_residual "Writing $((3 * bs)) bytes" short_read
head -c $((3 * bs)) $WORK/sg.eight >$WORK/sg.three
check sg_raw_residual_data cmp $WORK/sg.three $WORK/sg.back
check_fails sg_raw_beyond_end 22 "Logical block address out of range" sg_raw -r "$bs" "$device" 28 00 $(hex 4 "$blocks") 00 00 01 00
check_fails sg_raw_across_end 22 "Logical block address out of range" sg_raw -r $((2 * bs)) "$device" 88 00 $(hex 8 "$last") 00 00 00 02 00 00
check_fails sg_raw_unknown_command 9 "Invalid command operation code" sg_raw "$device" ef 00 00 00 00 00
check_fails sg_raw_reserved_bit 5 "Invalid field in cdb" sg_raw -r "$bs" "$device" 28 e4 00 00 00 00 00 00 01 00
