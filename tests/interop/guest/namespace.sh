# namespace.sh has NSID BYTES: within 15 s the namespace is there, this large; nobody in this guest asks for it
# namespace.sh gone NSID: within 15 s it is not there any more
. /checks/lib.sh
has_bytes() { device=$(block "$1") && [ "$(blockdev --getsize64 "$device")" = "$2" ]; }
is_gone() { ! block "$1"; }
case $1 in
    has)
        wait_for 15 has_bytes "$2" "$3"
        check_equal "namespace_$2_has_$3" "$3" "$(blockdev --getsize64 "$(block "$2")" 2>&1)"
        ;;
    gone)
        wait_for 15 is_gone "$2"
        if block "$2"; then not_ok "namespace_$2_gone" "still there"; else ok "namespace_$2_gone"; fi
        ;;
esac
