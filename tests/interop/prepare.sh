#!/bin/sh
# Prepares what the interop suite boots: kernels, initramfs images and one root image with the tools.
#
#   tests/interop/prepare.sh [--packages-only]
#
# Installs the Debian packages that the suite uses (root or sudo), downloads the kernels from the mirror
# that apt is configured with (unpacked, never installed), and builds into $INTACT_INTEROP_DIR, by default
# build/interop:
#
#   vmlinuz-6.1  initrd-6.1     boots, loads what the root disk needs, mounts it, runs agent.sh
#   vmlinuz-6.12 initrd-6.12
#   root.img                    ext4: busybox, nvme-cli, fio, iproute2, e2fsprogs, open-iscsi, sg3-utils, RDMA libraries, both
#                               kernels' modules; in /opt, with loader and libraries of their own, another fio, one that
#                               knows protection information
#
# Idempotent: what is there and belongs to this script's version is kept, without a word to the network.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${INTACT_INTEROP_DIR:-$(cd "$here/../.." && pwd)/build/interop}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Suites that may hold each kernel, in order of preference.
suites_6_1="bookworm"
suites_6_12="bookworm-backports trixie"

# Where fio knows protection information, 64-bit guards too: from this version on.
suite_fio="trixie"
version_fio="3.39"

# Unpacked, never installed: open-iscsi would run its daemon on this machine.
suite_iscsi="bookworm"
packages_iscsi="open-iscsi libopeniscsiusr libisns0 sg3-utils libsgutils2-1.46-2"

packages="qemu-system-x86 busybox-static iproute2 nvme-cli fio e2fsprogs coreutils diffutils
          dash util-linux kmod cpio zstd xz-utils tar debian-archive-keyring
          libibverbs1 librdmacm1 ibverbs-providers libgcc-s1"

# Modules that the initramfs loads to reach the root disk. crc32c_generic is no dependency of ext4.
boot_modules="virtio_pci virtio_blk crc32c_generic ext4"

# Modules in the root image. The checksum modules are found by name at run time, so no dependency names
# them: without crc32_generic rdma_rxe does not start.
modules="$boot_modules virtio_net rdma_rxe rdma_cm rdma_ucm ib_uverbs nvme nvme-rdma nvmet nvmet-rdma null_blk loop
         crc32_generic crct10dif_generic
         sd_mod ib_iser ib_isert target_core_mod target_core_file
         sch_netem sch_ingress ifb act_mirred cls_matchall cls_u32 act_pedit"

# Programs in the root image besides busybox's. Busybox has a dd and a cmp of its own, with other options.
# The shell is dash: busybox's runs its own applets even where the real program stands in PATH.
programs="dash nvme fio ip rdma tc mkfs.ext4 e2fsck dd cmp blockdev timeout stat"
programs_iscsi="sbin/iscsid sbin/iscsiadm usr/bin/sg_compare_and_write usr/bin/sg_inq usr/bin/sg_luns usr/bin/sg_modes
         usr/bin/sg_opcodes usr/bin/sg_persist usr/bin/sg_raw usr/bin/sg_readcap usr/bin/sg_requests usr/bin/sg_reset usr/bin/sg_rtpg
         usr/bin/sg_sync usr/bin/sg_turs usr/bin/sg_unmap usr/bin/sg_verify usr/bin/sg_vpd usr/bin/sg_write_same"

# Libraries of programs that come with a guest, and the provider of its software RoCE, which libibverbs looks for by name.
rdma_libraries="libgcc_s.so.1 libm.so.6 librdmacm.so.1 libibverbs.so.1 libnl-3.so.200 libnl-route-3.so.200
           libibverbs/librxe-rdmav34.so"

say() { echo "interop: $*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "installing packages needs root or sudo: $*"
    fi
}

install_packages() {
    missing=
    for package in $packages; do
        status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$status" = installed ] || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    say "installing:$missing"
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >"$cache/apt.log" 2>&1 || {
        as_root apt-get update -q >"$cache/apt.log" 2>&1 || die "apt-get update failed: $(tail -n 3 "$cache/apt.log")"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing >>"$cache/apt.log" 2>&1 ||
            die "apt-get install failed: $(tail -n 3 "$cache/apt.log")"
    }
}

