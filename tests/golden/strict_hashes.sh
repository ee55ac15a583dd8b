# Runs configurations in strict mode and compares their losses, gradient norms and hashes with
# tests/golden/strict/hashes.txt. Sourced after cli/lib.sh; $cyclotron is the program, of whatever
# build and under whatever emulator; $native, if set, one that is quick.
# shellcheck disable=SC2154 # of lib.sh

hashes=$source_folder/tests/golden/strict/hashes.txt

# The text is in the tree; the tokenizer is made of it, so it is compared as well.
strict_start() {
    head -n 400 "$source_folder/tests/golden/curve/text.txt" >"$folder/text.txt"
    "${native:-$cyclotron}" tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" \
        "$folder/text.txt" >"$folder/log" 2>&1 || cat "$folder/log"
    cat >"$folder/strict.json" <<CONFIG
{
    "model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "dtype": "fp32",
        "max_position_embeddings": 128, "tie_word_embeddings": true},
    "training": {"strict": true, "seq_length": 32, "micro_batch_size": 1,
        "gradient_accumulation_steps": 4, "total_train_steps": 3, "learning_rate": 1e-2,
        "lr_schedule": "cosine", "lr_decay_steps": 5, "warmup_steps": 1, "grad_clip": 1.0},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"measure_peak": false, "hash_frequency": 1}
}
CONFIG
}

# strict_train NAME ARGUMENTS...: prints the last step's loss, gradient norm and hash.
strict_train() {
    local name=$1
    shift
    rm -rf "${folder:?}/$name"
    "$cyclotron" train "$folder/strict.json" --logging.run_dir="$folder/$name" "$@" \
        >"$folder/out" 2>"$folder/err" </dev/null || tail -n 5 "$folder/err" >&2
    grep '"loss"' "$folder/$name/metrics.jsonl" | tail -n 1 |
        sed -E 's/.*"loss":([^,]*),"grad_norm":([^,]*),.*"params_hash":"([0-9a-f]*)".*/\1 \2 \3/'
}

# strict_compare NAME [ARGUMENTS...]: trains the configuration NAME of the file, with further
# arguments, and compares. STRICT_WRITE=yes prints what the file should say instead.
strict_compare() {
    local name=$1 wanted arguments got
    shift
    wanted=$(awk -v name="$name" '$1 == name { print $2, $3, $4 }' "$hashes")
    # shellcheck disable=SC2046 # one word each
    arguments=$(awk -v name="$name" '$1 == name { for (i = 5; i <= NF; i++) print $i }' "$hashes")
    # shellcheck disable=SC2086 # words
    got=$(strict_train "$name" $arguments "$@")
    if [ "${STRICT_WRITE:-no}" = yes ]; then
        echo "$name $got${arguments:+ }$arguments" | tr '\n' ' ' | sed 's/ $//'
        echo
    elif [ -z "$wanted" ] || [ "$got" != "$wanted" ]; then
        echo "FAIL: $name $*: got \"$got\", the file has \"$wanted\""
        failures=$((failures + 1))
    fi
}

# strict_compare_mesh NAME [ARGUMENTS...]: the same for a configuration of strict_meshes, whose model is
# larger so that 16 ranks can share it.
strict_meshes=$source_folder/tests/golden/strict/meshes.txt
strict_compare_mesh() {
    local hashes=$strict_meshes
    strict_compare "$@" --training.seq_length=256 --model.max_position_embeddings=256 \
        --model.num_hidden_layers=8 --model.hidden_size=64 --model.intermediate_size=256 \
        --model.num_attention_heads=8 --model.num_key_value_heads=4
}

strict_names() {
    awk '!/^#/ && NF { print $1 }' "$hashes"
}

strict_mesh_names() {
    awk '!/^#/ && NF { print $1 }' "$strict_meshes"
}
