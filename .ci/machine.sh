# shellcheck shell=bash
# What the scripts need from the machine: Debian packages, Rust, cargo-nextest. Sourced, never run.
# Everything here is idempotent, and says what it does before it does it.

say() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
die() {
    say "$*"
    exit 1
}

# as_root COMMAND ARG...: directly for root, otherwise by sudo.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        return 127
    fi
}

# missing_packages NAME...: prints those that are not installed.
missing_packages() {
    local package
    for package; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
    done
}

# install_packages NAME...: installs the Debian packages that are missing.
install_packages() {
    local missing log
    command -v dpkg-query >/dev/null || die "this is no Debian; install what these Debian packages hold: $*"
    read -ra missing <<<"$(missing_packages "$@")"
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing Debian packages: ${missing[*]}"
    log=$(mktemp)
    if ! { as_root apt-get update -q && apt_install "${missing[@]}"; } >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        rm -f "$log"
        die "can't install them; as root: apt-get install ${missing[*]}"
    fi
    rm -f "$log"
}

apt_install() {
    # tshark asks whether others may capture; nobody needs to.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# need_rust: Cargo in PATH, and new enough.
need_rust() {
    local want have
    if ! command -v cargo >/dev/null && [ -r "$HOME/.cargo/env" ]; then
        # shellcheck source=/dev/null
        . "$HOME/.cargo/env"
    fi
    command -v cargo >/dev/null || die "Rust is missing; rustup (https://rustup.rs) installs it"
    want=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
    have=$(rustc --version | cut -d ' ' -f 2)
    [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] ||
        die "Rust $have is too old; Intact needs $want or newer: rustup update stable"
}

# need_component NAME COMMAND...: a part of the Rust toolchain, when COMMAND doesn't run.
need_component() {
    local name=$1
    shift
    "$@" >/dev/null 2>&1 && return
    command -v rustup >/dev/null || die "Rust's component $name is missing"
    say "installing Rust's component $name"
    rustup component add "$name"
}

# need_nextest: the test runner.
need_nextest() {
    cargo nextest --version >/dev/null 2>&1 && return
    say "installing cargo-nextest from its sources (some minutes)"
    cargo install --quiet --locked cargo-nextest --version 0.9.143
}

# output_folder: prints where Cargo builds.
output_folder() {
    local folder
    folder=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
    [ -n "$folder" ] || die "cargo metadata doesn't say where it builds"
    printf '%s\n' "$folder"
}

# check_output_folder: what `cargo clean` would delete must not be the crate target/.
check_output_folder() {
    local folder
    folder=$(output_folder)
    case $folder/ in
    "$PWD/target/"*) die "Cargo would build into $folder, which holds the sources of a crate; see CONTRIBUTING.md" ;;
    esac
}
