# A text made by a script, a tokenizer and a tiny configuration for it, in $folder. Sourced after
# lib.sh. Steps take milliseconds.
# shellcheck disable=SC2154 # of lib.sh

# script_text LINES: sentences of a few words, whose order has something to learn.
script_text() {
    awk -v lines="$1" 'BEGIN {
        count = split("the king went up to a house of stone and said unto all his people behold " \
            "this day I give you land water bread fire light peace", word, " ")
        state = 7
        for (line = 0; line < lines; line++) {
            text = line % 97
            for (i = 0; i < 5 + line % 9; i++) {
                state = (state * 1103515245 + 12345) % 2147483648
                u = state / 2147483648
                text = text " " word[1 + int(count * u * u)]
            }
            print text "."
        }
    }'
}

script_text 3000 >"$folder/text.txt"
"$cyclotron" tokenizer train --vocab-size=300 --out="$folder/tokenizer.json" "$folder/text.txt" \
    >"$folder/log" || exit 1

# A global batch is 8 samples of 32 tokens: 256 tokens. The machine's peak takes longer to measure
# than the steps: tests of mfu ask for it.
cat >"$folder/tiny.json" <<CONFIG
{
    "model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320, "dtype": "fp32",
        "max_position_embeddings": 64, "tie_word_embeddings": true},
    "training": {"seq_length": 32, "micro_batch_size": 4, "gradient_accumulation_steps": 2,
        "total_train_steps": 8, "learning_rate": 1e-2, "lr_schedule": "cosine",
        "lr_decay_steps": 8, "warmup_steps": 2, "grad_clip": 1.0},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json",
        "validation_fraction": 0.1},
    "distributed": {"threads_per_rank": 1},
    "logging": {"measure_peak": false}
}
CONFIG

# train STATUS NAME ARGUMENTS...: the tiny configuration with its run folder $folder/NAME.
train() {
    local wanted=$1 name=$2
    shift 2
    expect "$wanted" train "$folder/tiny.json" --logging.run_dir="$folder/$name" "$@"
}

# losses NAME [FROM]: step, loss, gradient norm and hash of a run's steps from FROM on.
losses() {
    grep '"loss"' "$folder/$1/metrics.jsonl" |
        sed -E 's/"tokens".*"loss":/"loss":/; s/"step_s".*("params_hash"|\})/\1/' |
        awk -F'[:,]' -v from="${2:-1}" '$2 >= from'
}

# step_value RUN STEP FIELD: of that step's line.
step_value() {
    grep "\"step\":$2,.*\"loss\"" "$folder/$1/metrics.jsonl" | grep -o "\"$3\":[^,}]*" | sed 's/.*://'
}
