# fio_media.sh NSID BLOCK_SIZE METADATA GUARD_BITS LBA FIELD: a block whose field is wrong on the media: the target refuses it to fio with
# the field's status, whoever was to look at the tuple, and only when asked for the field
. /checks/lib.sh
. /checks/fio_lib.sh
namespace "$@"
lba=$5
case $6 in
    guard) code=82 others=REFTAG,APPTAG ;;
    app_tag) code=83 others=GUARD,REFTAG ;;
    ref_tag) code=84 others=GUARD,APPTAG ;;
esac
refused ${name}_media_found $code one read "$lba" 0 $all
refused ${name}_media_pract $code one read "$lba" 1 $all
check ${name}_media_unasked one read "$lba" 0 $others
check ${name}_media_neighbour one read $((lba + 1)) 0 $all
check ${name}_media_heal one write "$lba" 0 $all
check ${name}_media_healed one read "$lba" 0 $all
