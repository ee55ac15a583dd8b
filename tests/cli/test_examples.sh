#!/usr/bin/env bash
# The programs of examples/: they use the installed headers alone, train, stop, save and speak.
# EXAMPLES names the folder of the built programs.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"
examples=${EXAMPLES:-$(dirname "$cyclotron")/examples}

if grep -hE '#include' "$source_folder"/examples/*.c | grep -vE '<(cyclotron/[a-z]+|stdio|stdlib|string)\.h>'; then
    echo "FAIL: an example includes what is not installed"
    failures=$((failures + 1))
fi

# Two configurations with one run folder would take each other's metrics.
for config in "$source_folder"/examples/*.json; do
    name=$(basename "$config" .json)
    run_dir=$(sed -n 's/.*"run_dir": "\([^"]*\)".*/\1/p' "$config")
    [ -z "$run_dir" ] || same "run folder of $name" "runs/$name" "$run_dir"
done

"$examples/example_train" "$folder/tiny.json" 5.0 --checkpoint.save_dir="$folder/saves" \
    >"$folder/out" 2>"$folder/err"
same "status of example_train" 0 "$?"
is err ""
says out 'step 1: loss'
says out 'good enough after'
step=$(sed -n 's/^good enough after \([0-9]*\) steps.*/\1/p' "$folder/out")
check "stopped before its last step" test "${step:-9}" -lt 8
check "saved where it stopped" test -e "$(printf '%s/step-%08d/manifest.json' "$folder/saves" "${step:-0}")"

# Every step is told, whatever the log is to have.
"$examples/example_train" "$folder/tiny.json" 0 --training.total_train_steps=5 \
    --logging.log_frequency=4 >"$folder/out" 2>"$folder/err"
same "status of example_train" 0 "$?"
same "steps told" "1 2 3 4 5" "$(sed -n 's/^step \([0-9]*\):.*/\1/p' "$folder/out" | xargs)"

# Under mpirun each process is one rank, and rank zero's tells.
if command -v mpirun >/dev/null && "$cyclotron" --version | grep -q "^backends:.* mpi"; then
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -n 2 \
        "$examples/example_train" "$folder/tiny.json" 0 --training.total_train_steps=2 \
        --distributed.dp_size=2 --distributed.backend=mpi >"$folder/out" 2>"$folder/err"
    same "status of two ranks" 0 "$?"
    same "steps that two ranks told" "1 2" "$(sed -n 's/^step \([0-9]*\):.*/\1/p' "$folder/out" | xargs)"
fi

# Training several times in one process, as threads and under mpirun: the same losses, also after one
# that fails in the middle. With a learning rate of 10 a loss or gradient is soon not finite.
# seeds NAME COMMAND...: what example_seeds prints for two ranks, in $folder/NAME.
seeds() {
    local name=$1
    shift
    "$@" "$examples/example_seeds" "$folder/tiny.json" 3 --training.total_train_steps=2 \
        --distributed.dp_size=2 --training.strict=true >"$folder/$name" 2>"$folder/err"
    same "status of seeds, $name" 0 "$?"
    "$@" "$examples/example_seeds" "$folder/tiny.json" 2 --training.learning_rate=10 \
        --training.warmup_steps=0 --training.lr_schedule=constant --training.lr_decay_steps=null \
        --training.total_train_steps=400 --distributed.dp_size=2 >"$folder/out" 2>"$folder/err"
    same "status of seeds that fail, $name" 1 "$?"
    same "seeds that failed, $name" 2 "$(grep -cE '^seed [12]: .*not finite' "$folder/out")"
}
seeds threads env
same "seeds that were trained" 3 "$(grep -cE '^seed [123]: loss [0-9.]+$' "$folder/threads")"
says threads '3 of 3 seeds'
if command -v mpirun >/dev/null && "$cyclotron" --version | grep -q "^backends:.* mpi"; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    seeds processes mpirun --oversubscribe -n 2
    same "losses of processes" "$(cat "$folder/threads")" "$(cat "$folder/processes")"
fi

"$examples/example_train" "$folder/tiny.json" 0 --training.sed=1 >"$folder/out" 2>"$folder/err"
same "status with a fault" 1 "$?"
says err 'training.sed'

echo "the king" | "$examples/example_generate" "$folder/saves" >"$folder/out" 2>"$folder/err"
same "status of example_generate" 0 "$?"
says out 'the king'
says out ', 32 said)'
"$examples/example_generate" "$folder/nowhere" >"$folder/out" 2>"$folder/err" </dev/null
same "status without a checkpoint" 1 "$?"
says err "$folder/nowhere"

"$examples/example_layer" >"$folder/out" 2>"$folder/err"
same "status of example_layer" 0 "$?"
is err ""
says out 'gradients agree'
# shellcheck disable=SC2016 # awk's
check "it learns" awk '/^step/ { loss[++n] = $4; plain += $4 ~ /^[0-9.]+$/ }
    END { exit !(n == 2 && plain == 2 && loss[2] < loss[1] / 10) }' "$folder/out"
"$examples/example_layer" wrong >"$folder/out" 2>"$folder/err"
same "status with a wrong backward pass" 1 "$?"
says out 'gradients DIFFER'

finish
