# fio_wire.sh NSID BLOCK_SIZE METADATA GUARD_BITS: blocks that are damaged on their way to this host, behind the target's check: fio finds
# each field by itself. Over IPv4, with a path MTU of 4096.
. /checks/lib.sh
. /checks/fio_lib.sh
namespace "$@"
modprobe -a sch_ingress cls_u32 act_pedit
tc qdisc add dev eth0 clsact 2>/dev/null
lba=8

# damage OPCODE LENGTH OFFSET: in each packet of an opcode and with so much payload, five bytes from an offset in it on.
# These bits are CRC-32's polynomial, which RoCE's own checksum does not see.
damage() {
    headers=40
    # RDMA WRITE Only and First say where to; Last does not.
    [ "$1" = 8 ] || headers=56
    at=$((headers + $3)) edit=
    for bits in 0x41 0x06 0x71 0xdb 0x01; do
        edit="$edit munge offset $at u8 invert retain $bits"
        at=$((at + 1))
    done
    # shellcheck disable=SC2086 # a list of words
    tc filter add dev eth0 ingress protocol ip u32 match u16 $((headers + $2 + 4)) 0xffff at 2 match u8 "$1" 0xff at 28 action pedit $edit
}
damage_data() { if [ $block -le 4096 ]; then damage 10 $block 100; else damage 6 4096 100; fi; }
damage_tags() {
    tags=$((bs + guard_bits / 8))
    if [ $block -le 4096 ]; then damage 10 $block $tags; else damage 8 $((block - 4096)) $((tags - 4096)); fi
}
heal() { tc filter del dev eth0 ingress; }

ref=71db0108
[ "$guard_bits" = 16 ] || ref=71db01000008
check ${name}_wire_damage_data damage_data
fails ${name}_wire_guard "Guard compare error: LBA: $lba " one read $lba 0 $all
check ${name}_wire_guard_unasked one read $lba 0 REFTAG,APPTAG
heal
check ${name}_wire_damage_tags damage_tags
fails ${name}_wire_app "APPTAG compare error: LBA: $lba Expected=1234, Actual=5332" one read $lba 0 $all
fails ${name}_wire_ref "REFTAG compare error: LBA: $lba Expected=$lba, Actual=$ref" one read $lba 0 GUARD,REFTAG
check ${name}_wire_tags_unasked one read $lba 0 GUARD
heal
check ${name}_wire_sound one read $lba 0 $all
