#!/usr/bin/env bash
# A run that starts from a checkpoint is compared with it: tokenizer, data and the order of samples.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

# tells COUNT: the lines of the last run on what differs.
tells() {
    local lines
    lines=$(grep -E 'from here on|is other data|as checkpoint.accept|no fingerprint' "$folder/err")
    if [ "$(grep -c . <<<"$lines")" != "$1" ]; then
        echo "FAIL: not $1 lines on what differs:"
        sed 's/^/    /' "$folder/err"
        failures=$((failures + 1))
    fi
}

cp "$folder/text.txt" "$folder/first.txt"
train 0 run --checkpoint.save_dir="$folder/saves" --training.total_train_steps=2
saved=$folder/saves/step-00000002
resume=(--checkpoint.load_path="$saved" --training.total_train_steps=3)
"$cyclotron" tokenizer train --vocab-size=310 --out="$folder/other.json" "$folder/text.txt" >"$folder/log"

# ---- what is no difference

train 0 same "${resume[@]}"
tells 0
mkdir "$folder/moved"
cp "$folder/text.txt" "$folder/moved/elsewhere.txt"
# Laid out otherwise: a space behind every line's end, which no string holds.
sed 's/^/ /' "$folder/tokenizer.json" >"$folder/moved/laid-out.json"
cmp -s "$folder/tokenizer.json" "$folder/moved/laid-out.json" && check "another layout" false
train 0 moved "${resume[@]}" --dataset.name="$folder/moved/elsewhere.txt" \
    --dataset.tokenizer="$folder/moved/laid-out.json"
tells 0
same "the same steps" "$(losses same)" "$(losses moved)"
# The same tokens in shards.
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/whole" "$folder/text.txt"
train 0 in-shards "${resume[@]}" --dataset.name="$folder/whole"
tells 0
# Cut in two ways, and one shard under another name.
head -1000 "$folder/text.txt" >"$folder/part.txt"
texts=("$folder/text.txt" "$folder/part.txt")
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/shards" "${texts[@]}"
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/cut" --shard-tokens=9000 \
    "${texts[@]}"
check "several shards" test -e "$folder/cut/shard-00001.tokens"
train 0 run2 --dataset.name="$folder/shards" --checkpoint.save_dir="$folder/saves2" \
    --training.total_train_steps=2
resume_shards=(--checkpoint.load_path="$folder/saves2" --training.total_train_steps=3)
train 0 in-cut "${resume_shards[@]}" --dataset.name="$folder/cut"
tells 0
cp "$folder/shards/shard-00000.tokens" "$folder/one.bin"
train 0 one "${resume_shards[@]}" --dataset.name="$folder/one.bin"
tells 0

# ---- another tokenizer

for start in "${resume[*]}" "--checkpoint.load=weights ${resume[*]}"; do
    # shellcheck disable=SC2086 # several options
    train 2 refused $start --dataset.tokenizer="$folder/other.json"
    says err 'was trained with another tokenizer'
    says err 'hint: checkpoint.accept = tokenizer'
    # shellcheck disable=SC2086
    train 2 refused $start --dataset.tokenizer="$folder/other.json" --checkpoint.accept=data
    # shellcheck disable=SC2086
    train 0 accepted $start --dataset.tokenizer="$folder/other.json" --checkpoint.accept=tokenizer
    says err 'was trained with another tokenizer, as checkpoint.accept allows'
done
expect 0 data prepare --tokenizer="$folder/other.json" --out="$folder/foreign" "$folder/text.txt"
train 2 refused "${resume[@]}" --dataset.name="$folder/foreign" \
    --dataset.tokenizer="$folder/foreign/tokenizer.json"
says err 'was trained with another tokenizer'
# A folder that brings its tokenizer, itself and imported.
expect 0 checkpoint export "$saved" --out="$folder/hf"
expect 0 checkpoint import "$folder/hf" --out="$folder/imported"
for start in "--model.init=pretrained --model.name=$folder/hf" "--checkpoint.load_path=$folder/imported" \
    "--checkpoint.load_path=$folder/hf"; do
    # shellcheck disable=SC2086
    train 0 began $start --training.total_train_steps=1
    tells 0
    # shellcheck disable=SC2086
    train 2 refused $start --training.total_train_steps=1 --dataset.tokenizer="$folder/other.json"
    says err 'was trained with another tokenizer'
done

# ---- other data

# A word is another one of as many tokens: the same size, other content.
sed '1500s/king/said/; 1500s/all/and/; 1501s/king/said/; 1501s/all/and/' "$folder/first.txt" >"$folder/text.txt"
same "size" "$(wc -c <"$folder/first.txt")" "$(wc -c <"$folder/text.txt")"
cmp -s "$folder/first.txt" "$folder/text.txt" && check "another text" false
train 2 refused "${resume[@]}"
says err 'text.txt has changed since'
says err 'hint: checkpoint.accept = data'
expect 2 config check "$folder/tiny.json" "${resume[@]}"
says err 'text.txt has changed since'
expect 0 config check "$folder/tiny.json" "${resume[@]}" --checkpoint.accept=data
train 2 refused "${resume[@]}" --checkpoint.accept=tokenizer
for accept in data all; do
    train 0 accepted "${resume[@]}" --checkpoint.accept=$accept
    tells 1
