#!/usr/bin/env bash
# Installs what the tests need, and runs them.
#
#   ./test.sh [STEP [ARGUMENT]]...     without a step: all
#
#   packages          install Debian packages, Rust's components and cargo-nextest, where missing
#   guards            the build doesn't go into the crate target/
#   scripts           shell scripts, by shellcheck
#   fmt               formatting
#   clippy            lints, with and without features, the fuzz targets too
#   doc               documentation without warnings
#   unit              every ordinary test (style, vectors, captures, simulation with more than a thousand seeds, fuzz
#                     corpora, hostile peers, end to end), and the documentation's examples
#   kernels           protection information with each checksum kernel that this CPU runs, forced by T10PI_KERNEL
#   asan              protection information under AddressSanitizer; needs a nightly toolchain, and says so without one
#   counts [update]   instructions of the checksum kernels under valgrind, against pi/benches/counts.txt
#   sim [FROM..TO]    the simulation with other seeds [10000..11000]; not part of all
#   verbs             the build with the verbs provider, its unit tests and those of its mlx5 part, and the program that tests devices
#                     in a guest; that the build without needs no RDMA library
#   unprivileged      the device and the whole, without root and with small limits
#   quickstart        ./quickstart.sh
#   bench             the speed gate: intact-host against intact, beside the ceiling of bare sockets, in one run
#   interop           Linux kernels in virtual machines, as hosts and as targets
#   faults            with injected faults: storage that fails; two hosts on shared blocks for a minute, and one that connects
#                     over and over, while packets get lost; then 10,000 connections
#   pi-suite          the PI correctness suite: damaged blocks in every format, before the wire, on it, in memory, on media
#   soak [MINUTES]    mixed load, reconnects, killed hosts and packet loss, for so long [2]; memory and descriptors must not grow
#   fuzz-corpus       the fuzz targets' corpora, by an ordinary test (unit includes it)
#   fuzz [SECONDS]    the fuzz targets themselves, each for so long [30]; not part of all
#   all               every step but those that say otherwise, packages first
#
# Says what it does, how long each step took, and ends with status 1 at the first step that fails. Needs root, or sudo,
# for packages and for interop, whose tests run as root (network namespaces and taps); looks for it before the first step.
set -euo pipefail
cd "$(dirname "$0")"
. .ci/machine.sh

debian=(
    gcc g++ libc6-dev make pkg-config ca-certificates # Rust's linker, and C sources of crates
    libibverbs-dev librdmacm-dev clang libclang-dev   # bindings to the RDMA libraries
    ibverbs-providers                                 # libmlx5, whose functions are looked for
    tshark                                            # an independent judge of our packets
    shellcheck util-linux mount
    valgrind                                          # counts instructions
    libisal2                                          # what intact-pi bench compares with
)

packages() {
    install_packages "${debian[@]}"
    tests/interop/prepare.sh --packages-only
    need_rust
    need_component rustfmt cargo fmt --version
    need_component clippy cargo clippy --version
    need_nextest
}

guards() {
    check_output_folder
    git check-ignore -q target/src/lib.rs && die "the ignore rules hide sources of the crate target/"
    return 0
}