# The mirror that the machine itself installs Debian from.
mirror() {
    # RELEASE names the suite as the sources file does; security and updates live elsewhere or hold no kernels of other suites.
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
        while read -r uri suite component; do
            case $suite in *-security | *-updates | */*) continue ;; esac
            [ "$component" = main ] || continue
            case $uri in */debian/ | */debian) echo "$uri"; break ;; esac
        done
}

# apt with lists of its own, so that the machine's stay as they are: private_apt SUITE COMMAND ARG...
private_apt() {
    suite=$1 tool=$2
    shift 2
    "$tool" -q -o "Dir::Etc::sourcelist=$cache/apt/$suite/sources.list" -o Dir::Etc::sourceparts=- \
        -o "Dir::State::lists=$cache/apt/$suite/lists" -o "Dir::Cache=$cache/apt/$suite/cache" \
        -o APT::Sandbox::User=root "$@"
}

# use_suite SUITE: fetches apt's lists of another suite
use_suite() {
    uri=$(mirror)
    # Without lists, as in a fresh container, apt names no mirror.
    [ -n "$uri" ] || { as_root apt-get update -q >"$cache/apt.log" 2>&1 || true; uri=$(mirror); }
    [ -n "$uri" ] || die "no Debian mirror among apt's sources (apt-get indextargets)"
    mkdir -p "$cache/apt/$1/lists/partial" "$cache/apt/$1/cache/archives/partial"
    echo "deb [signed-by=$keyring] $uri $1 main" >"$cache/apt/$1/sources.list"
    private_apt "$1" apt-get update >"$cache/apt.log" 2>&1
}

# fetch_kernel SERIES SUITE...: leaves the unpacked package in kernel-SERIES/
fetch_kernel() {
    series=$1
    shift
    [ -e "$cache/kernel-$series/version" ] && return 0
    for suite in "$@"; do
        use_suite "$suite" || { say "no lists for $suite"; continue; }
        package=$(private_apt "$suite" apt-cache depends linux-image-amd64 | sed -n "s/^ *Depends: \(linux-image-$series\.[^ ]*\)$/\1/p" | head -n 1)
        [ -n "$package" ] && break
    done
    [ -n "${package:-}" ] || die "no linux-image-$series in: $*"
    say "downloading $package from $suite"
    rm -rf "$cache/kernel-$series" "$cache/download"
    mkdir -p "$cache/download" "$cache/kernel-$series"
    (cd "$cache/download" && private_apt "$suite" apt-get download "$package") >"$cache/apt.log" 2>&1 ||
        die "cannot download $package: $(tail -n 3 "$cache/apt.log")"
    dpkg -x "$cache/download/"*.deb "$cache/kernel-$series"
    rm -rf "$cache/download"
    # Newer packages put modules under usr/lib; modprobe -d looks under lib.
    [ -e "$cache/kernel-$series/lib" ] || ln -s usr/lib "$cache/kernel-$series/lib"
    version=${package#linux-image-}
    depmod -b "$cache/kernel-$series" "$version"
    echo "$version" >"$cache/kernel-$series/version"
}

# fetch_fio: leaves bin/fio, and in lib/ its loader and libraries, in fio/
fetch_fio() {
    [ -e "$cache/fio/version" ] && return 0
    use_suite "$suite_fio" || die "no lists for $suite_fio: $(tail -n 3 "$cache/apt.log")"
    say "downloading fio from $suite_fio"
    archives=$cache/download unpacked=$cache/unpacked
    rm -rf "$cache/fio" "$archives" "$unpacked"
    mkdir -p "$archives/partial" "$cache/fio/bin" "$cache/fio/lib"
    # As for a machine on which nothing is installed: apt then fetches every library.
    : >"$cache/apt/$suite_fio/status"
    private_apt "$suite_fio" apt-get install -y --no-install-recommends --download-only \
        -o "Dir::State::status=$cache/apt/$suite_fio/status" -o "Dir::Cache::archives=$archives" fio >"$cache/apt.log" 2>&1 ||
        die "cannot download fio: $(tail -n 3 "$cache/apt.log")"
    version=$(dpkg-deb -f "$archives"/fio_*.deb Version)
    dpkg --compare-versions "$version" ge "$version_fio" || die "fio of $suite_fio is $version: need $version_fio"
    for package in "$archives"/fio_*.deb "$archives"/lib*.deb "$archives"/zlib1g_*.deb; do
        case $package in */libpython*) ;; *) dpkg -x "$package" "$unpacked" ;; esac
    done
    libraries=$unpacked/usr/lib/x86_64-linux-gnu
    loader=$libraries/ld-linux-x86-64.so.2
    "$loader" --library-path "$libraries:$libraries/ceph" --list "$unpacked/usr/bin/fio" >"$cache/fio/list" ||
        die "fio of $suite_fio can't be loaded: $(grep 'not found' "$cache/fio/list")"
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p' "$cache/fio/list" | while read -r library; do
        # One of this machine's own would be older than what asks for it.
        case $library in "$libraries"/*) cp -L "$library" "$cache/fio/lib/" ;; *) die "no $suite_fio package has ${library##*/}" ;; esac
    done
    cp -L "$loader" "$cache/fio/lib/"
    cp "$unpacked/usr/bin/fio" "$cache/fio/bin/"
    "$cache/fio/lib/${loader##*/}" --library-path "$cache/fio/lib" "$cache/fio/bin/fio" --enghelp=io_uring_cmd | grep -q '^pi_chk ' ||
        die "fio $version knows no protection information (fio --enghelp=io_uring_cmd)"
    rm -rf "$archives" "$unpacked" "$cache/fio/list"
    echo "$version" >"$cache/fio/version"
}

