#!/usr/bin/env bash
# Commands read the newest checkpoint of a folder while a run saves there and retires what they read.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

saves=$folder/saves
"$cyclotron" train "$folder/tiny.json" --checkpoint.save_dir="$saves" --checkpoint.save_frequency=1 \
    --checkpoint.keep_last=1 --training.total_train_steps=1000000 >"$folder/run" 2>&1 &
process=$!
for _ in $(seq 1200); do
    [ "$(grep -c saved "$folder/run")" -ge 3 ] && break
    sleep 0.05
done
before=$(grep -c saved "$folder/run")
for i in $(seq 15); do
    expect 0 generate "$saves" --prompt="the king" --max-tokens=2 --threads=1
    expect 0 checkpoint verify "$saves"
    expect 0 checkpoint inspect "$saves"
    expect 0 checkpoint export "$saves" --out="$folder/exported$i"
done
for _ in $(seq 10); do
    expect 0 eval "$saves" "$folder/text.txt" --max-tokens=64
    expect 0 checkpoint compare "$saves" "$saves"
done
after=$(grep -c saved "$folder/run")
kill -TERM "$process"
wait "$process"
same "status of the run" 143 "$?"
# The run must have retired some of what was read, or nothing was tried.
holds "saves meanwhile" "$after - $before >= 5"

# A folder without a checkpoint is refused as before, and one of a run that ended can be read.
mkdir "$folder/none"
expect 2 generate "$folder/none" --prompt=x
says err "holds no checkpoint"
expect 0 generate "$saves" --prompt="the king" --max-tokens=2

finish
