#!/usr/bin/env bash
# What is not finite does not leave the program as if it were a number.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

train 0 run --checkpoint.save_dir="$folder/saves" --training.total_train_steps=2
expect 0 checkpoint export "$folder/saves" --dtype=fp32 --out="$folder/good"

# spoilt NAME BYTES: a copy of the model whose last value has these 4 bytes.
spoilt() {
    local file=$folder/$1/model.safetensors
    cp -r "$folder/good" "$folder/$1"
    # shellcheck disable=SC2059 # the bytes are a format
    printf "$2" | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") - 4)) conv=notrunc 2>"$folder/log"
}
spoilt nan '\x00\x00\xc0\x7f'
spoilt large '\xe6\xb1\x61\x7f' # 3e38

# eval: an error instead of a number.
for json in '' --json; do
    expect 1 eval "$folder/nan" "$folder/text.txt" --max-tokens=512 $json
    is out ""
    says err "$folder/nan: the loss over 512 tokens is not finite: so are values of model."
done
expect 0 eval "$folder/good" "$folder/text.txt" --max-tokens=512 --json
check "JSON of eval" grep -qE '^\{"loss": [0-9.]+, "perplexity": [0-9.]+, ' "$folder/out"

# export: neither what is not finite nor what another dtype cannot hold.
for from in "$folder/nan" "$folder/imported"; do
    expect 1 checkpoint export "$from" --out="$folder/out-nan"
    says err "1 of its "
    says err " values are not finite"
    check "$from leaves nothing" test ! -e "$folder/out-nan"
    [ -e "$folder/imported" ] || expect 0 checkpoint import "$folder/nan" --out="$folder/imported"
done
expect 1 checkpoint export "$folder/large" --dtype=fp16 --out="$folder/out-large"
says err "model."
says err ": 1 of its "
says err " values are beyond fp16"
says err "hint: --dtype=stored keeps them as they are"
check "nothing is left" test ! -e "$folder/out-large"
for dtype in bf16 fp32 fp64 stored; do
    expect 0 checkpoint export "$folder/large" --dtype=$dtype --out="$folder/out-$dtype"
done

# A run that begins with such weights ends with their step, and saves nothing.
expect 1 train "$folder/tiny.json" --model.init=pretrained --model.name="$folder/nan" \
    --checkpoint.save_dir="$folder/none" --checkpoint.save_frequency=1
says err "step 1: loss nan"
check "no checkpoint of a run without a finite step" test -z "$(ls "$folder/none" 2>/dev/null)"

# Settings that can only diverge are errors of the configuration, in whatever command reads it.
for setting in learning_rate=1e39 learning_rate=11 learning_rate=-1 learning_rate=nan learning_rate=inf \
    min_learning_rate=1e39 adam_eps=1e-50 adam_eps=0 adam_eps=1e39 adam_beta1=1 adam_beta2=1 \
    adam_beta2=-1 weight_decay=1e39 weight_decay=-1 weight_decay=200 grad_clip=-1 grad_clip=nan; do
    for command in 'config check' train plan 'bench step'; do
        [ "${command%% *}-$setting" = plan-weight_decay=200 ] && continue # a plan has no steps
        [ "$command-$setting" = 'bench step-weight_decay=200' ] && continue
        # shellcheck disable=SC2086 # a command may be two words
        expect 2 $command "$folder/tiny.json" --training.$setting
        says err "training.${setting%%=*} = "
    done
done
expect 2 config check "$folder/tiny.json" --training.weight_decay=200
says err "with learning_rate 0.01 each step multiplies a matrix by -1, so it grows without end"
expect 0 config check "$folder/tiny.json" --training.weight_decay=199
for option in --learning-rate=1e39 '--learning-rate=3 --weight-decay=1'; do
    # shellcheck disable=SC2086 # options
    expect 2 config create --out-dir="$folder" --exp-name=made --model-name=tiny \
        --dataset-name="$folder/text.txt" --total-train-steps=9 $option
    says err "training."
    check "no configuration of $option" test ! -e "$folder/made/config.json"
done

finish
