#!/usr/bin/env bash
# Installs what building and testing need on Debian or Ubuntu; says so and does nothing when all of
# it is there.
set -euo pipefail

packages=(build-essential cmake pkg-config git libjansson-dev libpcre2-dev zlib1g-dev libzstd-dev
    libhwloc-dev libcmocka-dev libdnnl-dev libopenmpi-dev openmpi-bin slurm-wlm munge
    python3 xz-utils zstd bible-kjv-text bible-kjv)

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    exit 0
fi

echo "setup: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >/dev/null
