#!/usr/bin/env python3
"""Holds Cyclotron against transformers, family by family. scripts/parity.sh makes it run.

    parity.py BUILD [--out=DIR] [--table=FILE]   saves small models, computes them with transformers
                                                 and with BUILD/..., prints the table
    parity.py --golden=DIR                       makes the folders of tests/golden/huggingface

What the figures are and how they are compared: tests/support/parity.h.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ROPE3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 64}
# name: architecture, dtype of the files, number of files, and what differs from the sizes below
FAMILIES = {
    "llama2": ("llama", "float32", 1, {"num_key_value_heads": 8}),
    "llama2-tied": ("llama", "bfloat16", 3, {"num_key_value_heads": 8, "tie_word_embeddings": True}),
    "llama3-rope": ("llama", "float16", 1, {"rope_parameters": ROPE3}),
    "smollm": ("llama", "bfloat16", 1, {"tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    "mistral-window": ("mistral", "float16", 2, {"sliding_window": 9}),
    "qwen2": ("qwen2", "bfloat16", 1, {}),
    "qwen3": ("qwen3", "float32", 3, {"head_dim": 12}),
}
LARGE = {"num_hidden_layers": 3, "hidden_size": 64, "intermediate_size": 160,
         "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 333}
SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 24,
         "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 41}
LARGE_SHAPES = [(2, 16), (1, 1), (1, 50), (3, 7), (2, 64)]
SMALL_SHAPES = [(2, 16), (1, 33), (3, 5)]
STEPS, ROWS, COLUMNS, TOKENS, PENALTY = 20, 4, 16, 100, 1.3
CONFIGS = {"llama": transformers.LlamaConfig, "mistral": transformers.MistralConfig,
           "qwen2": transformers.Qwen2Config, "qwen3": transformers.Qwen3Config}
TEXT = ("In the beginning God created the heaven and the earth. And the earth was without form, and "
        "void; and darkness was upon the face of the deep. Für Ελλάδα 日本 😀 int main(void) { }\n")


def build_model(architecture, sizes, changes, seed):
    sizes = {**sizes, **changes}
    if sizes["hidden_size"] == SMALL["hidden_size"] and "num_key_value_heads" in changes:
        sizes["num_key_value_heads"] = sizes["num_attention_heads"]
    config = CONFIGS[architecture](max_position_embeddings=256, bos_token_id=0, eos_token_id=1,
                                   pad_token_id=None, **sizes)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    torch.manual_seed(seed)
    with torch.no_grad():  # every parameter at random, norms and biases too
        for name, parameter in model.named_parameters():
            if parameter.dim() == 2:
                spread = 0.3 if "embed" in name else 1.5 / parameter.shape[1] ** 0.5
                parameter.normal_(0, spread)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.3)
            else:
                parameter.normal_(1, 0.2)
    return model


def save_model(model, folder, dtype, files):
    model.to(getattr(torch, dtype))
    total = sum(p.numel() * p.element_size() for p in model.parameters())
    model.save_pretrained(folder, max_shard_size=total // files + 1 if files > 1 else "5GB")
    path = os.path.join(folder, "generation_config.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": None}, file)


def load_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()


def loss_of(model, tokens):
    logits = model(tokens[:, :-1].long()).logits
    return torch.nn.functional.cross_entropy(
        logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1).long())


def train(model, tokens):
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
        lr=1e-3, betas=(0.9, 0.999), eps=1e-8)
    losses = []
    for step in range(tokens.shape[0]):
        optimizer.zero_grad()
        loss = loss_of(model, tokens[step])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses, dtype=torch.float64)


def generate(model, prompt, **options):
    with torch.no_grad():
        made = model.generate(prompt.long()[None], attention_mask=torch.ones(1, len(prompt)).long(),
                              max_new_tokens=TOKENS, do_sample=False, pad_token_id=0, **options)
    return made[0, len(prompt):].to(torch.int32)


def figures(folder, shapes, seed):
    """What transformers computes from the folder, by the names of tests/support/parity.h."""
    made = {}
    random = torch.Generator().manual_seed(seed)
    model = load_model(folder)
    vocab = model.config.vocab_size

    def draw(*size):
        return torch.randint(0, vocab, size, generator=random, dtype=torch.int32)

    for k, (rows, columns) in enumerate(shapes):
        tokens = draw(rows, columns + 1)
        with torch.no_grad():
            logits = model(tokens[:, :-1].long()).logits
        made[f"tokens.{k}"] = tokens
        made[f"logits.{k}"] = logits.reshape(-1, vocab).float()
    loss_of(model, made["tokens.0"]).backward()
    for name, parameter in model.named_parameters():
        made["grad." + name] = parameter.grad.clone()
    model.zero_grad()
    made["greedy.prompt"] = draw(8)
    made["greedy.tokens"] = generate(model, made["greedy.prompt"])
    made["penalty.tokens"] = generate(model, made["greedy.prompt"], repetition_penalty=PENALTY)
    tokens = draw(STEPS, ROWS, COLUMNS + 1)
    made["train.losses"] = train(model, tokens)
    made["train.tokens"] = tokens.reshape(STEPS, -1)
    return made


def build_tokenizer(folder):
    """A byte-level tokenizer of fewer tokens than the models have."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>",
                   "eos_token": "</s>", "clean_up_tokenization_spaces": False}, file)