# fetch_iscsi: leaves the unpacked packages in iscsi/
fetch_iscsi() {
    [ -e "$cache/iscsi/version" ] && return 0
    use_suite "$suite_iscsi" || die "no lists for $suite_iscsi: $(tail -n 3 "$cache/apt.log")"
    say "downloading from $suite_iscsi: $packages_iscsi"
    rm -rf "$cache/iscsi" "$cache/download"
    mkdir -p "$cache/download" "$cache/iscsi"
    # shellcheck disable=SC2086 # a list of words
    (cd "$cache/download" && private_apt "$suite_iscsi" apt-get download $packages_iscsi) >"$cache/apt.log" 2>&1 ||
        die "cannot download: $(tail -n 3 "$cache/apt.log")"
    for package in "$cache/download/"*.deb; do dpkg -x "$package" "$cache/iscsi"; done
    (cd "$cache/download" && echo ./*.deb) >"$cache/iscsi/version"
    rm -rf "$cache/download"
}

# copy_program PATH TO: a program and its libraries, which may lie in iscsi/
copy_program() {
    cp -L "$1" "$2/usr/bin/"
    LD_LIBRARY_PATH=$cache/iscsi/usr/lib/x86_64-linux-gnu ldd "$1" >"$cache/libraries"
    ! grep 'not found' "$cache/libraries" >&2 || die "a library of $1 is missing"
    sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^\t*\(\/[^ ]*\) (0x.*/\1/p' "$cache/libraries" | while read -r library; do
        case $library in
            */ld-linux-x86-64.so.2) to=$2/lib64/ ;;
            *) to=$2/usr/lib/x86_64-linux-gnu/ ;;
        esac
        [ -e "$to${library##*/}" ] || cp -L "$library" "$to"
    done
}

# copy_modules SERIES ROOT NAME...: the named modules, what they depend on, and an index of them
copy_modules() {
    series=$1 root=$2
    shift 2
    from=$cache/kernel-$series
    version=$(cat "$from/version")
    mkdir -p "$root/lib/modules/$version"
    for name in "$@"; do
        modprobe -d "$from" -S "$version" --show-depends "$name" || die "kernel $series has no module $name"
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | sort -u | while read -r path; do
        to=$root/lib/modules/$version/${path##*/}
        # The guest's modprobe is busybox's: it reads plain modules only.
        case $path in
            *.xz) xz -dc "$path" >"${to%.xz}" ;;
            *) cp "$path" "$to" ;;
        esac
    done
    cp "$from/lib/modules/$version/"modules.builtin* "$from/lib/modules/$version/modules.order" "$root/lib/modules/$version/"
    depmod -b "$root" "$version"
}

copy_busybox() {
    mkdir -p "$1/bin"
    cp "$(command -v busybox)" "$1/bin/busybox"
    for applet in $("$1/bin/busybox" --list); do
        [ -e "$1/bin/$applet" ] || ln -s busybox "$1/bin/$applet"
    done
}

