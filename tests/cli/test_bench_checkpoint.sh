#!/usr/bin/env bash
# cyclotron bench checkpoint: saves and loads what a run of that configuration would, beside a plain
# file of as many bytes, and loads on another mesh what one mesh wrote.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"

config=$source_folder/examples/tiny.json
mkdir "$folder/disk"
expect 0 bench checkpoint "$config" --folder="$folder/disk" --rounds=2 --json
bytes=$(value bytes)
holds "a state of one rank" "$bytes > 0 && $(value ranks) == 1"
holds "times" "$(value save_s) > 0 && $(value load_s) > 0 && $(value plain_write_s) > 0 &&
    $(value plain_read_s) > 0"
# What is read for pieces and for checksums, together, is at least every byte once.
holds "every byte is read" "$(value read_bytes) + $(value verify_bytes) >= 0.99 * $bytes"
[ ! -e "$folder/disk/plain" ] || { echo "FAIL: the plain file was left"; failures=$((failures + 1)); }

expect 0 bench checkpoint "$config" --folder="$folder/disk" --rounds=1 \
    --load="$folder/disk/saves/step-00000001" --distributed.dp_size=2 --distributed.zero_stage=3 --json
holds "two ranks" "$(value ranks) == 2 && $(value load_s) > 0"
holds "as many bytes" "$(value bytes) == $bytes"
expect 0 bench checkpoint "$config" --folder="$folder/disk" --rounds=1 \
    --load="$folder/disk/saves/step-00000001"
same "lines of a load alone" "files load read" "$(awk '{ print $1 }' "$folder/out" | xargs)"
expect 0 bench checkpoint "$config" --folder="$folder/disk" --rounds=1
same "lines of both" "files save load read" "$(awk '{ print $1 }' "$folder/out" | xargs)"
# The figures of the JSON in gigabytes: a state of some megabytes.
for line in '^files 0\.0[0-9]+ GB, 1 rank$' \
    '^read  0\.0[0-9]+ GB of files: 0\.0[0-9]+ GB for the .* pieces, 0\.0[0-9]+ GB checked$'; do
    grep -qE "$line" "$folder/out" || { echo "FAIL: no $line"; failures=$((failures + 1)); }
done
expect 1 bench checkpoint "$config" --folder="$config/inside" --rounds=1
says err "tiny.json"
expect 2 bench checkpoint
finish
