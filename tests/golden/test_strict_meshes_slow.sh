#!/usr/bin/env bash
# Strict mode has the bits of tests/golden/strict/meshes.txt: 40 configurations, most of them on meshes of
# 2 to 16 ranks. The file was written before the tree was restructured, and holds every change since to it.
. "${SOURCE:-.}/tests/cli/lib.sh"
# shellcheck source=strict_hashes.sh
. "$source_folder/tests/golden/strict_hashes.sh"

hashes=$source_folder/tests/golden/strict/meshes.txt
strict_start
for name in $(strict_names); do
    strict_compare "$name" --training.seq_length=256 --model.max_position_embeddings=256 \
        --model.num_hidden_layers=8 --model.hidden_size=64 --model.intermediate_size=256 \
        --model.num_attention_heads=8 --model.num_key_value_heads=4
done
exit $((failures > 0))
