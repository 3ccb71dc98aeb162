# pi_block.sh NSID BLOCK_SIZE TYPE GUARD_BITS: the block device of a protected namespace: the controller inserts and strips (PRACT)
. /checks/lib.sh
. /checks/pi_lib.sh
device=$(block "$1")
bs=$2
name=pi_block_n$1
lba=512
count=4
stream=$((count * (bs + 8)))
[ "$4" = 16 ] || stream=$((count * (bs + 16)))
# Linux numbers the blocks of types 1 and 2; with type 3 it says nothing, and only the guard is checked.
ref=$lba step=1 checks=5
[ "$3" != 3 ] || { ref=0 step=0 checks=4; }
block_write() { dd if="$1" of="$device" bs=$((count * bs)) count=1 seek=$((lba * bs)) oflag=direct,seek_bytes; }
block_read() { dd if="$device" of=$WORK/block.back bs=$((count * bs)) count=1 skip=$((lba * bs)) iflag=direct,skip_bytes; }
read_is() { block_read && cmp "$1" $WORK/block.back; }
random_file $((count * bs)) $WORK/block.data
interleave $WORK/block.data 0 $ref 0 $step "$4" >$WORK/block.good
interleave $WORK/block.data 0 $ref 0x8000 $step "$4" >$WORK/block.bad
check ${name}_write block_write $WORK/block.data
check ${name}_tuples take_is $WORK/block.good $checks -r $ref
check ${name}_read read_is $WORK/block.data
check ${name}_store_bad_guard put $WORK/block.bad 0
if output=$(block_read 2>&1); then not_ok ${name}_bad_guard_io_error "read: $output"
else case $output in
        # EILSEQ where the kernel hands it through, EIO otherwise
        *"Invalid or incomplete multibyte"* | *"Input/output error"*) ok ${name}_bad_guard_io_error ;;
        *) not_ok ${name}_bad_guard_io_error "$output" ;;
    esac
fi
check ${name}_heal block_write $WORK/block.data
check ${name}_healed block_read
