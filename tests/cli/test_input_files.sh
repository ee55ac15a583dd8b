#!/usr/bin/env bash
# Where a file is meant, only a regular file is taken: a pipe that nobody writes to, a folder, a device
# or a socket is an error at once and never a wait. Texts may come from pipes where they are read once.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

mkfifo "$folder/pipe" "$folder/pipe.bin" "$folder/pipe.txt"
saves=(--checkpoint.save_dir="$folder/saves" --checkpoint.save_frequency=2
    --training.total_train_steps=2)
train 0 run "${saves[@]}"
expect 0 checkpoint export "$folder/saves" --out="$folder/hf"
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/shards" "$folder/text.txt"

# refused STATUS PATH ARGUMENTS...: the command says that PATH is a pipe.
refused() {
    local path=$2
    expect "$1" "${@:3}"
    says err "$path is a pipe, not a regular file"
}

# replaced FILE ...: FILE is a pipe while `refused` looks at it.
replaced() {
    local status=$1 file=$2
    mv "$file" "$file.kept"
    mkfifo "$file"
    refused "$status" "$file" "${@:3}"
    mv "$file.kept" "$file"
}

# Configurations, tokenizers, schedules.
refused 2 "$folder/pipe" config check "$folder/pipe"
refused 2 "$folder/pipe" train "$folder/pipe"
refused 2 "$folder/pipe" plan "$folder/pipe"
refused 1 "$folder/pipe" tokenizer encode "$folder/pipe" "$folder/text.txt"
refused 1 "$folder/pipe" schedule --engine=csv --csv="$folder/pipe" --stages=2 --microbatches=2
refused 2 "$folder/pipe" config check "$folder/tiny.json" --dataset.tokenizer="$folder/pipe"

# What a run trains on is read by each of its processes.
for name in pipe pipe.bin; do
    refused 2 "$folder/$name" config check "$folder/tiny.json" --dataset.name="$folder/$name"
    refused 1 "$folder/$name" train "$folder/tiny.json" --dataset.name="$folder/$name"
done
replaced 1 "$folder/shards/shard-00000.tokens" data inspect "$folder/shards"

# Models of other programs and our own checkpoints.
replaced 1 "$folder/hf/model.safetensors" checkpoint inspect "$folder/hf"
replaced 1 "$folder/hf/config.json" checkpoint inspect "$folder/hf"
replaced 1 "$folder/hf/model.safetensors" generate "$folder/hf" --prompt=a --max-tokens=1
replaced 1 "$folder/hf/tokenizer.json" generate "$folder/hf" --prompt=a --max-tokens=1
replaced 1 "$folder/hf/tokenizer.json" checkpoint import "$folder/hf" --out="$folder/imported"
saved=$(echo "$folder"/saves/step-*)
replaced 1 "$saved/manifest.json" checkpoint verify "$saved"
for file in "$saved"/*.safetensors; do # a size that differs is found before a file is opened
    mv "$file" "$file.kept"
    mkfifo "$file"
    expect 1 checkpoint verify "$saved"
    says err "${file##*/} has 0 bytes"
    mv "$file.kept" "$file"
done

# Folders and devices.
expect 1 tokenizer encode "$folder/tokenizer.json" "$folder"
says err "$folder is a folder, not a regular file"
expect 2 config check /dev/zero
says err "/dev/zero is a device, not a regular file"
expect 1 tokenizer train --vocab-size=300 --out="$folder/other.json" /dev/zero
says err "/dev/zero is a device, not a regular file"

# A text that is read once may come through a pipe.
cat "$folder/text.txt" >"$folder/pipe.txt" &
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/piped" "$folder/pipe.txt"
wait
check "the shards of a pipe" cmp "$folder/piped/shard-00000.tokens" "$folder/shards/shard-00000.tokens"
"$cyclotron" tokenizer encode "$folder/tokenizer.json" <"$folder/text.txt" >"$folder/out" \
    2>"$folder/err"
check "tokens of standard input" test -s "$folder/out"

# A compressed file of some kilobytes may hold gigabytes: no line is longer than 64 MiB.
head -c 70000000 /dev/zero | tr '\0' a | gzip -1 >"$folder/long.txt.gz"
cp "$folder/long.txt.gz" "$folder/long.jsonl.gz"
head -c 140000000 /dev/zero | tr '\0' '\n' | gzip -1 >"$folder/empty.txt.gz"
prepare=(data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/long")
expect 1 "${prepare[@]}" "$folder/long.txt.gz"
says err "long.txt.gz: a line of more than 67108864 bytes"
expect 1 "${prepare[@]}" "$folder/long.jsonl.gz"
says err "long.jsonl.gz: line 1 has more than 67108864 bytes"
expect 1 "${prepare[@]}" "$folder/empty.txt.gz"
says err "empty.txt.gz: more than 67108864 bytes without a place to cut the text"
expect 1 tokenizer train --vocab-size=300 --out="$folder/other.json" "$folder/long.txt.gz"
says err "long.txt.gz: a line of more than 67108864 bytes"
check "no shards of what is refused" test ! -e "$folder/long"

# A line of a config.json must not cost minutes and gigabytes.
expect 0 train "$folder/tiny.json" --checkpoint.save_dir="$folder/saves"
expect 0 checkpoint export "$folder/saves" --out="$folder/deep"
sed -i 's/"num_hidden_layers": *2/"num_hidden_layers": 1000000/' "$folder/deep/config.json"
expect 2 generate "$folder/deep" --prompt=king
says err "num_hidden_layers is 1000000, models have at most 65536"

# A stack that is too small is said, not run into; the threads do not inherit it.
(
    ulimit -S -s 128
    expect 2 train "$folder/tiny.json"
    is err "cyclotron: error: the stack is limited to 128 KiB, 512 KiB are needed
  hint: 'ulimit -s 8192' before the program, or more"
    ulimit -S -s 512
    expect 0 train "$folder/tiny.json" --distributed.dp_size=2 --distributed.pp_size=2
    exit "$failures"
)
failures=$((failures + $?))

finish
