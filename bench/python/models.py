#!/usr/bin/env python3
"""models.py [--seconds N] [--json FILE] [--document FILE] - models with and without cutekernellib.torch.accelerate(): losses and times on a GPU.

A Llama and a GPT-2 of transformers, a ViT and a ConvNeXt of timm, with random weights; where these packages are missing, a Llama
and a GPT-2 of the same structure from here. Forward without gradient, and training steps; torch's eager mode, torch.compile, and
both accelerated. The times of one model are taken in turn, in one process: the median of rounds.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from torch import nn

import cutekernellib.torch as ckl


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(hidden)), eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * h.to(x.dtype)


class GatedMLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down_proj, self.act_fn = nn.Linear(inner, hidden, bias=False), nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, inner):
        super().__init__()
        self.d = hidden // heads
        self.norm, self.post_norm, self.mlp = LlamaRMSNorm(hidden), LlamaRMSNorm(hidden), GatedMLP(hidden, inner)
        self.q, self.o = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv_heads * self.d, bias=False) for _ in "kv")

    def forward(self, x, cos, sin):
        h = self.norm(x)
        q, k, v = (p(h).unflatten(-1, (-1, self.d)).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.o(o.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_norm(x))


class Llama(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads, kv_heads, inner):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, hidden), LlamaRMSNorm(hidden)
        self.layers = nn.ModuleList(LlamaLayer(hidden, heads, kv_heads, inner) for _ in range(layers))
        self.head, self.d = nn.Linear(hidden, vocabulary, bias=False), hidden // heads

    def forward(self, tokens):
        angle = torch.outer(
            torch.arange(tokens.shape[1], device=tokens.device),
            1e4 ** (-torch.arange(0, self.d, 2, device=tokens.device) / self.d),
        )
        angle = torch.cat((angle, angle), -1)
        x = self.embed(tokens)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class GPT2Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.act, self.down = nn.Linear(hidden, 4 * hidden), nn.GELU("tanh"), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(self.act(self.up(self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads):
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(2048, hidden)
        self.layers, self.norm = nn.ModuleList(GPT2Layer(hidden, heads) for _ in range(layers)), nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Logits(nn.Module):
    """A model of transformers as one from tokens to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


def llama(small):
    hidden, layers, heads, kv_heads, inner = (64, 2, 4, 2, 128) if small else (2048, 8, 16, 8, 5632)
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return "llama", Llama(32000, hidden, layers, heads, kv_heads, inner)
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inner,
        attn_implementation="sdpa",
    )
    return "transformers llama", Logits(LlamaForCausalLM(config))


def gpt2(small):
    hidden, layers, heads = (64, 2, 4) if small else (1024, 12, 16)
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return "gpt2", GPT2(50257, hidden, layers, heads)
    none = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    config = GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads, n_positions=2048, attn_implementation="sdpa", **none)
    return "transformers gpt2", Logits(GPT2LMHeadModel(config))


def images(name):
    def make(small):
        import timm

        return "timm " + name, timm.create_model(name, num_classes=1000)

    return make


MODELS = [llama, gpt2, images("vit_base_patch16_224"), images("convnext_base")]


def loss_of(model, batch):
    x, target = batch
    return F.cross_entropy(model(x).flatten(0, -2), target.flatten())


def batch_for(name, device, small):
    if name.startswith("timm"):
        size = 2 if small else 64
        return torch.randn(size, 3, 224, 224, device=device, dtype=torch.bfloat16), torch.randint(1000, (size,), device=device)
    shape = (2, 16) if small else (4, 1024)
    return torch.randint(32000, shape, device=device), torch.randint(32000, shape, device=device)


def trained(model, batch, steps):
    """Losses of some steps from the weights that it has, which it then has again."""
    state = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 5))
    model.load_state_dict(state)
    return losses


def forward(model, batch):
    with torch.no_grad():
        return model(batch[0])


def step(model, batch):
    model.zero_grad(set_to_none=True)
    loss_of(model, batch).backward()


def timed(function, *args):
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
    start.record()
    function(*args)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


class Graphed(nn.Module):
    """A model whose forward and backward pass are CUDA graphs."""

    def __init__(self, model, batch):
        super().__init__()
        self.model = model
        torch.cuda.make_graphed_callables(self, (batch[0],))

    def forward(self, x):
        return self.model(x)


class Mode:
    """A way to run a model: before each use it puts its replacements in place."""

    def __init__(self, model, accelerated, way, batch):
        self.model, self.accelerated = model, accelerated
        with self:
            if way == "compiled":
                torch._dynamo.reset()
            self.run = {
                "eager": lambda: model,
                "compiled": lambda: torch.compile(model),
                "graphs": lambda: Graphed(model, batch),
            }[way]()

    def __enter__(self):
        self.report = ckl.accelerate(self.model, quiet=True) if self.accelerated else None
        return self.run if hasattr(self, "run") else None

    def __exit__(self, *_):
        if self.report:
            self.report.undo()


