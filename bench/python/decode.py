#!/usr/bin/env python3
"""decode.py [--json FILE] [--document FILE] [--compiled] [--small] - milliseconds a token of a Llama of transformers with random weights.

Its own generate(), eager and accelerated; and a loop of one's own over a static cache, contiguous or in pages, of torch's functions and
of cutekernellib.torch, each launch by launch and as a CUDA graph of a step; with --compiled that of torch's functions by torch.compile,
too, which takes a minute more. What the loops decode is checked against the model.
"""

import argparse
import itertools
import json
import statistics
import time

import results
import torch
import torch.nn.functional as F

import cutekernellib.torch as ckl


PROTOCOL = (
    "ms a token by the host's clock, the GPU done before and after, one GPU and nothing else on it; medians of 7 rounds of 32 tokens,"
    " in which all ways take turns"
)


class Ours:
    rms_norm, rope, silu_mul = staticmethod(ckl.rms_norm), staticmethod(ckl.rope), staticmethod(ckl.silu_mul)
    add_rms_norm = staticmethod(ckl.add_rms_norm)

    @staticmethod
    def attention(q, k, v, caches, loop, positions):
        new = {"k_new": k.unsqueeze(2), "v_new": v.unsqueeze(2)}  # stored on the way
        return ckl.attention_decode(q.unsqueeze(2), *(c.transpose(1, 2) for c in caches), loop.lengths, loop.table, **new)


class Torchs:
    """The same of a contiguous cache by torch's functions: attention with a mask of what the cache has."""

    rms_norm = staticmethod(F.rms_norm)

    @staticmethod
    def add_rms_norm(x, residual, weight, eps):
        x = x + residual
        return F.rms_norm(x, weight.shape, weight, eps), x

    @staticmethod
    def silu_mul(x, y):
        return F.silu(x) * y

    @staticmethod
    def rope(q, k, positions, theta):
        d = q.shape[-1]
        angle = positions[:, None, None] * theta ** (-torch.arange(0, d, 2, device=q.device, dtype=torch.float32) / d)
        cos, sin = angle.cos(), angle.sin()
        halves = [x.float().chunk(2, -1) for x in (q, k)]
        return [torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(q.dtype) for a, b in halves]

    @staticmethod
    def attention(q, k, v, caches, loop, positions):
        for cache, new in zip(caches, (k, v)):
            cache[loop.rows, positions] = new
        mask = torch.arange(caches[0].shape[1], device=q.device) < loop.lengths[:, None]
        k, v = (cache.transpose(1, 2) for cache in caches)
        return F.scaled_dot_product_attention(q.unsqueeze(2), k, v, mask[:, None, None, :], enable_gqa=True)


