"""torch_peer.py - problems of `ckl bench` said in PyTorch; bench/peers/torch.c loads it into ckl's own process.

prepare() takes a problem as JSON: the operator, its fields and operands. run() enqueues it on a set of memory, which is known
by the address of its list of pointers, one for each operand; results stay where torch puts them, one for each set so that
outputs are cold too. finish() copies those of the last run to the operands, for the check. All answer with text, "" for
nothing to say.
"""
import ctypes
import hashlib
import json
import math
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from torch_operators import DTYPES, OPERATORS, Unsupported, liger, torch  # torch: None where it is not installed


class Memory:
    """Device memory of ours, as torch takes it."""

    def __init__(self, address, size):
        self.__cuda_array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3}


def tensor(address, operand):
    dtype, shape, stride = DTYPES[operand["dtype"]], operand["shape"], operand["stride"]
    size = torch.empty(0, dtype=dtype).element_size()
    span = sum((n - 1) * step for n, step in zip(shape, stride)) + 1 if math.prod(shape) else 0
    if span == 0:
        return torch.empty(shape, dtype=dtype, device="cuda")
    return torch.as_tensor(Memory(address, span * size), device="cuda").view(dtype).as_strided(shape, stride)


class Compiled:
    """torch.compile of a problem, as CKL_TORCH_COMPILE says.

    "1": max-autotune, here and now. "make": torch's default mode, nothing but this, for processes that fill torch's cache on disk
    (TORCHINDUCTOR_CACHE_DIR) and leave a mark in it for each problem that has run. "ahead": the same, of problems with a mark.
    """

    def __init__(self, mode, problem):
        key = json.dumps([problem[part] for part in ("op", "fields", "operands")], sort_keys=True)
        folder = pathlib.Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor"))
        self.mode, self.mark = mode, folder / ("ckl-" + hashlib.sha256(key.encode()).hexdigest())

    def wanted(self):
        return self.mode in ("1", "make") or self.mode == "ahead" and self.mark.exists()

    def variants(self, run, others):
        torch._dynamo.reset()
        if self.mode == "1":
            return {**others, "compile": torch.compile(run, dynamic=False, mode="max-autotune-no-cudagraphs")}
        compiled = torch.compile(run, dynamic=False)
        return {"compile": self.marked(compiled)} if self.mode == "make" else {**others, "default compile": compiled}

    def marked(self, compiled):
        def run(t):
            results = compiled(t)
            torch.cuda.synchronize()
            self.mark.touch()
            return results
        return run


class Problem:
    def __init__(self, text):
        problem = json.loads(text)
        self.operands = problem["operands"]
        if problem["op"] not in OPERATORS:
            raise Unsupported(problem["op"])
        inputs = {o["name"] for o in self.operands if o["role"] in ("in", "in_out")}
        run, self.rest, *saved = OPERATORS[problem["op"]](problem["fields"], inputs)
        self.saved = saved[0] if saved else None
        self.variants = run if isinstance(run, dict) else {"eager": run}
        compiled = Compiled(problem["compile"], problem)
        if compiled.wanted() and not isinstance(run, dict):
            self.variants = compiled.variants(run, self.variants)
        triton = liger(problem["op"], problem["fields"], inputs)
        if triton:
            self.variants["liger"] = triton
        self.functions = list(self.variants.values())
        self.sets, self.results = {}, {}

    def tensors(self, address):
        """The inputs and the outputs of a set."""
        pointers = (ctypes.c_uint64 * len(self.operands)).from_address(address)
        there = [(o, tensor(at, o)) for o, at in zip(self.operands, pointers) if o["role"] != "absent"]
        inputs = {o["name"]: t for o, t in there if o["role"] != "out"}
        if self.saved:
            apart = torch.cuda.Stream()  # the stream in use may be capturing a graph
            with torch.cuda.stream(apart):
                inputs.update(self.saved(inputs))
            apart.synchronize()
        return inputs, {o["name"]: t for o, t in there if o["role"] != "in"}

    def run(self, variant, address):
        if address not in self.sets:
            self.sets[address] = self.tensors(address)
        self.results[address] = self.functions[variant](self.sets[address][0])

    def finish(self, address):
        inputs, outputs = self.sets[address]
        results = {**self.results[address], **(self.rest(inputs) if self.rest else {})}
        for name, out in outputs.items():
            if name not in results:
                raise Unsupported(f"{name} of the problem")
            out.copy_(results[name].reshape(out.shape))


KEPT_SHARE = 0.1
problems = {}
stream_in_use = None


def on_stream(stream):
    global stream_in_use
    if stream_in_use != stream:
        torch.cuda.set_stream(torch.cuda.ExternalStream(stream))
        stream_in_use = stream


def words_of(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def prepare(text):
    if torch is None:
        return json.dumps({"unsupported": "python3 has no module torch; pip install torch"})
    try:
        if not torch.cuda.is_available():
            return json.dumps({"unsupported": f"{torch.__version__} sees no GPU"})
        torch.set_grad_enabled(False)
        number = len(problems) + 1
        problems[number] = Problem(text)
        names = [f"torch {torch.__version__} {name}" for name in problems[number].variants]
        return json.dumps({"number": number, "variants": names})
    except Unsupported as reason:
        return json.dumps({"unsupported": f"{reason} is not compared"})
    except Exception as error:
        return json.dumps({"unsupported": words_of(error)})


def run(number, variant, address, stream):
    try:
        on_stream(stream)
        problems[number].run(variant, address)
        return ""
    except Exception as error:
        return words_of(error)


def finish(number, variant, address, stream):
    try:
        on_stream(stream)
        problems[number].finish(address)
        return ""
    except Exception as error:
        return words_of(error)


def release(number):
    """Memory that is free stays torch's, up to a share: getting it anew takes as long as a small problem."""
    problems[number] = None
    if torch.cuda.memory_reserved() > KEPT_SHARE * torch.cuda.get_device_properties(0).total_memory:
        torch.cuda.empty_cache()
    return ""
