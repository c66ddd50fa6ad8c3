#!/usr/bin/env python3
"""calls.py [FILE] - microseconds of a call from Python: by FFI, by ctypes, by torch's dispatcher, beside torch's own softmax.

Without a GPU only problems without elements are timed: what remains of a call is its way to the library and back.
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


def main():
    rows = [{"call": "no elements"} | costs(0)]
    if device == "cuda":
        rows.append({"call": "4 rows of 64"} | costs(4))
    print(json.dumps(rows, indent=1))
    if len(sys.argv) > 1:
        results.save(sys.argv[1], "microseconds of the caller's thread, the best of 5 rounds of 5000 calls", rows, "call")


main()