class Loop:
    """Greedy decoding of a batch; everything that a step reads and writes lies in memory of its own."""

    def __init__(self, model, ops, batch, longest, page=None, compiled=False):
        self.model, self.ops, self.batch, self.page = model.model, ops, batch, page
        self.head, config = model.lm_head, model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.d, self.theta = config.hidden_size // self.heads, config.rope_parameters["rope_theta"]
        weight = model.lm_head.weight
        shape = (
            (batch, longest, self.kv_heads, self.d) if page is None else (batch * longest // page, page, self.kv_heads, self.d)
        )
        self.caches = [[torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in "kv"] for _ in self.model.layers]
        self.lengths = torch.zeros(batch, dtype=torch.int32, device=weight.device)
        self.token = torch.zeros(batch, dtype=torch.int64, device=weight.device)
        self.rows = torch.arange(batch, device=weight.device)
        self.table = None
        if page is not None:  # pages of a sequence lie anywhere
            self.table = torch.randperm(shape[0], device=weight.device).int().view(batch, longest // page)

        if compiled:
            self.step = torch.compile(self.step)

    def attend(self, layer, x, caches, positions):
        q, k, v = (p(x).view(self.batch, -1, self.d) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
        q, k = self.ops.rope(q, k, positions, theta=self.theta)
        return layer.o_proj(self.ops.attention(q, k, v, caches, self, positions).view(self.batch, -1))

    @torch.no_grad()
    def step(self):
        self.lengths += 1
        positions = self.lengths.long() - 1
        x = self.model.embed_tokens(self.token)
        for layer, cache in zip(self.model.layers, self.caches):
            norm = layer.input_layernorm
            attended = self.attend(
                layer.self_attn, self.ops.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon), cache, positions
            )
            norm, mlp = layer.post_attention_layernorm, layer.mlp
            h, x = self.ops.add_rms_norm(attended, x, norm.weight, norm.variance_epsilon)
            x = x + mlp.down_proj(self.ops.silu_mul(mlp.gate_proj(h), mlp.up_proj(h)))
        norm = self.model.norm
        self.logits = self.head(self.ops.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon))
        self.token.copy_(self.logits.argmax(-1))

    def start(self, prompt):
        """Reads a prompt, token by token; then the cache has it and `token` is the first of the answer."""
        self.lengths.zero_()
        for column in prompt.unbind(1):
            self.token.copy_(column)
            self.step()

    def capture(self):
        self.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        return graph.replay


def error_of(loop, model, prompt):
    """Largest difference of the logits after a prompt from the model's, relative to their largest."""
    loop.start(prompt)
    with torch.no_grad():
        wanted = model(input_ids=prompt, use_cache=False).logits[:, -1].float()
    return ((loop.logits.float() - wanted).abs().max() / wanted.abs().max()).item()


def timed(run, tokens):
    """Milliseconds of so many tokens."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    run(tokens)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) * 1e3


def decoding(loop, step, context):
    """Decodes so many tokens, where the cache has `context` of them before; what these are does not matter."""

    def run(tokens):
        loop.lengths.fill_(context)
        for _ in range(tokens):
            step()

    return run


def generating(model, prompt, accelerated):
    def run(tokens):
        report = ckl.accelerate(model, quiet=True) if accelerated else None
        model.generate(prompt, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        if report:
            report.undo()

    return run


def ways_of(model, loops, prompt, context):
    """What decodes a number of tokens, by name, each having done so once."""
    ways = {"generate, " + name: generating(model, prompt, name == "accelerated") for name in ("eager", "accelerated")}
    for name, loop in loops.items():
        loop.lengths.fill_(context)
        ways |= {name: decoding(loop, loop.step, context), name + ", graph": decoding(loop, loop.capture(), context)}
    for run in ways.values():
        run(2)
    return ways


def times_of(ways, tokens, rounds=7):
    """Of a token, by name; of generate() one behind the first, which reads the prompt."""
    times = {name: [] for name in ways}
    for _, (name, run) in itertools.product(range(rounds), ways.items()):
        first = name.startswith("generate")
        times[name].append((timed(run, tokens + first) - (timed(run, 1) if first else 0)) / tokens)
    return {name: round(statistics.median(t), 4) for name, t in times.items()}


def prepare(model, batch, context, small, compiled, device):
    """A row of results, without times, and what is to be timed."""
    longest = 16 if small else 2048
    prompt = torch.randint(32000, (batch, context if small else 64), device=device)
    loops = {
        "torch, contiguous": Loop(model, Torchs, batch, longest),
        "ours, contiguous": Loop(model, Ours, batch, longest),
        "ours, pages of 16": Loop(model, Ours, batch, longest, 16),
    }
    if compiled:
        loops["torch, compiled"] = Loop(model, Torchs, batch, longest, compiled=True)
    errors = {name: round(error_of(loop, model, prompt), 4) for name, loop in loops.items()}
    row = {"batch": batch, "context": context, "error": errors}
    prompt = torch.randint(32000, (batch, context), device=device)
    return row, ways_of(model, loops, prompt, context) if device == "cuda" else {}


COLUMNS = {
    "batch": "batch",
    "transformers' generate()": "generate, eager",
    "accelerated": "generate, accelerated",
    "a loop of torch's functions": "torch, contiguous",
    "of torch.compile": "torch, compiled",
    "of ours": "ours, contiguous",
    "the loops as CUDA graphs of a step: torch's": "torch, contiguous, graph",
    "torch.compile's": "torch, compiled, graph",
    "ours": "ours, contiguous, graph",
    "ours, pages of 16 keys": "ours, pages of 16, graph",
}


def table(rows):
    """Milliseconds a token as docs/python.md has them, without columns that were not measured."""
    heads, names = zip(*((head, name) for head, name in COLUMNS.items() if all(name in row for row in rows)))
    return results.markdown([heads, *([row["batch"], *(f"{row[name]:.2f}" for name in names[1:])] for row in rows)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    parser.add_argument("--compiled", action="store_true", help="a loop by torch.compile, too")
    parser.add_argument("--small", action="store_true", help="for a try: no times")
    parser.add_argument("--document", help="measure nothing: write the table of --json between the marks of this file")
    results.add_turn(parser)
    options = parser.parse_args()
    if options.document:
        return results.put(options.document, "decoding", table(results.read(options.json)))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    hidden, layers, heads, kv_heads, inner = (64, 2, 4, 2, 128) if options.small else (2048, 8, 16, 8, 5632)
    sizes = {"hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads}
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(vocab_size=32000, intermediate_size=inner, attn_implementation="sdpa", **sizes)
    torch.manual_seed(1)
    with torch.device(device):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    sizes = ((2, 5),) if options.small else ((1, 1024), (16, 1024))
    prepared = [prepare(model, batch, context, options.small, options.compiled, device) for batch, context in sizes]
    with options.turn.alone():
        for row, ways in prepared:
            row |= times_of(ways, 32)
            print(json.dumps(row), flush=True)
            if options.json:
                results.save(options.json, PROTOCOL, [row], "batch")


if __name__ == "__main__":
    main()
