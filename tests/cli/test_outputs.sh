#!/usr/bin/env bash
# What a command writes replaces an earlier output of its kind and nothing else.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/tiny.sh"

printf 'what another program wrote\n' >"$folder/foreign"
mkdir "$folder/folder"
ln -s "$folder/foreign" "$folder/link"
mkfifo "$folder/pipe"
: >"$folder/empty"

# refuses PATH ARGUMENTS...: the request is refused, what stands at the path stays as it is, and
# nothing is left beside it.
refuses() {
    local path=$1 before
    shift
    before=$(stat -c '%F %i %Y %s' "$path")
    expect 2 "$@"
    says err "$path is "
    says err "it is not replaced"
    says err "  hint: "
    same "$path, after $1" "$before" "$(stat -c '%F %i %Y %s' "$path")"
    same "$path, after $1" 0 "$(find "$(dirname "$path")" -maxdepth 1 -name '.cyclotron*' | wc -l)"
}

schedule=(schedule --engine=1f1b --stages=2 --microbatches=2)
train_tokenizer=(tokenizer train --vocab-size=290 "$folder/text.txt")
expect 0 "${schedule[@]}" --svg="$folder/picture.svg"
expect 0 train "$folder/tiny.json" --logging.run_dir="$folder/run" --training.total_train_steps=2 \
    --checkpoint.save_dir="$folder/saves"
expect 0 metrics "$folder/run" --out="$folder/table.csv"
expect 0 metrics "$folder/run" --json --out="$folder/table.json"

# Each kind replaces itself: links to the earlier file keep it.
ln "$folder/picture.svg" "$folder/earlier.svg"
expect 0 "${schedule[@]}" --svg="$folder/picture.svg"
check "the picture is a new file" test ! "$folder/picture.svg" -ef "$folder/earlier.svg"
expect 0 metrics "$folder/run" --svg="$folder/picture.svg" # a picture is a picture
expect 0 metrics "$folder/run" --out="$folder/table.json"
expect 0 metrics "$folder/run" --json --out="$folder/table.csv"
cp "$folder/tokenizer.json" "$folder/own.json"
expect 0 "${train_tokenizer[@]}" --out="$folder/own.json"
expect 0 train "$folder/run/config.json" --training.total_train_steps=3
expect 0 config create --out-dir="$folder" --exp-name=made
expect 0 config create --out-dir="$folder" --exp-name=made --force

# Nothing else is replaced, be it an output of another kind.
for path in "$folder/foreign" "$folder/folder" "$folder/link" "$folder/pipe" "$folder/empty" /dev/null; do
    refuses "$path" "${schedule[@]}" --svg="$path"
    refuses "$path" metrics "$folder/run" --svg="$path"
    refuses "$path" metrics "$folder/run" --out="$path"
    refuses "$path" "${train_tokenizer[@]}" --out="$path"
    refuses "$path" bench step "$folder/tiny.json" --timeline="$path"
    refuses "$path" bench step "$folder/tiny.json" --schedule-svg="$path"
done
refuses "$folder/own.json" "${schedule[@]}" --svg="$folder/own.json"
refuses "$folder/picture.svg" "${train_tokenizer[@]}" --out="$folder/picture.svg"
refuses "$folder/picture.svg" bench step "$folder/tiny.json" --timeline="$folder/picture.svg"

# Nor an input.
refuses "$folder/run/metrics.jsonl" metrics "$folder/run" --out="$folder/run/metrics.jsonl"
refuses "$folder/run/metrics.jsonl" metrics "$folder/run" --svg="$folder/run/metrics.jsonl"
refuses "$folder/text.txt" tokenizer train --vocab-size=290 "$folder/text.txt" --out="$folder/text.txt"
refuses "$folder/tiny.json" bench step "$folder/tiny.json" --timeline="$folder/tiny.json"
printf 'run_name,status,dp,tp,pp\n' >"$folder/run/metrics.csv" # of picotron's columns
refuses "$folder/run/metrics.csv" metrics "$folder/run" --per-run

# A tokenizer of the tokenizers library has no newline at its end.
printf '%s' "$(cat "$folder/own.json")" >"$folder/theirs.json"
refuses "$folder/theirs.json" "${train_tokenizer[@]}" --out="$folder/theirs.json"

# A folder whose config.json is a model's, a run's of picotron, or written by hand is no run folder.
for text in '{"architectures": ["LlamaForCausalLM"], "hidden_size": 32}' \
    "$(printf '{\n    "distributed": {\n        "tp_size": 1,\n        "cp_size": 1\n    }\n}\n')"; do
    printf '%s\n' "$text" >"$folder/folder/config.json"
    refuses "$folder/folder/config.json" train "$folder/tiny.json" --logging.run_dir="$folder/folder"
    says err "give the run a folder of its own"
    says err "logging.run_dir = \"$folder/folder\": $folder/folder/config.json is there"
    expect 2 config check "$folder/tiny.json" --logging.run_dir="$folder/folder"
    says err "logging.run_dir = \"$folder/folder\": $folder/folder/config.json is there"
    same "files of that folder" "config.json" "$(find "$folder/folder" -mindepth 1 -printf '%f\n' | sort | xargs)"
done
cp "$folder/tiny.json" "$folder/made/config.json"
refuses "$folder/made/config.json" config create --out-dir="$folder" --exp-name=made --force

# Many at once: each writes a file of its own, and one of them is there in the end.
for i in 1 2 3 4 5 6 7 8; do
    "$cyclotron" "${schedule[@]}" --svg="$folder/many.svg" >"$folder/many.$i" 2>&1 &
    echo $! >>"$folder/many.pids"
done
while read -r pid; do
    wait "$pid" || check "one of eight pictures" false
done <"$folder/many.pids"
check "the picture of eight is whole" grep -q '</svg>' "$folder/many.svg"
same "what is left beside it" 0 "$(find "$folder" -maxdepth 1 -name '.cyclotron*' | wc -l)"

# So do exports to one folder, of which one is there in the end and the others are refused.
for i in 1 2 3 4; do
    "$cyclotron" checkpoint export "$folder/saves" --out="$folder/exported" >"$folder/export.$i" 2>&1 &
    echo $! >>"$folder/exports"
done
done=0
while read -r pid; do
    wait "$pid" && done=$((done + 1))
done <"$folder/exports"
same "exports of four that succeed" 1 "$done"
same "what says so" 3 "$(cat "$folder"/export.? | grep -c 'exported is there .*: it is not written over')"
check "the folder is whole" test -e "$folder/exported/model.safetensors"
same "what is left beside it" 0 "$(find "$folder" -maxdepth 1 -name '.exported*' | wc -l)"
same "what is in it" 0 "$(find "$folder/exported" -name '.*' -type f | wc -l)"

# A name may be as long as names can be.
long="$folder/$(printf 'n%.0s' {1..251}).svg"
expect 0 "${schedule[@]}" --svg="$long"
check "a long name" grep -q '</svg>' "$long"
for name in "$(printf 'n%.0s' {1..255})" "$(printf '\303\244%.0s' {1..127})"; do
    expect 0 checkpoint export "$folder/saves" --out="$folder/$name"
    check "a folder of a long name" test -e "$folder/$name/model.safetensors"
done
same "what is left beside them" 0 "$(find "$folder" -maxdepth 1 -name '.*.tmp' | wc -l)"

finish
