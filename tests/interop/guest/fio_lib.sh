# What checks with fio's own protection information use: /opt/fio's engine for passthrough to a namespace of type 1 with extended
# blocks. It makes and checks tuples itself with PRACT=0, and asks the target for what it checks: one set of flags says both.

# namespace NSID BLOCK_SIZE METADATA GUARD_BITS: sets name, device, nsid, block_size, metadata (its bytes), guard_bits, tuple (its
# bytes), block (all bytes of a block), and bs (those that the guard covers)
namespace() {
    nsid=$1 block_size=$2 metadata=$3 guard_bits=$4
    tuple=8
    [ "$guard_bits" = 16 ] || tuple=16
    block=$((block_size + metadata))
    bs=$((block - tuple))
    name=fio_n$nsid
    wait_for 10 block "$nsid"
    device=$(block "$nsid" | sed s,/nvme,/ng,)
}

all=GUARD,REFTAG,APPTAG

# pi PRACT CHECKS ARG...: fio on the namespace
pi() {
    pract=$1 checks=$2
    shift 2
    /opt/fio/lib/ld-linux-x86-64.so.2 --library-path /opt/fio/lib /opt/fio/bin/fio --name=pi --filename="$device" --thread \
        --ioengine=io_uring_cmd --cmd_type=nvme --iodepth=16 --pi_act="$pract" --pi_chk="$checks" --output=$WORK/fio.log "$@"
}
# one RW LBA PRACT CHECKS ARG...: the same for one block
one() {
    one_rw=$1 one_lba=$2 one_block=$block
    shift 2
    # What is its metadata and no more stays with the target.
    [ "$1$metadata" != "1$tuple" ] || one_block=$block_size
    pi "$@" --rw="$one_rw" --bs=$one_block --offset=$((one_lba * one_block)) --size=$one_block
}

# issued: how many reads and writes that was
issued() { sed -n 's/.*issued rwts: total=\([0-9]*\),\([0-9]*\),.*/\1 \2/p' $WORK/fio.log; }
# check_mixed NAME: there were many of both
check_mixed() {
    mixed=$(issued)
    if [ "${mixed%% *}" -ge 50 ] && [ "${mixed##* }" -ge 50 ]; then ok "$1"; else not_ok "$1" "reads and writes: $mixed"; fi
}

# fails NAME REGEX COMMAND...: ok when fio fails and says so
fails() {
    fails_name=$1 fails_regex=$2
    shift 2
    if fails_output=$("$@" 2>&1); then not_ok "$fails_name" "succeeded instead of: $fails_regex"
    elif echo "$fails_output" | grep -Eq "$fails_regex"; then ok "$fails_name"
    else not_ok "$fails_name" "no '$fails_regex' in: $fails_output"; fi
}
# refused NAME CODE COMMAND...: ok when the target answers with this status of type 2, media and data integrity
refused() {
    refused_name=$1 refused_code=$2
    shift 2
    fails "$refused_name" "sct=0x02; sc=0x$refused_code\)" "$@"
}
