#!/usr/bin/env bash
# cyclotron train: Ctrl-C and SIGTERM end the run after a save that loads.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

stop_by() {
    local signal=$1 wanted=$2
    local name=stopped_$signal
    "$cyclotron" train "$folder/tiny.json" --logging.run_dir="$folder/$name" \
        --training.total_train_steps=1000000 --checkpoint.save_dir="$folder/$name/saves" \
        >"$folder/out" 2>"$folder/err" &
    local process=$!
    for _ in $(seq 1200); do
        [ "$(wc -l <"$folder/out")" -ge 3 ] && break
        sleep 0.05
    done
    # A library's kernels may use the stack pointer for other things, so no thread that computes
    # may be made to run a handler: one thread alone waits for signals.
    local blocked=0 tasks=0 mask
    while read -r mask; do
        tasks=$((tasks + 1))
        (((0x$mask & 0x4002) == 0x4002)) && blocked=$((blocked + 1))
    done < <(sed -n 's/^SigBlk:\s*//p' "/proc/$process/task/"*/status)
    same "threads that have both signals blocked, of $tasks" "$((tasks - 1))" "$blocked"
    kill -"$signal" "$process"
    if [ "$signal" = INT ]; then # as `timeout` does it: the process, then its group
        sleep 0.002
        kill -INT "$process" 2>/dev/null
    fi
    wait "$process"
    same "status after SIG$signal" "$wanted" "$?"
    local step
    step=$(tail -n 1 "$folder/out" | sed 's/.*Step: \([0-9]*\).*/\1/')
    says err "saved step $step in $folder/$name/saves"
    train 0 "$name" --checkpoint.load_path="$folder/$name/saves" \
        --training.total_train_steps="$((step + 1))"
    same "the step after SIG$signal" "$((step + 1))" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out")"
}
stop_by INT 130
stop_by TERM 143

finish
