#!/usr/bin/env bash
# cyclotron train: a token file that becomes shorter ends the run with its name, after one save of
# the last good step, on every mesh.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/whole" "$folder/text.txt"
ranks=

# cut NAME BYTES OPTIONS...: trains in $folder/NAME until some steps are done, cuts the shard to so
# many bytes, and looks at the end of the run.
cut() {
    local name=$1 bytes=$2 shard="$folder/$1/data/shard-00000.tokens" step
    shift 2
    mkdir "$folder/$name"
    cp -r "$folder/whole" "$folder/$name/data"
    # shellcheck disable=SC2086 # $ranks is words
    timeout 240 $ranks "$cyclotron" train "$folder/tiny.json" --dataset.name="$folder/$name/data" \
        --dataset.tokenizer= --checkpoint.save_dir="$folder/$name/saves" \
        --training.total_train_steps=1000000 "$@" >"$folder/out" 2>"$folder/err" </dev/null &
    local process=$!
    for _ in $(seq 1200); do
        [ "$(wc -l <"$folder/out")" -ge 3 ] && break
        sleep 0.05
    done
    truncate -s "$bytes" "$shard"
    wait "$process"
    same "status of $name" 1 "$?"
    says err "$shard has $bytes bytes, it had "
    step=$(grep 'Step:' "$folder/out" | tail -n 1 | sed 's/.*Step: \([0-9]*\).*/\1/')
    says err "saved step $step in $folder/$name/saves"
    same "saves of $name" 1 "$(find "$folder/$name/saves" -name 'step-*' | wc -l)"
    # The run goes on from there once the data is back.
    cp "$folder/whole/shard-00000.tokens" "$shard"
    expect 0 train "$folder/tiny.json" --dataset.name="$folder/$name/data" --dataset.tokenizer= \
        --checkpoint.load_path="$folder/$name/saves" --training.total_train_steps="$((step + 1))"
    same "the step after $name" "$((step + 1))" "$(sed 's/.*Step: \([0-9]*\).*/\1/' "$folder/out")"
}

cut alone 64
cut replicas 1000 --distributed.dp_size=2
cut mesh 64 --distributed.tp_size=2 --distributed.pp_size=2 --distributed.threads_per_rank=1
if command -v mpirun >/dev/null && "$cyclotron" --version | grep -q 'backends.*mpi'; then
    ranks="mpirun --allow-run-as-root --oversubscribe -n 2"
    cut processes 1000 --distributed.dp_size=2
    ranks=
fi

# The validation part is at the end: training does not meet that it is gone, an evaluation does.
size=$(stat -c %s "$folder/whole/shard-00000.tokens")
cut validation "$((size - 4))" --logging.eval_frequency=5 --dataset.validation_fraction=0.01 \
    --distributed.dp_size=2

# Other commands name the file, too.
cp -r "$folder/whole" "$folder/short"
truncate -s 1000 "$folder/short/shard-00000.tokens"
expect 1 data inspect "$folder/short"
says err "$folder/short/shard-00000.tokens: 936 bytes of tokens, the header says "

finish
