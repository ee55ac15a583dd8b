#!/usr/bin/env bash
# How long inputs take that are long, deep or wrong, at a tenth of a size and at the size: time that grows
# with the square of an input would be seen here. Prints a line an input; uses CYCLOTRON or build/cyclotron.
set -u
cyclotron=${CYCLOTRON:-build/cyclotron}
folder=$(mktemp -d "${TMPDIR:-/tmp}/cyclotron-inputs-XXXXXX")
trap 'rm -rf "$folder"' EXIT

# seconds ARGUMENTS...: of the program, whatever it says.
seconds() {
    local start
    start=$(date +%s%N)
    "$cyclotron" "$@" >"$folder/out" 2>&1 </dev/null
    awk "BEGIN { printf \"%.2f\", ($(date +%s%N) - $start) * 1e-9 }"
}

# line WHAT TENTH WHOLE
line() { printf '%-60s %8s s %8s s\n' "$@"; }

# A folder whose index names that many files, none of which is there.
index() {
    mkdir -p "$folder/index"
    cat >"$folder/index/config.json" <<'CONFIG'
{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "rms_norm_eps": 1e-5,
 "max_position_embeddings": 64, "rope_theta": 10000.0, "hidden_act": "silu"}
CONFIG
    awk -v n="$1" 'BEGIN {
        printf "{\"weight_map\": {"
        for (i = 0; i < n; i++) printf "%s\"t%d\": \"file-%d.safetensors\"", (i > 0 ? ", " : ""), i, i
        print "}}"
    }' >"$folder/index/model.safetensors.index.json"
    seconds checkpoint inspect "$folder/index"
}

keys() {
    awk -v n="$1" 'BEGIN {
        printf "{\"training\": {"
        for (i = 0; i < n; i++) printf "%s\"k%d\": %d", (i > 0 ? ", " : ""), i, i
        print "}}"
    }' >"$folder/keys.json"
    seconds config check "$folder/keys.json"
}

word() {
    head -c "$1" /dev/zero | tr '\0' a >"$folder/word.txt"
    rm -rf "$folder/shards"
    seconds data prepare --tokenizer="$folder/tokenizer.json" --out="$folder/shards" "$folder/word.txt"
}

plan() {
    seconds plan examples/tiny.json --distributed.dp_size="$1" --distributed.zero_stage="$2"
}

echo 'the end' >"$folder/text.txt"
"$cyclotron" tokenizer train --vocab-size=258 --out="$folder/tokenizer.json" "$folder/text.txt" \
    >"$folder/out" 2>&1
line 'checkpoint inspect: an index of 60,000 missing files' "$(index 6000)" "$(index 60000)"
line 'config check: 40,000 unknown keys' "$(keys 4000)" "$(keys 40000)"
line 'data prepare: a word of 60,000,000 letters' "$(word 6000000)" "$(word 60000000)"
head -c 3000000000 /dev/zero | tr '\0' a | gzip -1 >"$folder/line.txt.gz"
line 'data prepare: 3 GB without a newline, as .gz' - "$(seconds data prepare \
    --tokenizer="$folder/tokenizer.json" --out="$folder/none" "$folder/line.txt.gz")"
line 'plan: dp_size 16384' "$(plan 1638 0)" "$(plan 16384 0)"
line 'plan: dp_size 16384, ZeRO 1' "$(plan 1638 1)" "$(plan 16384 1)"