scripts() {
    shellcheck -x test.sh quickstart.sh .ci/run .ci/machine.sh
    shellcheck -x --severity warning tests/interop/*.sh
}

fmt() {
    cargo fmt --all --check
    cargo fmt --manifest-path fuzz/Cargo.toml --check
}

clippy() {
    cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo clippy --workspace --all-targets --all-features --locked -- -D warnings
    cargo clippy --manifest-path fuzz/Cargo.toml --target-dir build/fuzz --locked -- -D warnings
}

doc() {
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
}

unit() {
    if [ "$(id -u)" != 0 ] || [ ! -e /dev/loop-control ]; then
        say "volumes on block devices are NOT tested here: a loop device needs root and /dev/loop-control"
    fi
    cargo build --workspace --bins --locked
    cargo nextest run --workspace --locked
    cargo nextest run -p rwctx --features mlx5 --locked -E 'test(/^device::(mlx5|verbs)::/)'
    cargo test --workspace --doc --locked
}

kernels() {
    local kernel said
    cargo build -p intact-tools --bin intact-pi --locked
    for kernel in portable pclmulqdq avx2 avx512; do
        if said=$(T10PI_KERNEL=$kernel build/debug/intact-pi check-vectors pi/tests/data/vectors.jsonl 2>&1); then
            printf '%s: %s\n' "$kernel" "$said"
            T10PI_KERNEL=$kernel cargo nextest run -p t10pi --locked -E 'binary(segments) or test(/public_functions/)'
        elif [[ $said == *"cannot run"* ]]; then
            printf 'not tested here: %s\n' "$said"
        else
            die "$said"
        fi
    done
}

asan() {
    local host
    if ! rustup toolchain list 2>/dev/null | grep -q '^nightly' &&
        ! timeout 300 rustup toolchain install nightly --profile minimal; then
        say "not run: there is no nightly toolchain, and rustup can't get one; AddressSanitizer needs it"
        return 0
    fi
    host=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS="-Zsanitizer=address" cargo +nightly test -p t10pi --lib --tests --locked --target "$host" \
        --target-dir build/asan
}

# counts_now PROGRAM: a line `KERNEL CASE INSTRUCTIONS` for each case.
counts_now() {
    local kernel name said
    for kernel in portable pclmulqdq; do
        for name in $("$1" list); do
            said=$(T10PI_KERNEL=$kernel valgrind --tool=callgrind --callgrind-out-file=/dev/null \
                --toggle-collect='*counts*measured*' "$1" "$name" 2>&1) || die "$said"
            printf '%s %s %s\n' "$kernel" "$name" "$(sed -n 's/.*Collected : //p' <<<"$said")"
        done
    done
}

verbs() {
    local folder
    cargo build --release --locked -p intact --features verbs
    folder=$(output_folder)
    mkdir -p "$folder/verbs"
    cp "$folder/release/intact" "$folder/verbs/intact"
    # The usual build is in its place again afterwards.
    cargo build --release --locked -p intact
    ldd "$folder/verbs/intact" | grep -q libibverbs || die "the build with the verbs provider does not use libibverbs"
    ! ldd "$folder/release/intact" | grep -E "ibverbs|rdmacm" || die "the build without it needs RDMA libraries"
    # What every device has to pass goes to a guest, which has an RDMA device.
    strip -o "$folder/verbs/conformance" "$(test_program -p rwctx --lib --features mlx5)"
    cargo nextest run -p rwctx --features mlx5 --locked -E 'test(/^device::(mlx5|verbs)::/)'
    cargo nextest run -p intact --features verbs --locked -E 'test(/^(config|cli)::/)'
}

counts() {
    local recorded=pi/benches/counts.txt program now
    program=$(cargo bench -p t10pi --bench counts --locked --no-run --message-format json |
        sed -n 's/.*"executable":"\([^"]*counts[^"]*\)".*/\1/p' | tail -n 1)
    now=$(mktemp)
    counts_now "$program" >"$now"
    if [ "${1:-}" = update ]; then
        cp "$now" "$recorded"
        say "$recorded has what was counted now"
    # Another compiler counts a little differently; what got slower by a twentieth is for somebody to look at.
    elif ! awk 'NR == FNR { was[$1 " " $2] = $3; next }
            { key = $1 " " $2; seen++; ratio = was[key] ? $3 / was[key] : 99
              printf "%s %s: %d, recorded %d (%.3f)\n", $1, $2, $3, was[key], ratio
              if (ratio > 1.05) { slower++ } }
            END { exit slower > 0 || seen != length(was) }' "$recorded" "$now"; then
        rm -f "$now"
        die "more instructions than $recorded says; if that is meant: ./test.sh counts update"
    fi
    rm -f "$now"
}

sim() {
    INTACT_SIM_SEED=${1:-10000..11000} cargo nextest run -p rwctx --locked --profile sim -E 'test(/::sim::/)'
}

fuzz-corpus() {
    cargo nextest run -p intact-tests --locked -E 'binary(corpus)'
}

quickstart() {
    ./quickstart.sh
}

bench() {
    cargo build --release --locked -p intact -p intact-tools
    cargo bench --locked -p intact-tests --bench gate
}

# need_root: before hours of other steps rather than after them.
need_root() {
    [ "$(id -u)" = 0 ] || command -v sudo >/dev/null || die "$1 needs root, or sudo"
}

# under_root COMMAND ARGUMENT...: as root, with the caller's Rust and the caller's settings. What it leaves in Cargo's
# folders is the caller's again afterwards.
under_root() {
    local name folder status=0 settings=()
    if [ "$(id -u)" = 0 ]; then
        "$@"
        return
    fi
    for name in "${!INTACT_@}" "${!CARGO_@}" "${!RUST@}" PATH HOME TMPDIR TERM; do
        [ -z "${!name+set}" ] || settings+=("$name=${!name}")
    done
    folder=$(output_folder)
    sudo env "${settings[@]}" "$@" || status=$?
    sudo find "$folder" "${CARGO_HOME:-$HOME/.cargo}" -user root -exec chown --no-dereference "$(id -u):$(id -g)" {} +
    return "$status"
}

interop() {
    need_root interop
    tests/interop/prepare.sh
    cargo build --workspace --bins --locked
    verbs
    # Built by the caller, run by root.
    cargo nextest run -p intact-tests --locked --profile interop --no-run
    under_root cargo nextest run -p intact-tests --locked --profile interop
}

# Fault injection is a feature that no other build has: these programs lie in a folder of their own.
faulty_programs() {
    cargo build -p intact -p intact-tools --bins --features intact/_fault,intact-tools/_fault \
        --target-dir build/fault --locked
}

