#!/usr/bin/env bash
# cyclotron generate, eval and bench decode on a checkpoint of a tiny model.

# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/cli/tiny.sh
. "$(dirname "$0")/tiny.sh"

train 0 run --checkpoint.save_dir="$folder/saves" --logging.eval_frequency=8 \
    --training.total_train_steps=8
saved=$folder/saves/step-00000008

# ---- generate

started=$(date +%s.%N)
expect 0 generate "$saved" --prompt="the king" --max-tokens=12 --temperature=0 --json --threads=1
ended=$(date +%s.%N)
is err ""
same "fields" "prompt text tokens prefill_s decode_tok_s" \
    "$(grep -oE '"[a-z_]+":' "$folder/out" | tr -d '":' | xargs)"
says out '"prompt": "the king"'
tokens=$(grep -oE '\[[0-9, ]*\]' "$folder/out")
# What the first token and the eleven behind it took is part of what the process took.
holds "both times are within the process's" "$(value prefill_s) > 0 && $(value decode_tok_s) > 0 &&
    $(value prefill_s) + 11 / $(value decode_tok_s) < $ended - $started"
same "how many tokens" 12 "$(tr -cd ',' <<<"$tokens" | wc -c | awk '{ print $1 + 1 }')"
text=$(sed 's/.*"text": "\(.*\)", "tokens".*/\1/' "$folder/out")

# The same from the folder of checkpoints, in plain words, with the prompt before them.
expect 0 generate "$folder/saves" --prompt="the king" --max-tokens=12 --temperature=0
is err ""
same "plain text" "the king$text" "$(sed ':a; N; $!ba; s/\n/\\n/g' "$folder/out" | sed 's/\\n$//')"

# The draw is a function of the seed.
generated() {
    expect 0 generate "$saved" --prompt="said" --max-tokens=20 --seed="$1" --json
    grep -oE '\[[0-9, ]*\]' "$folder/out"
}
first=$(generated 5)
same "one seed twice" "$first" "$(generated 5)"
[ "$first" != "$(generated 6)" ] || { echo "FAIL: two seeds, one text"; failures=$((failures + 1)); }

# The model has 320 ids, the tokenizer 300: what is drawn almost evenly is among those.
expect 0 generate "$saved" --prompt="a" --max-tokens=63 --temperature=1e6 --json
drawn=$(grep -oE '\[[0-9, ]*\]' "$folder/out" | tr -d '[],' | tr ' ' '\n' | sort -n)
holds "ids that the tokenizer has" "$(tail -1 <<<"$drawn") < 300 && $(wc -l <<<"$drawn") > 20"

# Nothing is asked for.
expect 0 generate "$saved" --prompt="a" --max-tokens=0 --json
says out '"text": "", "tokens": []'

# A full context ends the text; a prompt that is longer is an error with both numbers.
expect 0 generate "$saved" --prompt="the king" --max-tokens=500 --temperature=0 --json
long=$(script_text 20 | tr '\n' ' ')
expect 2 generate "$saved" --prompt="$long"
is out ""
check "both numbers" grep -qE 'the prompt has [0-9]+ tokens, the context has room for 64' "$folder/err"
expect 2 generate "$saved" --prompt=""
says err 'the prompt is empty'
expect 2 generate "$saved" --prompt="a" --dtype=fp8
says err 'dtype fp8'
expect 2 generate "$saved" --prompt="a" --dtype=int32
says err 'dtype int32'
expect 2 generate "$saved" --prompt="the king" --context=1
says err 'hint: the model has more positions'
expect 2 generate "$folder/nowhere" --prompt="a"
says err "$folder/nowhere"

# Bytes that are not UTF-8 are read as bytes.
expect 0 generate "$saved" --prompt="$(printf '\377\200')" --max-tokens=3

# What is damaged is named, status 1.
cp -r "$saved" "$folder/cut"
head -c 500 "$saved/tokenizer.json" >"$folder/cut/tokenizer.json"
expect 1 generate "$folder/cut" --prompt="a"
says err "$folder/cut"
says err '1 of its files are not as they were: tokenizer.json has 500 bytes'
cp "$saved/tokenizer.json" "$folder/cut/"
file=$(find "$folder/cut" -name '*.safetensors' | head -n 1)
truncate -s 300 "$file"
expect 1 generate "$folder/cut" --prompt="a"
says err "$(basename "$file")"

# A Hugging Face folder says the same.
expect 0 checkpoint export "$saved" --out="$folder/hf"
expect 0 generate "$folder/hf" --prompt="the king" --max-tokens=12 --temperature=0 --json --dtype=fp32
same "tokens of the exported model" "$tokens" "$(grep -oE '\[[0-9, ]*\]' "$folder/out")"

# A tokenizer may know more than the model, which has rows for 320 tokens; a prompt may not use it.
for id in 319 320; do
    cp -r "$folder/hf" "$folder/hf$id"
    sed -i "0,/\"added_tokens\": *\[/s//&{\"id\": $id, \"content\": \"<|far|>\", \"single_word\": false, \
\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": true},/" \
        "$folder/hf$id/tokenizer.json"
done
expect 0 generate "$folder/hf319" --prompt="the king<|far|>" --max-tokens=2
expect 2 generate "$folder/hf320" --prompt="the king<|far|>" --max-tokens=2
says err "the prompt's token 320 is not among the 320 that the model knows"

# ---- eval

close() {
    if ! awk -v a="$2" -v b="$3" 'BEGIN { d = a > b ? a - b : b - a; exit !(a != "" && d <= 1e-5 * a) }'; then
        echo "FAIL: $1: $2 and $3"
        failures=$((failures + 1))
    fi
}
expect 0 eval "$saved" "$folder/text.txt" --json
is err ""
same "fields" "loss perplexity bits_per_byte tokens" \
    "$(grep -oE '"[a-z_]+":' "$folder/out" | tr -d '":' | xargs)"
