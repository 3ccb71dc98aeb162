# fio.sh N|lunN MEBIBYTES: mixed reads and writes at depth 32, each block written carries a checksum that is read back
. /checks/lib.sh
device=$(block "$1")
label=$(label "$1")
check "fio_${label}_fill" fio --name=fill --filename="$device" --direct=1 --ioengine=libaio --iodepth=32 --rw=write --bs=64k --size="$2M" \
    --verify=crc32c --do_verify=0 --output=$WORK/fio.fill
check "fio_${label}_verify" fio --name=mix --filename="$device" --direct=1 --ioengine=libaio --iodepth=32 --rw=randrw --rwmixread=40 --bsrange=4k-64k \
    --size="$2M" --verify=crc32c --verify_fatal=1 --do_verify=1 --output=$WORK/fio.mix
grep -E "READ:|WRITE:" $WORK/fio.mix | sed 's/^ */# /'