# with_faults ARGUMENT...: tests over the whole, with packets that get lost and retransmissions that are watched.
# `limit` is what bounds their time, `loss` the share that gets lost.
with_faults() {
    INTACT_FAULT_LOSS=$loss INTACT_FAULT_CHECK=1 \
        "${limit[@]}" cargo nextest run -p intact-tests --features _fault --target-dir build/fault --locked "$@"
}

faults() {
    local limit=() loss=0.01
    cargo nextest run -p intact --features _fault --target-dir build/fault --locked -E 'test(/::faults::/)'
    faulty_programs
    INTACT_TWO_HOSTS_SECONDS=60 with_faults -E 'binary(two_hosts) or binary(faults)'
    with_faults -E 'binary(hostile) and test(/connects_over_and_over/)'
    loss=0
    INTACT_CONNECTS=10000 with_faults -E 'binary(hostile) and test(/connects_over_and_over/)'
}

pi-suite() {
    faulty_programs
    cargo nextest run -p intact-tests --features _fault --target-dir build/fault --locked -E 'binary(pi_suite)'
}

soak() {
    local minutes=${1:-2} limit=() loss=0.01
    faulty_programs
    with_faults --profile soak --no-run
    limit=(timeout --foreground --kill-after 60 "$((minutes + 15))m")
    INTACT_SOAK_MINUTES=$minutes with_faults --profile soak
}

# test_program CARGO_ARGUMENT...: builds a test program and prints its path.
test_program() {
    cargo test --no-run --locked --message-format json "$@" |
        sed -n '/"test":true/s/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1
}

unprivileged() (
    user=65534
    device=$(test_program -p rwctx --lib)
    whole=$(test_program -p intact-tests --test end_to_end)
    cargo build --workspace --bins --locked
    built=$(dirname "$(dirname "$whole")")
    # Others can't read where root builds: everything goes to a folder of their own.
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    cp "$built/intact" "$built/intact-host" "$built/intact-pi" "$folder/"
    cp "$device" "$folder/device"
    cp "$whole" "$folder/whole"
    mkdir "$folder/tmp"
    as=(env -i "PATH=$PATH" "TMPDIR=$folder/tmp" "INTACT_BIN_DIR=$folder" prlimit --memlock=65536:65536)
    if [ "$(id -u)" = 0 ]; then
        chown -R "$user:$user" "$folder"
        as+=(setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs --bounding-set=-all)
    fi
    cd "$folder"
    "${as[@]}" ./device device::soft::driver
    # Locked memory is counted for the user, over all processes: one target at a time.
    "${as[@]}" ./whole --test-threads 1
)

# What cargo-fuzz passes, less the sanitizer: coverage works with a stable compiler.
fuzz() {
    local seconds=${1:-30} found=build/fuzz/found host target
    host=$(rustc -vV | sed -n 's/^host: //p')
    RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1" \
        cargo build --manifest-path fuzz/Cargo.toml --locked --release --target "$host" --target-dir build/fuzz
    for target in fuzz/fuzz_targets/*.rs; do
        target=$(basename "$target" .rs)
        mkdir -p "$found/$target"
        "build/fuzz/$host/release/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
            -artifact_prefix="$found/$target-" "$found/$target" "fuzz/corpus/$target"
    done
}

all=(packages guards scripts fmt clippy doc unit kernels asan counts unprivileged quickstart bench faults pi-suite soak interop)

# step NAME ARGUMENT...: runs one step and says how long it took.
step() {
    local begin=$SECONDS
    printf '\n=== %s\n' "$*"
    "$@"
    printf '=== %s: passed in %d s\n' "$1" $((SECONDS - begin))
}

usage() { sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0"; }

main() {
    [ "$#" -gt 0 ] || set -- all
    while [ "$#" -gt 0 ]; do
        case $1 in
        all)
            local name
            need_root "./test.sh all"
            for name in "${all[@]}"; do step "$name"; done
            ;;
        packages) step packages ;;
        sim)
            need_rust
            if [[ ${2:-} =~ ^[0-9]+(\.\.[0-9]+)?$ ]]; then
                step sim "$2"
                shift
            else
                step sim
            fi
            ;;
        fuzz | soak)
            need_rust
            if [[ ${2:-} =~ ^[0-9]+$ ]]; then
                step "$1" "$2"
                shift
            else
                step "$1"
            fi
            ;;
        counts)
            need_rust
            if [ "${2:-}" = update ]; then
                step counts update
                shift
            else
                step counts
            fi
            ;;
        guards | scripts | fmt | clippy | doc | unit | kernels | asan | verbs | unprivileged | quickstart | bench | faults | pi-suite | interop | fuzz-corpus)
            need_rust
            step "$1"
            ;;
        help)
            usage
            exit
            ;;
        *)
            usage >&2
            exit 2
            ;;
        esac
        shift
    done
    echo "all that was asked for passed in $SECONDS s"
}

main "$@"
