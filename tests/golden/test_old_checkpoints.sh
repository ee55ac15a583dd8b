#!/usr/bin/env bash
# Checkpoints that an earlier program wrote load, on other meshes, and train on with the same bits:
# tests/golden/checkpoints/format-1.tar.xz has one in fp32, written on two pipeline stages, and one in bf16,
# written on two data-parallel ranks with ZeRO 1, both after two steps in strict mode.
. "${SOURCE:-.}/tests/cli/lib.sh"

tar -xJf "$source_folder/tests/golden/checkpoints/format-1.tar.xz" -C "$folder"
cat >"$folder/config.json" <<CONFIG
{
    "model": {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 32,
        "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 260,
        "max_position_embeddings": 64, "tie_word_embeddings": true},
    "training": {"seq_length": 32, "micro_batch_size": 1, "gradient_accumulation_steps": 2,
        "total_train_steps": 3, "learning_rate": 1e-2, "strict": true},
    "dataset": {"name": "$folder/text.txt", "tokenizer": "$folder/tokenizer.json"},
    "distributed": {"threads_per_rank": 1},
    "logging": {"measure_peak": false, "hash_frequency": 1}
}
CONFIG

# goes_on DTYPE LOSS HASH OPTION...: the third step of the checkpoint DTYPE.
goes_on() {
    local dtype=$1 loss=$2 hash=$3
    shift 3
    rm -rf "$folder/run"
    expect 0 train "$folder/config.json" --model.dtype="$dtype" --logging.run_dir="$folder/run" \
        --checkpoint.load_path="$folder/$dtype" "$@"
    check "$dtype $*: step 3 has loss $loss and hash $hash" grep -qE \
        "\"step\":3,.*\"loss\":$loss,.*\"params_hash\":\"$hash\"" "$folder/run/metrics.jsonl"
}

for dtype in fp32 bf16; do expect 0 checkpoint verify "$folder/$dtype"; done
fp32="fp32 4.8423310173675418 5f7373fad428a5c1"
bf16="bf16 4.8427557544782758 82872bd506e6ff8d"
# shellcheck disable=SC2086 # words
{
    goes_on $fp32
    goes_on $fp32 --distributed.pp_size=2 --distributed.pp_engine=zero_bubble
    goes_on $fp32 --distributed.dp_size=2 --distributed.zero_stage=3 \
        --training.gradient_accumulation_steps=1
    goes_on $bf16
    goes_on $bf16 --distributed.pp_size=2
}
exit $((failures > 0))
