#!/usr/bin/env python3
"""calls.py [FILE] - microseconds of a call from Python: by FFI, by ctypes, by torch's dispatcher, beside torch's own softmax; of
modules, and of blocks of models as one operator, forward and with their gradients.

Without elements what remains of a call is its way to the library and back. Blocks are timed so, on a GPU alone; without a GPU nothing
else is.
"""

import ctypes
import json
import sys
import time

import results
import torch

import cutekernellib.torch as ckl
from cutekernellib import _library, _problems

device = "cuda" if torch.cuda.is_available() else "cpu"
run = _library.operators["softmax"].run
ops = torch.ops.cutekernellib


def cost(function, calls=5000):
    """The best of some rounds: what others do on the machine only adds."""
    best = float("inf")
    for _ in range(5):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, time.perf_counter() - begin)
    return round(best / calls * 1e6, 2)


def by_ctypes(x, y):
    """ckl_softmax() with the desc that the FFI uses, too."""
    library = ctypes.CDLL(str(_library._path))
    handle = ctypes.c_void_p()
    library.ckl_device_open(device.replace("cpu", "emulator").encode(), ctypes.byref(handle))
    desc = _problems.softmax(x.shape, x.dtype, 1)

    def call():
        args = (ctypes.c_void_p * 6)(x.data_ptr(), None, y.data_ptr())
        stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else None
        library.ckl_softmax(handle, desc, args, ctypes.c_void_p(stream))

    return call


def costs(rows):
    x = torch.randn(rows, 64, device=device)
    y = torch.empty_like(x)
    desc = _problems.softmax(x.shape, x.dtype, 1)
    with torch.no_grad():
        return {
            "FFI": cost(lambda: run(desc, x, None, y)),
            "ctypes": cost(by_ctypes(x, y)),
            "cutekernellib.torch.softmax": cost(lambda: ckl.softmax(x, 1)),
            "torch.ops.cutekernellib.softmax": cost(lambda: ops.softmax(x, 1)),
            "torch.softmax": cost(lambda: torch.softmax(x, 1)),
            "torch.softmax, out=": cost(lambda: torch.softmax(x, 1, out=y)),
        }


def modules(rows):
    """Of single modules, torch's and accelerated."""
    x = torch.randn(rows, 64, device=device, dtype=torch.bfloat16)
    costs = {}
    for module in torch.nn.LayerNorm(64), torch.nn.RMSNorm(64), torch.nn.GELU():
        name, module = type(module).__name__, module.to(device, torch.bfloat16)
        with torch.no_grad():
            costs[f"{name}, torch"] = cost(lambda: module(x))
            report = ckl.accelerate(module, quiet=True)
            costs[f"{name}, accelerated"] = cost(lambda: module(x))
            report.undo()
    return costs


def blocks():
    """Blocks of models that are installed, with tensors of no elements: (name, module, call, input)."""
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    try:
        from timm.models.convnext import ConvNeXt
        from timm.models.vision_transformer import VisionTransformer
        from transformers import GPT2Config, GPT2Model, LlamaConfig, LlamaModel
    except ImportError as why:
        print(f"blocks are not timed: {why}", file=sys.stderr)
        return
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    x = torch.zeros(0, 5, 64, device=device, dtype=torch.bfloat16)
    tables = [torch.zeros(1, 5, 32, device=device, dtype=torch.bfloat16)] * 2
    models = {
        "GPT-2": GPT2Model(GPT2Config(vocab_size=8, n_embd=64, n_layer=1, n_head=2, n_positions=8, **no_dropout)).h,
        "Llama": LlamaModel(LlamaConfig(vocab_size=8, intermediate_size=64, **sizes)).layers,
        "ViT": VisionTransformer(img_size=32, embed_dim=64, depth=1, num_heads=2).blocks,
        "ConvNeXt": ConvNeXt(depths=(1, 1, 1, 1), dims=(16, 16, 16, 16)).stages[1].blocks,
    }
    for name, modules in models.items():
        options = {"position_embeddings": tables} if name == "Llama" else {}
        image = torch.zeros(0, 16, 4, 4, device=device, dtype=torch.bfloat16)
        yield name, modules.to(device, torch.bfloat16), options, image if name == "ConvNeXt" else x


def cost_of_block(modules, options, x):
    """Of a pass forward without gradients, and of one with them and back."""
    from cutekernellib.torch import _taken

    report = ckl.accelerate(modules, quiet=True)
    _taken.host = True  # however small its products are
    leaf = x.clone().requires_grad_()
    leaves = [leaf, *modules.parameters()]

    def step():
        """As a model does it: gradients are not added to older ones."""
        y = modules[0](leaf, **options)
        y.backward(y.detach())
        for each in leaves:
            each.grad = None

    with torch.no_grad():
        forward = cost(lambda: modules[0](x, **options), 500)
    costs = {"forward": forward, "forward and backward": cost(step, 200)}
    report.undo()
    return costs


def main():
    rows = [{"call": "no elements"} | costs(0)]
    if device == "cuda":
        rows.append({"call": "4 rows of 64"} | costs(4))
        rows.append({"call": "modules, 4 rows of 64"} | modules(4))
        rows += [{"call": f"a block of {name}'s"} | cost_of_block(*block) for name, *block in blocks()]
    print(json.dumps(rows, indent=1))
    if len(sys.argv) > 1:
        results.save(
            sys.argv[1],
            "microseconds of the caller's thread, the best of 5 rounds of 5000 calls (blocks: of 500 and 200)",
            rows,
            "call",
        )


main()