done
train 0 weights "${resume[@]}" --checkpoint.load=weights
tells 0
head -2000 "$folder/first.txt" >"$folder/text.txt"
train 2 refused "${resume[@]}"
says err 'text.txt has changed since'
# Other data under another name is a choice, and so is more of it.
sed 's/king/said/' "$folder/first.txt" >"$folder/changed.txt"
train 0 chosen "${resume[@]}" --dataset.name="$folder/changed.txt"
tells 1
says err 'is other data than'
cp "$folder/first.txt" "$folder/text.txt"
script_text 100 >>"$folder/text.txt"
train 0 grown "${resume[@]}"
tells 1
says err "tokens behind the"
cp "$folder/first.txt" "$folder/text.txt"
# A shard whose tokens changed, with the check that its header then has.
mv "$folder/shards" "$folder/shards.first"
texts[0]=$folder/changed.txt
expect 0 data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/shards" "${texts[@]}"
train 2 refused "${resume_shards[@]}" --dataset.name="$folder/shards"
says err 'shards has changed since'

# ---- the order

for setting in training.seed=2 dataset.validation_fraction=0.2 training.seq_length=16 \
    training.num_samples=64 training.gradient_accumulation_steps=4; do
    train 0 order "${resume[@]}" --$setting
    tells 1
    says err 'from here on samples come in another order'
done
train 0 order "${resume[@]}" --training.gradient_accumulation_steps=1 --distributed.dp_size=2
tells 0
train 0 two "${resume[@]}" \
    --dataset.name="[{\"path\":\"$folder/text.txt\"},{\"path\":\"$folder/first.txt\"}]"
tells 1
says err 'the data has 2 sources'
two() {
    echo "--dataset.name=[{\"path\":\"$folder/text.txt\",\"weight\":$1},{\"path\":\"$folder/first.txt\",\"weight\":$2}]"
}
train 0 run3 "$(two 1 3)" --checkpoint.save_dir="$folder/saves3" --training.total_train_steps=2
resume_two=(--checkpoint.load_path="$folder/saves3" --training.total_train_steps=3)
train 0 shares "${resume_two[@]}" "$(two 2 6)"
tells 0
train 0 shares "${resume_two[@]}" "$(two 2 5)"
tells 1
says err 'the weights of dataset.name'

# ---- the settings

# settings COUNT: lines of the last run on settings that are others.
settings() {
    same "lines on settings" "$1" "$(grep -c '^cyclotron: .* is .*, .* was trained with [^:]*$' "$folder/err")"
}
train 0 same "${resume[@]}"
settings 0
for setting in training.learning_rate=0.02 training.min_learning_rate=0.001 training.warmup_steps=1 \
    training.lr_decay_steps=9 training.weight_decay=0.1 training.adam_beta1=0.8 training.adam_beta2=0.95 \
    training.adam_eps=1e-6 training.grad_clip=0.5 training.strict=true model.dtype=bf16 \
    distributed.compression=int8; do
    train 0 setting "${resume[@]}" --$setting
    settings 1
    says err "cyclotron: ${setting%=*} is "
done
says err "cyclotron: distributed.compression is \"int8\", $saved was trained with \"none\""
train 0 setting "${resume[@]}" --checkpoint.load=weights --training.learning_rate=0.02
settings 0
# Where the learning rate falls to the end of the run, a later end is another rate.
train 0 run4 --checkpoint.save_dir="$folder/saves4" --training.total_train_steps=2 \
    --training.lr_decay_steps=null
train 0 end --checkpoint.load_path="$folder/saves4" --training.total_train_steps=3 \
    --training.lr_decay_steps=null
settings 1
says err "cyclotron: training.total_train_steps is 3, $folder/saves4/step-00000002 was trained with 2"

# ---- what shows it

expect 0 checkpoint inspect "$saved"
check "a tokenizer" grep -qE '^tokenizer   [0-9a-f]{16}$' "$folder/out"
check "the data" grep -qE '^data        [0-9a-f]{16}, [0-9]+ tokens of .*/text.txt$' "$folder/out"
says out 'order       seed 42, 8 samples of 32 tokens a step, validation fraction 0.1'
expect 0 checkpoint inspect "$saved" --json
check "JSON" grep -qE '"identity":\{' "$folder/out"

# ---- generate and eval

for command in "generate $saved --prompt=king --max-tokens=2" "eval $saved $folder/text.txt --max-tokens=64"; do
    # shellcheck disable=SC2086
    expect 0 $command
    is err ""
done
expect 2 eval "$saved" "$folder/foreign" --max-tokens=64
says err 'was prepared with another tokenizer'
says err '--accept-tokenizer'
expect 0 eval "$saved" "$folder/foreign" --max-tokens=64 --accept-tokenizer
expect 0 eval "$saved" "$folder/cut" --max-tokens=64
# The hash in the shards' headers says who made them, not the tokenizer.json that was put beside them.
cp "$folder/tokenizer.json" "$folder/foreign/tokenizer.json"
expect 2 eval "$saved" "$folder/foreign" --max-tokens=64
says err 'was prepared with another tokenizer'
cp -r "$saved" "$folder/swapped"
# Of as many bytes, so that the size of the file does not tell: two tokens change places.
sed -E 's/"a":/@:/; s/"b":/"a":/; s/@:/"b":/' "$saved/tokenizer.json" >"$folder/swapped/tokenizer.json"
same "size" "$(wc -c <"$saved/tokenizer.json")" "$(wc -c <"$folder/swapped/tokenizer.json")"
cmp -s "$saved/tokenizer.json" "$folder/swapped/tokenizer.json" && check "swapped tokens" false
for command in "generate $folder/swapped --prompt=king --max-tokens=2" \
    "eval $folder/swapped $folder/text.txt --max-tokens=64"; do
    # shellcheck disable=SC2086
    expect 2 $command
    says err 'is not the tokenizer that the model was trained with'
done

finish