def make_golden(out):
    for seed, (name, (architecture, dtype, files, changes)) in enumerate(FAMILIES.items()):
        folder = os.path.join(out, name)
        shutil.rmtree(folder, ignore_errors=True)
        changes = {**changes, **({"head_dim": 6} if "head_dim" in changes else {})}
        save_model(build_model(architecture, SMALL, changes, seed), folder, dtype, files)
        save_file(figures(folder, SMALL_SHAPES, seed), os.path.join(folder, "figures.safetensors"))
        print(folder)


class Check:
    """The cells of one row of the table; a cell is a text and whether it holds."""

    def __init__(self):
        self.cells = {}

    def add(self, column, text, holds):
        self.cells[column] = (text, bool(holds))

    def within(self, column, value, bound):
        self.add(column, f"{value:.1e}", value <= bound)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def weights_of(folder):
    made = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors") and name != "figures.safetensors":
            made.update(load_file(os.path.join(folder, name)))
    return made


def same_bits(a, b):
    return a.keys() == b.keys() and all(
        a[k].dtype == b[k].dtype and a[k].shape == b[k].shape
        and torch.equal(a[k].view(torch.uint8), b[k].view(torch.uint8)) for k in a)


def text_of(folder, prompt, stops):
    """Greedy text of the folder by transformers; without the stop token that ended it."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ids = torch.tensor(tokenizer(prompt)["input_ids"], dtype=torch.int32)
    tokens = generate(load_model(folder), ids, eos_token_id=stops).tolist()
    if stops and tokens[-1] in stops:
        tokens = tokens[:-1]
    return tokens, tokenizer.decode(tokens)


def say(program, folder, prompt):
    made = json.loads(run(program, "generate", folder, "--prompt=" + prompt, "--temperature=0",
                          f"--max-tokens={TOKENS}", "--dtype=fp32", "--json"))
    return made["tokens"], made["text"]


def set_stops(folder, stops):
    with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": stops}, file)


def check_text(row, program, folder, own, prompt):
    """The program's text from the folder and from the imported checkpoint; then with stops."""
    wanted = text_of(folder, prompt, None)
    # A stop that never comes, so that only max-tokens ends the text.
    never = next(i for i in range(300, 333) if i not in wanted[0])
    set_stops(folder, never)
    run(program, "checkpoint", "import", folder, "--out=" + own)
    said = [say(program, folder, prompt), say(program, own, prompt)]
    row.add("text", f"{len(wanted[0])} tokens", all(s == wanted for s in said))
    stops = [never, wanted[0][len(wanted[0]) // 2]]
    set_stops(folder, stops)
    wanted = text_of(folder, prompt, stops)
    row.add("stops", f"after {len(wanted[0])}", say(program, folder, prompt) == wanted)
    set_stops(folder, never)


def check_family(name, build, out, seed):
    architecture, dtype, files, changes = FAMILIES[name]
    program = os.path.join(build, "cyclotron")
    folder, own, back = (os.path.join(out, name, part) for part in ("hf", "own", "back"))
    shutil.rmtree(os.path.join(out, name), ignore_errors=True)
    save_model(build_model(architecture, LARGE, changes, seed), folder, dtype, files)
    build_tokenizer(folder)
    wanted = figures(folder, LARGE_SHAPES, seed)
    path = os.path.join(out, name, "figures.safetensors")
    save_file(wanted, path)

    row = Check()
    got = json.loads(run(os.path.join(build, "tests", "parity"), folder, path, "1"))
    row.add("files", f"{dtype} x {files}", True)
    row.within("logits", got["logits"], 1e-4)
    parameters = sum(k.startswith("grad.") for k in wanted)
    row.add("gradients", f"{got['gradient']:.1e}",
            got["gradient"] <= 1e-4 and got["gradients"] == parameters)
    row.within("20 steps", got["loss"], 1e-4)
    split = json.loads(run(os.path.join(build, "tests", "parity"), folder, path, "2"))
    row.within("tp 2", split["loss"], 1e-4)
    row.add("greedy", f"{got['greedy']}/{got['tokens']}", got["greedy"] == TOKENS)
    row.add("penalty", f"{got['penalised']}/{got['tokens']}", got["penalised"] == TOKENS)
    if got["shapes"] != len(LARGE_SHAPES) or got["steps"] != STEPS:
        raise RuntimeError(f"{name}: not everything was compared: {got}")

    check_text(row, program, folder, own, "In the beginning")
    run(program, "checkpoint", "export", own, "--out=" + back, "--shard-size=100KB")
    row.add("export", "same bits", same_bits(weights_of(folder), weights_of(back)))
    prompt = "And the earth"
    row.add("text after", "same", text_of(folder, prompt, None) == text_of(back, prompt, None))
    return row


def table(rows):
    columns = list(next(iter(rows.values())).cells)
    lines = ["| family | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        cells = [text if holds else f"**{text}: differs**" for text, holds in row.cells.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", nargs="?")
    parser.add_argument("--golden")
    parser.add_argument("--out", default=None)
    parser.add_argument("--table", default=None)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)  # the models are small
    if options.golden:
        make_golden(options.golden)
        return 0
    out = options.out or os.path.join(options.build, "parity", "models")
    rows = {}
    for seed, name in enumerate(FAMILIES):
        rows[name] = check_family(name, options.build, out, seed)
    text = table(rows)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}\n\n{text}")
    if options.table:
        with open(options.table, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    return 0 if all(holds for row in rows.values() for _, holds in row.cells.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
