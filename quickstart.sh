#!/usr/bin/env bash
# One command from a checkout to protected I/O over RoCEv2, on any Linux machine with Rust: no RDMA hardware, no kernel
# module, no root (but for installing a C compiler, where there is none).
#
# Builds, serves configs/quickstart.toml on the soft device at 127.0.0.1, drives it from 127.0.0.2 with intact-host, and
# prints what it saw. Status 0 only when everything was as it must be.
set -euo pipefail
cd "$(dirname "$0")"
. .ci/machine.sh

config=configs/quickstart.toml
work=build/quickstart
nqn=nqn.2026-11.io.intact:quickstart
image=build/quickstart.img # where the configuration puts its file volume
target_pid=

cleanup() {
    local status=$?
    trap - EXIT
    if [ -n "$target_pid" ] && kill -0 "$target_pid" 2>/dev/null; then
        kill -KILL "$target_pid" 2>/dev/null || true
        wait "$target_pid" 2>/dev/null || true
    fi
    if [ "$status" != 0 ]; then
        if [ -s "$work/target.log" ]; then
            echo "--- the end of the target's log ($work/target.log):" >&2
            tail -n 20 "$work/target.log" >&2
        fi
        echo "quickstart: failed" >&2
    else
        rm -rf "$work" "$image" "$image.pi"
    fi
    exit "$status"
}
trap cleanup EXIT

title() { printf '\n== %s\n' "$*"; }

# show COMMAND ARG...: prints the command, runs it.
show() {
    printf '$ %s\n' "${*/#$bin\//}"
    "$@"
}

# host SUBCOMMAND ARG...: intact-host against the quickstart subsystem.
host() {
    local subcommand=$1
    shift
    show "$bin/intact-host" "$subcommand" --traddr 127.0.0.1 --trsvcid 4420 --nqn "$nqn" "$@"
}

# must_fail_with TEXT COMMAND ARG...: the command exits with 1 and says TEXT.
must_fail_with() {
    local text=$1 output status=0
    shift
    output=$("$@" 2>&1) || status=$?
    printf '%s\n' "$output"
    [ "$status" = 1 ] || die "expected exit status 1, and got $status"
    grep -qF "$text" <<<"$output" || die "expected to read: $text"
}

# blocks FIRST COUNT FILE...: arguments that name blocks, with the reference tag that type 1 wants.
range() { range=(--start-block "$1" --block-count "$(($2 - 1))" --ref-tag "$1"); }

title "Build"
need_rust
command -v cc >/dev/null || install_packages gcc libc6-dev
check_output_folder
bin=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release
show cargo build --release --locked -p intact -p intact-tools

title "Plan"
rm -rf "$work" "$image" "$image.pi"
mkdir -p "$work"
show "$bin/intact" check "$config"

title "Serve"
"$bin/intact" serve "$config" >"$work/ready" 2>"$work/target.log" &
target_pid=$!
for _ in $(seq 300); do
    grep -qx 'ready nvme rdma 127.0.0.1:4420' "$work/ready" && break
    kill -0 "$target_pid" 2>/dev/null || die "the target ended before it was ready"
    sleep 0.1
done
grep -x 'ready nvme rdma 127.0.0.1:4420' "$work/ready" || die "the target is not ready after 30 s"

title "Discover and identify, over RoCEv2 packets"
show "$bin/intact-host" discover --traddr 127.0.0.1 --trsvcid 4420
host identify

title "Write and read with protection information"
head -c 131072 /dev/urandom >"$work/data" # 32 blocks of 4096 bytes
for nsid in 1 2; do
    range 96 32
    # PRACT: the target makes the protection information, and checks and strips it on the way back.
    host write --namespace-id "$nsid" "${range[@]}" --prinfo 0x8 --data "$work/data"
    host flush --namespace-id "$nsid"
    host read --namespace-id "$nsid" "${range[@]}" --prinfo 0xd --data "$work/back"
    cmp "$work/data" "$work/back"
    # Without PRACT it travels with the data: 32 blocks of 4096 + 8 bytes, checked by the target both ways.
    host read --namespace-id "$nsid" "${range[@]}" --prinfo 0x5 --data "$work/protected"
    [ "$(wc -c <"$work/protected")" = $((32 * 4104)) ] || die "the protected data has the wrong length"
    host write --namespace-id "$nsid" "${range[@]}" --prinfo 0x5 --data "$work/protected"
    host compare --namespace-id "$nsid" "${range[@]}" --prinfo 0x5 --data "$work/protected"
done

title "A host's broken block is refused"
cp "$work/protected" "$work/broken"
printf '\0\0\0\0' | dd of="$work/broken" bs=1 seek=$((5 * 4104 + 4096)) conv=notrunc status=none # block 5's guard
range 96 32
must_fail_with 'status: SCT 0x2 SC 0x82 (guard check error)' \
    host write --namespace-id 1 "${range[@]}" --prinfo 0x5 --data "$work/broken"
host read --namespace-id 1 "${range[@]}" --prinfo 0xd --data "$work/back"
cmp "$work/data" "$work/back"

title "A corrupted medium is caught and located"
offset=$((100 * 4096 + 1234))
byte=$(od -An -tu1 -j "$offset" -N 1 "$image")
# shellcheck disable=SC2059 # the format is the byte
printf "\\x$(printf '%02x' $((byte ^ 1)))" | dd of="$image" bs=1 seek="$offset" conv=notrunc,fsync status=none
echo "flipped one bit of block 100 in $image"
range 96 32
must_fail_with 'status: SCT 0x2 SC 0x82 (guard check error)' \
    host read --namespace-id 2 "${range[@]}" --prinfo 0xd --data "$work/back"
range 101 27
host read --namespace-id 2 "${range[@]}" --prinfo 0xd --data "$work/back"
cmp <(tail -c +$((5 * 4096 + 1)) "$work/data") "$work/back"
echo "what the target logged:"
grep -E 'file.*\b100\b.*guard|guard.*file.*\b100\b' "$work/target.log" || die "the log doesn't name volume, block and field"
echo "writing the block again heals it:"
range 100 1
host write --namespace-id 2 "${range[@]}" --prinfo 0x8 --data <(tail -c +$((4 * 4096 + 1)) "$work/data" | head -c 4096)
range 96 32
host read --namespace-id 2 "${range[@]}" --prinfo 0xd --data "$work/back"
cmp "$work/data" "$work/back"

title "A short benchmark: 4 KiB random reads, protection off the wire and checked by the target, then on the wire"
for pi in pract full; do
    host bench --namespace-id 1 --rw randread --bs 4096 --qd 32 --queues 1 --time 3 --pi "$pi" --prepare
done

title "What was counted"
exec 3<>/dev/tcp/127.0.0.1/9420
printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
metrics=$(cat <&3)
exec 3<&-
grep '^intact_' <<<"$metrics" | grep -v ' 0$' | head -n 40 || die "no metrics are served"

title "Stop"
kill -TERM "$target_pid"
status=0
wait "$target_pid" || status=$?
target_pid=
[ "$status" = 0 ] || die "the target ended with status $status"
echo "quickstart: everything was as it must be"
