#!/usr/bin/env bash
# What building and running for aarch64 on an x86-64 Debian or Ubuntu needs besides
# scripts/setup.sh: a folder with aarch64's C library and the libraries that Cyclotron uses.
#
#     scripts/setup_cross.sh [FOLDER]      FOLDER: build-aarch64/sysroot of the source tree
#
# apt chooses and downloads the packages with lists and a status of its own and they are unpacked
# into FOLDER: nothing of the machine changes, so no package of it can stand in the way. Where
# they cannot be had it says why and ends with 77.
set -euo pipefail
cd "$(dirname "$0")/.."

sysroot=$(realpath -m "${1:-build-aarch64/sysroot}")
packages=(libc6-dev libjansson-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libhwloc-dev
    libxxhash-dev libcmocka-dev)

unable() {
    echo "setup_cross: $1"
    exit 77
}

# A folder of an older list of packages is made anew.
[ "$(cat "$sysroot/complete" 2>/dev/null)" != "${packages[*]}" ] || exit 0
command -v apt-get >/dev/null || unable "needs apt"

own=$sysroot.apt
rm -rf "$sysroot" "$own"
mkdir -p "$sysroot" "$own"/{state/lists/partial,cache/archives/partial}
: >"$own/status"
options=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State="$own/state"
    -o Dir::Cache="$own/cache" -o Dir::State::status="$own/status" -o Debug::NoLocking=true
    -o APT::Sandbox::User= -o Acquire::Languages=none -o Acquire::Retries=3)
apt-get "${options[@]}" update -qq >"$own/log" 2>&1 ||
    unable "apt has no lists of arm64 packages: $(tail -n 1 "$own/log")"
apt-get "${options[@]}" install -qq -y --download-only --no-install-recommends "${packages[@]}" \
    >>"$own/log" 2>&1 || unable "apt cannot get the arm64 packages: $(tail -n 1 "$own/log")"
for package in "$own"/cache/archives/*.deb; do
    dpkg-deb --extract "$package" "$sysroot"
done

# Links to places outside lead into the folder instead.
find "$sysroot" -type l -lname '/*' | while read -r link; do
    ln -sfn "$sysroot$(readlink "$link")" "$link"
done
rm -rf "$own"
echo "${packages[*]}" >"$sysroot/complete"
echo "setup_cross: $(du -sh "$sysroot" | cut -f1) of aarch64 libraries in $sysroot"
