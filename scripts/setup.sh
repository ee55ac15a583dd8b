#!/usr/bin/env bash
# Installs what building and testing need on Debian or Ubuntu; says so and does nothing when all of
# it is there. `setup.sh tests` also installs what runs the program as other processors.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(build-essential cmake pkg-config git libjansson-dev libpcre2-dev libutf8proc-dev
    zlib1g-dev libzstd-dev libhwloc-dev libxxhash-dev libcmocka-dev libdnnl-dev libopenmpi-dev
    openmpi-bin slurm-wlm munge python3 xz-utils zstd bible-kjv-text bible-kjv)

# Without these the tests of other processors are skipped.
wanted=()
if [ "${1:-}" = tests ] && [ "$(uname -m)" = x86_64 ]; then
    wanted=(qemu-user gcc-aarch64-linux-gnu clang)
fi

# absent PACKAGE...: those that are not installed.
absent() {
    local package
    for package in "$@"; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            echo "$package"
    done
}

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
install() {
    echo "setup: installing $*"
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
        "$@" >/dev/null
}

mapfile -t missing < <(absent "${packages[@]}")
if [ ${#missing[@]} -gt 0 ]; then
    install "${missing[@]}"
fi
if [ ${#wanted[@]} -gt 0 ]; then
    mapfile -t missing < <(absent "${wanted[@]}")
    if [ ${#missing[@]} -gt 0 ]; then
        install "${missing[@]}" || echo "setup: tests of other processors will be skipped"
    fi
    scripts/setup_cross.sh || [ $? -eq 77 ]
fi