def times_of(model, batch, ways, rounds, function):
    """Milliseconds of a way without and with accelerate(), in turn."""
    modes = {name: Mode(model, name.startswith("accelerated"), way, batch) for way in ways for name in NAMES[way]}
    times = {name: [] for name in modes}
    for name, mode in modes.items():
        with mode as run:
            for _ in range(3):
                function(run, batch)
    for _ in range(rounds):
        for name, mode in modes.items():
            with mode as run:
                times[name].append(timed(function, run, batch))
    return {name: round(statistics.median(t), 3) for name, t in times.items()}


NAMES = {
    "eager": ("eager", "accelerated"),
    "compiled": ("compiled", "accelerated compiled"),
    "graphs": ("graphs", "accelerated graphs"),
}


def measure(model, batch, ways, rounds, row):
    """One way after the other; what is there is printed: a run may be ended before."""
    for way in ways:
        for what, function in (("forward", forward), ("step", step)):
            if way != "graphs" or what == "step":
                row.setdefault(what, {}).update(times_of(model, batch, (way,), rounds, function))
        print(json.dumps(row), flush=True)


def merged(path, rows):
    """The rows of a file of results, with the times of these."""
    try:
        with open(path) as file:
            old = {row["model"]: row for row in json.load(file)}
    except FileNotFoundError:
        old = {}
    for row in rows:
        kept = old.setdefault(row["model"], {})
        for key, value in row.items():
            kept[key] = kept.get(key, {}) | value if isinstance(value, dict) else value
    return list(old.values())


COLUMNS = {  # what is in a column: milliseconds of one way, or a ratio of two
    "eager": "eager",
    "torch.compile": "compiled",
    "accelerated": "accelerated",
    "of eager": ("eager", "accelerated"),
    "of torch.compile": ("compiled", "accelerated"),
    "accelerated, compiled": "accelerated compiled",
    "graphs": "graphs",
    "accelerated graphs": "accelerated graphs",
    "of graphs": ("graphs", "accelerated graphs"),
}


def cell(times, of):
    if isinstance(of, tuple):
        return f"{times[of[0]] / times[of[1]]:.2f}" if of[0] in times else ""
    return f"{times[of]:.2f}" if of in times else ""


def table(rows):
    """Rows of results as docs/python.md has them, without columns that nothing was measured for."""
    lines = []
    for row in rows:
        for what, name in (("forward", "forward"), ("step", "training step")):
            lines.append([row["model"], name, *(cell(row[what], of) for of in COLUMNS.values())])
    columns = [["model", "", *COLUMNS], ["---"] * (len(COLUMNS) + 2), *lines]
    columns = [column for i, column in enumerate(zip(*columns)) if i < 2 or any(column[2:])]
    lines = ["| " + " | ".join(line) + " |" for line in zip(*columns)]
    lines += ["", "Losses of the first steps, eager and accelerated:", ""]
    for row in rows:
        losses = (" ".join(f"{x:.4f}" for x in row[mode + " losses"]) for mode in ("eager", "accelerated"))
        lines.append(f"- {row['model']}: {' and '.join(losses)}")
    return "\n".join(lines)


def write_table(path, rows):
    """Puts the table between the marks of a document."""
    with open(path) as file:
        head, mark, rest = file.read().partition("<!-- measured -->\n")
    with open(path, "w") as file:
        file.write(head + mark + "\n" + table(rows) + "\n\n" + rest[rest.index("<!-- /measured -->") :])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--json", help="a file of results, to be made or added to")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--small", action="store_true", help="for a try")
    parser.add_argument("--models", default="0123", help="which of the four, by number")
    parser.add_argument("--ways", default="eager,graphs,compiled")
    parser.add_argument("--document", help="measure nothing: write the table of --json between the marks of this file")
    options = parser.parse_args()
    if options.document:
        with open(options.json) as file:
            return write_table(options.document, json.load(file))
    began, rows = time.time(), []
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for make in (MODELS[int(i)] for i in options.models):
        if time.time() - began > options.seconds:
            break
        torch.manual_seed(1)
        try:
            with torch.device(device):
                name, model = make(options.small)
        except ImportError as why:
            print(f"skipped: {why}")
            continue
        model = model.to(device, torch.bfloat16)
        batch = batch_for(name, device, options.small)
        row = {"model": name, "eager losses": trained(model, batch, 4)}
        report = ckl.accelerate(model, host=device == "cpu", quiet=True)
        row["accelerated losses"] = trained(model, batch, 4)
        report.undo()
        print(name, report, sep="\n")
        if device == "cuda":
            measure(model, batch, options.ways.split(","), options.rounds, row)
        rows.append(row)
        if options.json:
            everything = merged(options.json, rows)
            with open(options.json, "w") as file:
                json.dump(everything, file, indent=1)


if __name__ == "__main__":
    main()