build_initrd() {
    series=$1
    root=$cache/stage-initrd
    rm -rf "$root"
    mkdir -p "$root/proc" "$root/sys" "$root/dev" "$root/root" "$root/sbin"
    copy_busybox "$root"
    ln -s ../bin/busybox "$root/sbin/modprobe"
    # shellcheck disable=SC2086 # a list of words
    copy_modules "$series" "$root" $boot_modules
    cp "$here/guest/init.sh" "$root/init"
    chmod 755 "$root/init"
    (cd "$root" && find . | cpio -o -H newc --quiet -R 0:0 | zstd -q -3 -T0) >"$cache/initrd-$series"
    cp "$cache/kernel-$series/boot/vmlinuz-"* "$cache/vmlinuz-$series"
    rm -rf "$root"
}

build_root() {
    root=$cache/stage-root
    rm -rf "$root"
    mkdir -p "$root/usr/bin" "$root/usr/lib/x86_64-linux-gnu" "$root/lib64" "$root/etc/nvme" "$root/sbin"
    for folder in proc sys dev run tmp var mnt checks; do mkdir -p "$root/$folder"; done
    copy_busybox "$root"
    ln -s ../bin/busybox "$root/sbin/modprobe"
    for program in $programs; do
        path=$(PATH=$PATH:/usr/sbin:/sbin command -v "$program") || die "no program $program on this machine"
        copy_program "$path" "$root"
    done
    for program in $programs_iscsi; do copy_program "$cache/iscsi/$program" "$root"; done
    mkdir -p "$root/etc/iscsi"
    cp "$cache/iscsi/etc/iscsi/iscsid.conf" "$root/etc/"
    mkdir -p "$root/usr/lib/x86_64-linux-gnu/libibverbs" "$root/etc/libibverbs.d"
    for library in $rdma_libraries; do
        cp -L "/usr/lib/x86_64-linux-gnu/$library" "$root/usr/lib/x86_64-linux-gnu/$library"
    done
    echo "driver rxe" >"$root/etc/libibverbs.d/rxe.driver"
    mkdir -p "$root/lib" "$root/opt"
    cp -r "$cache/fio" "$root/opt/"
    ln -s ../usr/lib/x86_64-linux-gnu "$root/lib/x86_64-linux-gnu"
    ln -sf ../usr/bin/dash "$root/bin/sh"
    ln -s ../usr/bin/e2fsck "$root/sbin/fsck.ext4"
    ln -s /proc/mounts "$root/etc/mtab"
    [ -e /etc/mke2fs.conf ] && cp /etc/mke2fs.conf "$root/etc/"
    echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    for series in 6.1 6.12; do
        # shellcheck disable=SC2086 # a list of words
        copy_modules "$series" "$root" $modules
    done
    rm -f "$cache/root.img"
    # A quarter more than the files: file system overhead.
    mebibytes=$(($(du -sm "$root" | cut -f1) * 5 / 4 + 16))
    PATH=$PATH:/usr/sbin:/sbin mkfs.ext4 -q -F -d "$root" -E root_owner=0:0 -O '^has_journal' -m 0 "$cache/root.img" "${mebibytes}M"
    rm -rf "$root"
}

mkdir -p "$cache"
install_packages
[ "${1:-}" = --packages-only ] && exit 0
# shellcheck disable=SC2086 # lists of words
fetch_kernel 6.1 $suites_6_1
# shellcheck disable=SC2086
fetch_kernel 6.12 $suites_6_12
fetch_fio
fetch_iscsi

# The images follow from this script, the initramfs' init, the kernels, what was downloaded and the installed tools.
stamp=$(
    {
        cat "$here/prepare.sh" "$here/guest/init.sh" "$cache"/kernel-*/version "$cache/fio/version" "$cache/iscsi/version"
        # shellcheck disable=SC2086
        dpkg-query -W $packages
    } | sha256sum | cut -d' ' -f1
)
if [ "$(cat "$cache/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -f "$cache/stamp"
    say "building the images in $cache"
    build_root
    build_initrd 6.1
    build_initrd 6.12
    echo "$stamp" >"$cache/stamp"
fi
say "ready: kernels $(cat "$cache/kernel-6.1/version") and $(cat "$cache/kernel-6.12/version"), fio $(cat "$cache/fio/version")"
