#!/usr/bin/env python3
"""torch_peer.py FOLDER - computes and times one problem with PyTorch, for `ckl bench` (bench/peers/torch.c).

FOLDER/problem.json names the operator, its fields and operands; FOLDER/<operand> holds each input as it lies in memory. The
answer goes to standard output as JSON: the samples of each variant in microseconds, or why there are none; the outputs go to
FOLDER/<variant>.<operand>. The protocol is that of bench/measure.c: sets of memory in turn so that L2 is cold, an event before
and behind each run, or a CUDA graph of many where runs are short.
"""
import ctypes
import json
import os
import re
import sys
import time

GRAPH_BELOW_US = 20
GRAPH_RUNS = 20
SETS_MAX = 64
BATCH_MAX = 64
SAMPLES_MIN, SAMPLES_MAX = 20, 2000
CYCLES_PER_US = 2000  # of a sleep that lets the host get ahead; somewhat more than the clock


class Unsupported(Exception):
    """The problem has no counterpart in torch."""


try:
    import torch
    import torch.nn.functional as F
except ImportError:
    print(json.dumps({"unsupported": "torch: python3 has no module torch; pip install torch"}))
    sys.exit(0)

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
    "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool,
}


# Operators: a function of the fields gives run(tensors) -> {output: tensor}, and what is computed for the check alone.

def softmax(p, t):
    backward, log, scale = p["direction"] == "backward", p["log"] == "1", float(p["scale"])
    dim = 1
    if backward:
        rule = torch._log_softmax_backward_data if log else torch._softmax_backward_data

        def gradient(t):
            dx = rule(t["dy"], t["y"], dim, t["y"].dtype)
            return {"dx": dx * scale if scale != 1 else dx}
        return gradient, None
    if p["mask_repeat"] not in ("0", "1"):
        raise Unsupported("a mask with mask_repeat")
    function = F.log_softmax if log else F.softmax

    def forward(t):
        x = t["x"] * scale if scale != 1 else t["x"]
        if p["mask"] == "none":
            return {"y": function(x, dim)}
        mask = t["mask"]
        x = x.view(-1, *mask.shape)
        x = x.masked_fill(~mask, float("-inf")) if p["mask"] == "bool" else x + mask
        return {"y": function(x, -1).view(t["x"].shape)}
    return forward, None


def crossentropy(p, t):
    reduction, ignore = p["reduction"], int(p["ignore_index"])
    if p["direction"] == "forward":
        def forward(t):
            loss = F.cross_entropy(t["x"].float(), t["target"].long(), reduction=reduction, ignore_index=ignore)
            return {"loss": loss.view(-1)}

        def rest(t):
            return {"lse": torch.logsumexp(t["x"].float(), 1), "count": (t["target"] != ignore).sum().float().view(1)}
        return forward, rest
    code = {"none": 0, "mean": 1}[reduction]
    # What autograd does, from the log-probabilities that its forward pass would have kept.
    saved = {}

    def gradient(t):
        x = t["x"]
        if x.data_ptr() not in saved:
            saved[x.data_ptr()] = x.float() - t["lse"][:, None]
        log_p, target = saved[x.data_ptr()], t["target"].long()
        count = t["count"][0] if code else torch.ones((), device=x.device)
        dloss = t["dloss"][0] if code else t["dloss"]
        d = torch.ops.aten.nll_loss_backward(dloss, log_p, target, None, code, ignore, count)
        return {"dx": torch._log_softmax_backward_data(d, log_p, 1, torch.float32).to(x.dtype)}
    return gradient, None


def norm(p, t, centred):
    if p["direction"] == "backward":
        return norm_backward(p, centred)
    eps = float(p["eps"]) or 1e-5

    def forward(t):
        h = t["x"] + t["residual"] if "residual" in t else t["x"]
        shape = h.shape[-1:]
        y = (F.layer_norm(h, shape, t.get("gamma"), t.get("beta"), eps) if centred
             else F.rms_norm(h, shape, t.get("gamma"), eps))
        return {"y": y, "sum": h} if "residual" in t else {"y": y}

    def rest(t):
        h = (t["x"] + t["residual"] if "residual" in t else t["x"]).float()
        mean = h.mean(1) if centred else torch.zeros(h.shape[0], device=h.device)
        return {"mean": mean, "rstd": torch.rsqrt(((h - mean[:, None]) ** 2).mean(1) + eps)}
    return forward, rest


