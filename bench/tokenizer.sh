#!/usr/bin/env bash
# The tokenizer beside the `tokenizers` package, one thread each, in one run: seconds to train to
# 8192 tokens, MB/s to encode a text, and whether the ids are the same.
#
#     pip install tokenizers; bench/tokenizer.sh [TEXT]      (default: the King James text)
set -euo pipefail
cyclotron=${CYCLOTRON:-build/cyclotron}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
text=${1:-$folder/text.txt}
[ $# -gt 0 ] || bible -f Gen1:1-Rev22:21 >"$text"
RAYON_NUM_THREADS=1 python3 - "$cyclotron" "$text" "$folder" <<'PYTHON'
import json, os, subprocess, sys, time
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

program, path, folder = sys.argv[1:]
text = open(path, encoding="utf-8").read()
size = len(text.encode()) / 1e6
theirs = Tokenizer(models.BPE())
theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
theirs.decoder = decoders.ByteLevel()
start = time.perf_counter()
theirs.train([path], trainers.BpeTrainer(
    vocab_size=8192, special_tokens=["<|endoftext|>"], show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
their_train = time.perf_counter() - start
start = time.perf_counter()
their_ids = theirs.encode(text).ids
their_rate = size / (time.perf_counter() - start)

ours = os.path.join(folder, "tokenizer.json")
start = time.perf_counter()
subprocess.run([program, "tokenizer", "train", "--vocab-size=8192", "--threads=1", "--out=" + ours,
                path], check=True, stdout=subprocess.DEVNULL)
our_train = time.perf_counter() - start
start = time.perf_counter()
subprocess.run([program, "data", "prepare", "--tokenizer=" + ours, "--threads=1", "--json",
                "--out=" + os.path.join(folder, "shards"), path], check=True,
               stdout=subprocess.DEVNULL)
our_rate = size / (time.perf_counter() - start)
our_ids = json.loads(subprocess.run([program, "tokenizer", "encode", "--json", ours, path],
                                    check=True, capture_output=True).stdout)
print(json.dumps(dict(text_mb=round(size, 2), train_s=round(our_train, 3),
                      train_s_tokenizers=round(their_train, 3),
                      encode_mb_s=round(our_rate, 1), encode_mb_s_tokenizers=round(their_rate, 2),
                      train_ratio=round(our_train / their_train, 3),
                      encode_ratio=round(our_rate / their_rate, 1),
                      same_ids=our_ids == their_ids)))
sys.exit(0 if our_ids == their_ids else 1)
PYTHON
