# What the tests under qemu-user share. Sourced after cli/lib.sh. Emulated, a step of the smallest
# model takes seconds: what is tested is that it runs and what comes out, with few tokens.
# shellcheck disable=SC2034,SC2154 # of lib.sh, for strict_hashes.sh

# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

skip() {
    echo "skipped: $1"
    exit 77
}

# emulate PROGRAM COMMAND...: from here on the program is PROGRAM run by that emulator, and what
# says nothing about the processor is done by the one of this machine.
emulate() {
    local program=$1
    shift
    native=$cyclotron
    printf '#!/bin/sh\nexec %s "%s" "$@"\n' "$*" "$program" >"$folder/emulated"
    chmod +x "$folder/emulated"
    cyclotron=$folder/emulated
}

# fast_training DTYPE...: trains without strict mode in each: the losses are those of strict mode but
# for rounding. Then goes on from the last one's checkpoint and generates from it.
fast_training() {
    local dtype loss wanted
    for dtype in "$@"; do
        wanted=$(awk -v name="$dtype" '$1 == name { print $2 }' "$hashes")
        loss=$(strict_train "fast_$dtype" --training.strict=false --model.dtype="$dtype" \
            --checkpoint.save_dir="$folder/saved_$dtype" | cut -d' ' -f1)
        holds "fast mode in $dtype: loss $loss, in strict mode $wanted" \
            "(${loss:-0} - $wanted) ^ 2 < (5e-3 * $wanted) ^ 2"
    done
    expect 0 train "$folder/strict.json" --logging.run_dir="$folder/resumed" \
        --training.strict=false --model.dtype="$dtype" \
        --checkpoint.load_path="$folder/saved_$dtype" \
        --training.total_train_steps=4
    check "a fourth step after the third's checkpoint" \
        grep -q '"step":4,.*"loss"' "$folder/resumed/metrics.jsonl"
    expect 0 generate "$folder/saved_$dtype" --prompt="the king" --max-tokens=4 --threads=1 --temperature=0
}