def norm_backward(p, centred):
    def gradient(t):
        x, gamma, affine = t["x"], t.get("gamma"), "gamma" in t
        if centred:
            dx, dgamma, dbeta = torch.ops.aten.native_layer_norm_backward(
                t["dy"], x, x.shape[-1:], t["mean"][:, None], t["rstd"][:, None], gamma, gamma, [True, affine, affine])
        else:
            n = x.float() * t["rstd"][:, None]
            g = t["dy"].float() * gamma.float() if affine else t["dy"].float()
            dx = ((g - n * (g * n).mean(1, keepdim=True)) * t["rstd"][:, None]).to(x.dtype)
            dgamma, dbeta = (t["dy"].float() * n).sum(0).to(x.dtype), None
        out = {"dx": dx + t["dsum"] if "dsum" in t else dx}
        if affine:
            out["dgamma"] = dgamma
            if dbeta is not None:
                out["dbeta"] = dbeta
        return out
    return gradient, None


def add(p, t):
    alpha, beta = float(p["alpha"]), float(p["beta"])
    if alpha == 1 and beta != 0:
        return lambda t: {"y": torch.add(t["a"], t["b"], alpha=beta)}, None
    return lambda t: {"y": alpha * t["a"] + beta * t["b"]}, None


FUNCTIONS = {
    "neg": lambda: torch.neg, "abs": lambda: torch.abs, "relu": lambda: F.relu, "silu": lambda: F.silu,
    "sigmoid": lambda: torch.sigmoid, "tanh": lambda: torch.tanh, "exp": lambda: torch.exp, "log": lambda: torch.log,
    "sqrt": lambda: torch.sqrt, "rsqrt": lambda: torch.rsqrt, "max": lambda: torch.maximum, "min": lambda: torch.minimum,
    "pow": lambda: torch.pow, "gelu": lambda: F.gelu, "gelu_erf": lambda: F.gelu,
    "gelu_tanh": lambda: lambda x: F.gelu(x, approximate="tanh"), "add": lambda: torch.add, "sub": lambda: torch.sub,
    "mul": lambda: torch.mul, "div": lambda: torch.div,
}


def elementwise(p, t):
    names = {name: make() for name, make in FUNCTIONS.items()}
    if p.get("inplace", "0") != "0":
        raise Unsupported("elementwise in place")
    for pair in filter(None, p.get("scalars", "").split(",")):
        name, value = pair.split("=")
        names[name] = float(value)
    for word in re.findall(r"[A-Za-z_]\w*", p["expr"]):
        if word not in names and word not in t:
            raise Unsupported(f"'{word}' of the expression")
    code = compile(p["expr"], "expr", "eval")
    out = p.get("out", "default")
    dtype = DTYPES[p["dtype"] if out in ("default", "") else out]
    return lambda t: {"y": eval(code, {"__builtins__": {}}, {**names, **t}).to(dtype)}, None


def reduce(p, t):
    axes = [int(a) for a in p["axes"].split(",")] if p["axes"] else list(range(t["x"].dim()))
    op, correction = p["op"], int(p.get("correction", "0"))
    whole = len(axes) == t["x"].dim()
    if op in ("product", "argmax", "argmin") and len(axes) > 1 and not whole:
        raise Unsupported(f"{op} over several axes")
    one = None if whole else axes[0]
    table = {
        "sum": lambda x: x.sum(axes), "mean": lambda x: x.mean(axes), "max": lambda x: x.amax(axes),
        "min": lambda x: x.amin(axes), "var": lambda x: x.var(axes, correction=correction),
        "std": lambda x: x.std(axes, correction=correction), "any": lambda x: x.bool().any(axes) if not whole else x.any(),
        "all": lambda x: x.bool().all(axes) if not whole else x.all(), "norm1": lambda x: torch.linalg.vector_norm(x, 1, axes),
        "norm2": lambda x: torch.linalg.vector_norm(x, 2, axes), "logsumexp": lambda x: torch.logsumexp(x, axes),
        "product": lambda x: x.prod() if whole else x.prod(one),
        "argmax": lambda x: x.argmax(one), "argmin": lambda x: x.argmin(one),
    }
    if op not in table:
        raise Unsupported(f"reduce op={op}")
    return lambda t: {"y": table[op](t["x"])}, None


def transpose(p, t):
    return lambda t: {"y": t["x"].transpose(-2, -1).contiguous()}, None


def permute(p, t):
    rank = t["x"].dim()
    order = [int(a) for a in p["order"].split(",")] if p["order"] else list(range(rank))[::-1]
    return lambda t: {"y": t["x"].permute(order).contiguous()}, None


OPERATORS = {
    "softmax": softmax, "crossentropy": crossentropy, "add": add, "elementwise": elementwise, "reduce": reduce,
    "transpose": transpose, "permute": permute,
    "layernorm": lambda p, t: norm(p, t, True), "rmsnorm": lambda p, t: norm(p, t, False),
}


# Memory

def strided(storage, operand):
    return torch.as_strided(storage, operand["shape"], operand["stride"])


def read_inputs(folder, operands):
    tensors = {}
    for o in operands:
        if o["role"] == "out":
            continue
        with open(os.path.join(folder, o["name"]), "rb") as file:
            raw = torch.frombuffer(bytearray(file.read()) or bytearray(16), dtype=torch.uint8)
        tensors[o["name"]] = strided(raw.view(DTYPES[o["dtype"]]).cuda(), o)
    return tensors


