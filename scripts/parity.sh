#!/usr/bin/env bash
# Holds the program against transformers and prints the table of families and checks.
# Takes the python3 that has the packages; else makes a virtual environment in BUILD/parity.
set -euo pipefail

build=${1:-build}
packages=(torch transformers tokenizers safetensors)
python=python3

has_packages() {
    "$1" -c 'import torch, transformers, tokenizers, safetensors' 2>/dev/null
}

if ! has_packages "$python"; then
    python=$build/parity/python/bin/python3
    if ! has_packages "$python"; then
        echo "parity: putting ${packages[*]} into $build/parity/python" >&2
        mkdir -p "$build/parity"
        python3 -m venv "$build/parity/python"
        "$python" -m pip install --quiet "${packages[@]}"
    fi
fi
HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=1 exec "$python" scripts/parity.py "$build" \
    --table="$build/parity/table.md"
