#!/usr/bin/env bash
# cyclotron train: signals and a closed pipe end the run after one save that loads, or save and go on.

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
    local blocked=0 tasks=0 mask # HUP 1, INT 2, USR1 10, USR2 12, TERM 15, XCPU 24
    while read -r mask; do
        tasks=$((tasks + 1))
        (((0x$mask & 0x804a03) == 0x804a03)) && blocked=$((blocked + 1))
    done < <(sed -n 's/^SigBlk:\s*//p' "/proc/$process/task/"*/status)
    same "threads that have the signals blocked, of $tasks" "$((tasks - 1))" "$blocked"
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
stop_by HUP 129
stop_by USR2 140
stop_by XCPU 152

# Whoever reads the steps goes away: one save, and the status of a closed pipe.
"$cyclotron" train "$folder/tiny.json" --training.total_train_steps=1000000 \
    --checkpoint.save_dir="$folder/pipe/saves" 2>"$folder/err" | head -n 1 >"$folder/out"
same "status after a closed pipe" 141 "${PIPESTATUS[0]}"
same "saves after a closed pipe" 1 "$(find "$folder/pipe/saves" -name 'step-*' | wc -l)"
says err 'saved step '

# A terminal goes away under a run that ignores the signal of it: what cannot be written any more tells.
if command -v script >/dev/null; then
    cat >"$folder/in_terminal" <<TERMINAL
trap '' HUP
'$cyclotron' train '$folder/tiny.json' --training.total_train_steps=1000000 \\
    --checkpoint.save_dir='$folder/terminal/saves'
echo \$? >'$folder/status'
TERMINAL
    script -qf -c "bash '$folder/in_terminal'" "$folder/typescript" >"$folder/log" 2>&1 </dev/null &
    terminal=$!
    until [ "$(grep -ac 'Step:' "$folder/typescript")" -ge 3 ] || [ -e "$folder/status" ]; do sleep 0.05; done
    kill -KILL "$terminal"
    until [ -s "$folder/status" ]; do sleep 0.05; done
    same "status after a closed terminal" 129 "$(cat "$folder/status")"
    same "saves after a closed terminal" 1 "$(find "$folder/terminal/saves" -name 'step-*' | wc -l)"
else
    echo "no script(1): a closed terminal is not tested"
fi

finish
