"""One training step of a Llama in PyTorch, timed: what `cyclotron bench step` is held against.

Reads a resolved configuration (`cyclotron config show CONFIG`) on stdin, builds the same model with
PyTorch's own modules, trains on random tokens with AdamW and clipping, and prints one JSON object
with the names of `cyclotron bench step --json`. bf16 is autocast over fp32 weights, which is what
people train with. Usage: torch_step.py eager|compile [steps]
"""

import json
import os
import resource
import statistics
import sys
import time

START = time.time()
mode = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 5
config = json.load(sys.stdin)
model_keys, training = config["model"], config["training"]
threads = config["distributed"]["threads_per_rank"] or len(os.sched_getaffinity(0))
os.environ["OMP_NUM_THREADS"] = str(threads)

try:
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint
except ImportError:
    sys.exit(77)  # as tests skip

torch.set_num_threads(threads)
hidden, head_dim = model_keys["hidden_size"], model_keys["head_dim"]
heads, kv_heads = model_keys["num_attention_heads"], model_keys["num_key_value_heads"]
ffn, vocab = model_keys["intermediate_size"], model_keys["vocab_size"]
eps = model_keys["rms_norm_eps"]
length, batch = training["seq_length"], training["micro_batch_size"]
accumulate = training["gradient_accumulation_steps"] or 1
recompute = training["recompute"] != "none"
half = model_keys["dtype"] == "bf16"


class RootMeanSquare(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        return functional.rms_norm(x, (hidden,), self.weight.to(x.dtype), eps)


def turn(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat((-second, first), -1) * sine


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before_attention, self.before_ffn = RootMeanSquare(), RootMeanSquare()
        self.qkv = nn.Linear(hidden, (heads + 2 * kv_heads) * head_dim, bias=False)
        self.out = nn.Linear(heads * head_dim, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x, cosine, sine):
        shape = (x.shape[0], x.shape[1], heads + 2 * kv_heads, head_dim)
        qkv = self.qkv(self.before_attention(x)).view(shape).transpose(1, 2)
        q, k, v = qkv.split([heads, kv_heads, kv_heads], 1)
        q, k = turn(q, cosine, sine), turn(k, cosine, sine)
        o = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.out(o.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.before_ffn(x)).chunk(2, -1)
        return x + self.down(functional.silu(gate) * up)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.layers = nn.ModuleList(Layer() for _ in range(model_keys["num_hidden_layers"]))
        self.norm = RootMeanSquare()
        self.head = nn.Linear(hidden, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=model_keys["initializer_range"])
        if model_keys["tie_word_embeddings"]:
            self.head.weight = self.embedding.weight
        turns = model_keys["rope_theta"] ** (-torch.arange(0, head_dim, 2) / head_dim)
        angles = torch.outer(torch.arange(length), turns).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens)
        if half:
            x = x.bfloat16()
        cosine, sine = self.cosine.to(x.dtype), self.sine.to(x.dtype)
        for layer in self.layers:
            if recompute:
                x = checkpoint(layer, x, cosine, sine, use_reentrant=False)
            else:
                x = layer(x, cosine, sine)
        logits = self.head(self.norm(x)).float()
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def peak_flop_s():
    size = 2048
    a, b = (torch.randn(size, size).to(torch.bfloat16 if half else torch.float32) for _ in "ab")
    best = float("inf")
    for _ in range(8):
        start = time.perf_counter()
        a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 / best


def run_step(run, model, optimizer):
    for _ in range(accumulate):
        tokens = torch.randint(vocab, (batch, length + 1))
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            loss = run(tokens[:, :-1], tokens[:, 1:])
        (loss / accumulate).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def main():
    model = Model()
    params = sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    run = torch.compile(model) if mode == "compile" else model
    rates, first_step_s = [], 0.0
    for i in range(2 + steps):
        start = time.perf_counter()
        run_step(run, model, optimizer)
        if i == 0:
            first_step_s = time.time() - START
        if i >= 2:
            rates.append(accumulate * batch * length / (time.perf_counter() - start))
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    flops = 6 * params + 12 * model_keys["num_hidden_layers"] * heads * head_dim * length
    peak, rate = peak_flop_s(), statistics.median(rates)
    print(json.dumps({
        "tok_s": rate, "tok_s_min": min(rates), "tok_s_max": max(rates),
        "mfu": rate * flops / peak, "flops_per_token": flops, "peak_gflop_s": peak / 1e9,
        "peak_rss_gb": resident, "first_step_s": first_step_s, "ranks": 1, "threads": threads,
        "dtype": model_keys["dtype"], "seq": length, "batch": batch, "params": params,
        "by": f"PyTorch {torch.__version__} {mode}",
    }))


main()