def copies(tensors, problem):
    """Sets of memory with the same contents, as many as twice the L2 cache needs."""
    size = sum(t.untyped_storage().nbytes() for t in tensors.values()) + sum(o["bytes"] for o in problem["operands"]
                                                                              if o["role"] == "out")
    room = int(0.3 * torch.cuda.mem_get_info()[0]) // max(size, 1)
    count = 1 if problem["hot"] else max(1, min(max(2 * problem["l2_bytes"] // max(size, 1) + 1, 2), SETS_MAX, room))

    def again(t):
        storage = torch.empty(0, dtype=t.dtype, device="cuda").set_(t.untyped_storage().clone())
        return torch.as_strided(storage, t.shape, t.stride())
    return [tensors] + [{name: again(t) for name, t in tensors.items()} for _ in range(count - 1)]


def write_outputs(folder, variant, operands, results):
    for o in operands:
        if o["role"] == "in" or o["name"] not in results:
            continue
        element = torch.empty(0, dtype=DTYPES[o["dtype"]]).element_size()
        raw = torch.full((max(o["bytes"], element),), 0xff, dtype=torch.uint8).view(DTYPES[o["dtype"]])
        strided(raw, o).copy_(results[o["name"]].reshape(o["shape"]).to(DTYPES[o["dtype"]]).cpu())
        with open(os.path.join(folder, f"{variant}.{o['name']}"), "wb") as file:
            file.write(ctypes.string_at(raw.data_ptr(), o["bytes"]))


# Time

class Race:
    """One variant: run over the sets in turn, with results kept as long as there are sets so that outputs are cold too."""

    def __init__(self, run, sets):
        self.run, self.sets, self.turn = run, sets, 0
        self.kept = [None] * len(sets)

    def step(self):
        i = self.turn = (self.turn + 1) % len(self.sets)
        self.kept[i] = self.run(self.sets[i])

    def host_us(self):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(3):
            self.step()
        host = (time.perf_counter() - begin) / 3
        torch.cuda.synchronize()
        return host * 1e6

    def batch(self, work, runs, count):
        pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        torch.cuda._sleep(int(CYCLES_PER_US * 2 * count * self.host))
        for begin, end in pairs:
            begin.record()
            work()
            end.record()
        torch.cuda.synchronize()
        return [begin.elapsed_time(end) * 1e3 / runs for begin, end in pairs]

    def graph(self):
        runs = -(-GRAPH_RUNS // len(self.sets)) * len(self.sets)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(runs):
                self.step()
        return graph, runs

    def samples(self, seconds):
        for _ in range(len(self.sets) + 2):
            self.step()
        self.host = min(self.host_us(), 1000) + 5
        probe = sorted(self.batch(self.step, 1, 5))[2]
        work, runs = self.step, 1
        if probe < GRAPH_BELOW_US:
            graph, runs = self.graph()
            work = graph.replay
        times, begin = [], time.perf_counter()
        count = max(2, min(BATCH_MAX, int(1e4 / (probe * runs)) + 1))
        while len(times) < SAMPLES_MIN or (time.perf_counter() - begin < seconds and len(times) < SAMPLES_MAX):
            times += self.batch(work, runs, count)
        return times


def main(folder):
    with open(os.path.join(folder, "problem.json")) as file:
        problem = json.load(file)
    if not torch.cuda.is_available():
        return {"unsupported": f"torch {torch.__version__}: sees no GPU"}
    if problem["op"] not in OPERATORS:
        return {"unsupported": f"torch: no counterpart of {problem['op']}"}
    torch.set_grad_enabled(False)
    operands = [o for o in problem["operands"] if o["role"] != "absent"]
    tensors = read_inputs(folder, operands)
    run, rest = OPERATORS[problem["op"]](problem["fields"], tensors)
    variants = {"eager": run}
    if problem["compile"]:
        variants["compile"] = torch.compile(run, mode="max-autotune-no-cudagraphs", dynamic=False)
    answer = {"version": torch.__version__, "variants": []}
    sets = copies(tensors, problem)
    for name, function in variants.items():
        try:
            results = {**function(tensors), **(rest(tensors) if rest else {})}
            write_outputs(folder, name, operands, results)
            answer["variants"].append({"name": name, "samples": Race(function, sets).samples(problem["seconds"])})
        except Exception as error:  # a variant that fails is left out, the first one decides
            if name == "eager":
                raise
            answer["variants"].append({"name": name, "fault": str(error)[:200]})
    return answer


if __name__ == "__main__":
    try:
        reply = main(sys.argv[1])
    except Unsupported as reason:
        reply = {"unsupported": f"torch: {reason} is not compared"}
    except Exception as error:
        reply = {"unsupported": f"torch: {type(error).__name__}: {str(error)[:200]}"}
    print(json.dumps(reply))