loss=$(value loss)
close "the loss of the run's own evaluation" "$loss" \
    "$(grep -oE '"val_loss":[0-9.]+' "$folder/run/metrics.jsonl" | tail -n 1 | sed 's/.*://')"
close "perplexity" "$(value perplexity)" "$(awk "BEGIN { printf \"%.12g\", exp($loss) }")"
held_out=$(value tokens)
expect 0 eval "$saved" "$folder/text.txt" --json --validation-fraction=0
check "more tokens without a held-out part" test "$(value tokens)" -gt "$((held_out * 5))"
# All of the text: bits per byte follow from its size, but for the tokens after the last sample.
bytes=$(wc -c <"$folder/text.txt")
if ! awk -v b="$(value bits_per_byte)" -v l="$(value loss)" -v t="$(value tokens)" -v n="$bytes" \
    'BEGIN { r = b / (l / log(2) * t / n); exit !(r > 0.98 && r < 1.05) }'; then
    echo "FAIL: bits per byte $(value bits_per_byte) of $bytes bytes"
    failures=$((failures + 1))
fi
expect 0 eval "$folder/hf" "$folder/text.txt" --json --seq-length=32 --validation-fraction=0.1
close "the loss of the exported model" "$loss" "$(value loss)"
expect 0 eval "$folder/hf" "$folder/text.txt" --json # its sequences: all of its 64 positions
expect 2 eval "$folder/hf" "$folder/text.txt" --seq-length=65
says err 'a sample of 65 tokens, the model has 64 positions'

# Weights alone are compared as such, whichever comes first.
expect 0 checkpoint compare "$saved" "$folder/hf" --within=0
says out "adam_m      none in $folder/hf"
expect 0 checkpoint compare "$folder/hf" "$saved" --within=0

# What was imported is evaluated and trained on as the folder is.
check "the end token of the exported model" grep -q '"eos_token_id": 0,' "$folder/hf/generation_config.json"
# A source that cannot be read leaves the place as it was, and a folder that is there and empty serves.
mkdir "$folder/imported"
expect 2 checkpoint import "$folder/nothing" --out="$folder/imported"
expect 2 checkpoint import "$folder/nothing" --out="$folder/new/place"
expect 2 checkpoint export "$folder/nothing" --out="$folder/new/place"
check "the empty folder is still there" test -d "$folder/imported"
check "no folder was made for nothing" test ! -e "$folder/new"
ln -s imported "$folder/link"
expect 2 checkpoint import "$folder/hf" --out="$folder/link"
says err 'link is there already'
expect 0 checkpoint import "$folder/hf" --out="$folder/imported"
expect 0 eval "$folder/imported" "$folder/text.txt" --json --seq-length=32 --validation-fraction=0.1
close "the loss of the imported model" "$loss" "$(value loss)"
expect 0 eval "$folder/imported" "$folder/text.txt" --json
train 0 from_hf --checkpoint.load_path="$folder/hf" --training.total_train_steps=1
train 0 from_import --checkpoint.load_path="$folder/imported" --training.total_train_steps=1
says err "starting with the weights of $folder/imported"
same "the first step of the two" "$(losses from_hf)" "$(losses from_import)"
expect 0 eval "$saved" "$folder/text.txt"
says out 'bits per byte'
expect 2 eval "$saved" "$folder/nothing.txt"
says err "$folder/nothing.txt"
# A path that the configuration has no room for is not cut.
far="$folder/$(printf './%.0s' {1..512})text.txt"
expect 2 eval "$saved" "$far"
says err "$far: a path of ${#far} bytes, at most 1023 are taken"
expect 1 eval "$folder/cut" "$folder/text.txt"
says err "$(basename "$file")"

# ---- bench decode

expect 0 bench decode "$saved" --json --prompt-tokens=16 --tokens=8 --repeats=3
is err ""
for name in first_token_ms decode_tok_s weights_gb_s beside_gb_s share_beside; do
    holds "$name" "$(value "$name") > 0"
done
same "the numbers asked for" "16 8" "$(value prompt_tokens) $(value tokens)"
# Every weight is read once a token: a tied table is the head's matrix. In two layers of 32 that is
# 320 x 32 + 2 x (64 x 32 + 32 x 32 + 3 x 64 x 32 + 2 x 32) + 32 of four bytes.
bytes="$(value weights_gb) * 2 ^ 30"
holds "bytes of the weights" "$bytes > 115327 && $bytes < 115329"
ratio="$(value weights_gb_s) / $(value weights_gb) / $(value decode_tok_s)"
holds "bytes a second" "$ratio > 0.9999 && $ratio < 1.0001"
least=$(value decode_tok_s_min) median=$(value decode_tok_s) most=$(value decode_tok_s_max)
holds "the median between the slowest and the fastest" \
    "$least > 0 && $least <= $median && $median <= $most && $most < 1e6 * $least"
expect 0 bench decode "$saved" --json --repeats=1 # half of the model's positions each
same "one run is all of them" "$(value decode_tok_s) $(value decode_tok_s)" \
    "$(value decode_tok_s_min) $(value decode_tok_s_max)"
ratio="$(value weights_gb_s) / $(value beside_gb_s) / $(value share_beside)"
holds "the share of reading beside it" "$ratio > 0.999 && $ratio < 1.001"
same "the numbers chosen" "32 32" "$(value prompt_tokens) $(value tokens)"
expect 2 bench decode "$saved" --prompt-tokens=60 --tokens=8
says err "a prompt of 60 and 8 tokens do not fit into the model's 64 positions"

finish
