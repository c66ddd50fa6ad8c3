"""The shared library, its operators and their problems: what it says of itself, as Python objects."""

from __future__ import annotations

import atexit
import functools
import importlib
import json
import os
import pathlib
import sys
import threading
import time
import warnings
from typing import Any


def _import_ffi():
    """tvm_ffi asks torch for GPUs when it is imported. After CUDA's own answer forked processes could not use them, after NVML's they can."""
    name = "PYTORCH_NVML_BASED_CUDA_CHECK"
    is_ours = name not in os.environ
    os.environ.setdefault(name, "1")
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        if is_ours:
            del os.environ[name]


tvm_ffi = _import_ffi()
tvm_ffi.register_error("NotImplementedError", NotImplementedError)  # the other kinds are known there

CPU, CUDA = 1, 2  # DLPack's types of devices

_path = os.environ.get("CKL_LIBRARY") or pathlib.Path(__file__).parent / "libcutekernellib.so"
if not pathlib.Path(_path).is_file():
    raise ImportError(f"there is no {_path}: `pip install .` brings the library, CKL_LIBRARY names that of a build")
if pathlib.Path(_path).suffix != ".so":
    raise ImportError(f"CKL_LIBRARY={_path} does not end in .so: tvm_ffi loads by that, so name the link libcutekernellib.so")
module = tvm_ffi.load_module(str(_path))


def leave():
    """Before the interpreter goes: threads that call the library stay in it, since they could not return."""
    if threading.active_count() > 1:
        module.ckl_leave()
        time.sleep(0.05)  # those on their way come to it


atexit.register(leave)


class EmulatorWarning(UserWarning):
    """Arrays of the host are computed by the emulated GPU, some million times slower than by a GPU.

    It is said once. To silence it: ``warnings.simplefilter("ignore", cutekernellib.EmulatorWarning)``.
    """


def _callers_level():
    """For warnings: how many frames are this package's and torch's."""
    frame, level = sys._getframe(2), 2
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("cutekernellib", "torch"):
        frame, level = frame.f_back, level + 1
    return level


@functools.lru_cache(None)
def warn_of_emulator():
    warnings.warn(
        "arrays of the host are computed on the emulated H200, which is slow; silence this by "
        'warnings.simplefilter("ignore", cutekernellib.EmulatorWarning)',
        EmulatorWarning,
        stacklevel=_callers_level(),
    )


def device_of(tensor):
    """(type, id) of DLPack of an array or tensor."""
    kind, index = tensor.__dlpack_device__()
    return int(kind), int(index)


def device_number(device):
    """(type, id) of "cuda", "cuda:1" or "cpu", which is the emulated GPU."""
    name, _, index = str(device).partition(":")
    if name not in ("cuda", "cpu") or not (index or "0").isdecimal():
        raise ValueError(f"device: {device} is none of cuda, cuda:NUMBER, cpu")
    return CUDA if name == "cuda" else CPU, int(index or 0)


def line_of(fields):
    """A problem line of keywords: sequences become lists with commas, quoted where they have spaces."""
    words = []
    for key, value in fields.items():
        if isinstance(value, (tuple, list)):
            value = ("x" if key == "shape" else ",").join(map(str, value))
        elif isinstance(value, bool):
            value = int(value)
        elif isinstance(value, float):
            value = f"{value:.9g}"
        words.append(f"{key}='{value}'" if " " in str(value) else f"{key}={value}")
    return " ".join(words)


class Plan:
    """A problem of an operator: call it with tensors, in the operator's order or by name.

    Tensors that the problem does not have are left out or None. Outputs that are given are written; the call returns None.
    Host arrays run on the emulated GPU and the call waits; GPU tensors are enqueued on their framework's current stream.
    Plans are immutable; any number of threads may call one.
    """

    def __init__(self, operator, line, device):
        self.operator = operator
        self.line = line
        self.device = device_number(device)
        self.desc = bytes(module.ckl_problem(operator.name, line))

    @property
    def tensors(self) -> list[dict[str, Any]]:
        """Name, dtype, shape, stride, output of each tensor, and why it is absent if it is."""
        return tensors_of(self.operator.name, self.desc)

    @property
    def text(self) -> str:
        """The kernel that was chosen: operator, implementation and config."""
        return module.ckl_plan(self.operator.name, self.desc, *self.device)

    def explain(self) -> str:
        """Every implementation with its config for this problem, or why it declines; the first line is what is taken."""
        return module.ckl_explain(self.operator.name, self.desc, *self.device)

    def __call__(self, *args: Any, **named: Any) -> None:
        if named:
            args = self.operator.in_order(args, named)
        self.operator.run(self.desc, *args)

    def __repr__(self):
        return f"<cutekernellib plan: {self.operator.name} {self.line}>"


class Operator:
    """An operator of the library. Its fields, tensors and numbers come from the library's tables."""

    def __init__(self, table):
        self.name = table["name"]
        self.summary = table["summary"]
        self.fields = table["fields"]
        self.tensors = [t["name"].replace("[", "").replace("]", "") for t in table["tensors"]]
        self.outputs = [name for name, t in zip(self.tensors, table["tensors"]) if t["output"]]
        self.arguments = self.tensors + table["numbers"].split()
        self.run = getattr(module, "ckl_" + self.name)
        self.__name__ = self.name
        self.__doc__ = self._document()

    def plan(self, line: str = "", device: str = "cuda", **fields: Any) -> Plan:
        """A plan of a problem, given as a problem line (``"m=16 n=8 k=64"``), as keywords, or both."""
        return Plan(self, f"{line} {line_of(fields)}".strip(), device)

    def __call__(self, problem: str | dict[str, Any], *args: Any, **named: Any) -> None:
        """One call: ``add("n=400 dtype=f32", a, b, y)`` or ``add(dict(n=400), a=a, b=b, y=y, alpha=2.0)``."""
        line = problem if isinstance(problem, str) else line_of(problem)
        self.run(line, *self.in_order(args, named))

    def taking(self, names: str):
        """The operator as a function of a desc and the arguments of these names, wherever they stand among all."""
        slots = [name if name in names.split() else "None" for name in self.arguments]
        while slots[-1] == "None":
            slots.pop()
        return eval(f"lambda run: lambda desc, {', '.join(names.split())}: run(desc, {', '.join(slots)})")(self.run)

    def in_order(self, args, named):
        unknown = set(named) - set(self.arguments)
        if unknown or len(args) > len(self.arguments):
            raise TypeError(f"{self.name}: arguments are {', '.join(self.arguments)}, not {', '.join(unknown) or len(args)}")
        return (*args, *map(named.get, self.arguments[len(args) :]))

    def _document(self):
        lines = [self.summary, "", "Fields of a problem and their defaults:"]
        for f in self.fields:
            choices = f": {f['choices']}" if f["choices"] else ""
            lines.append(f"    {f['name']}={f['value'] or '...'}  {f['help']}{choices}")
        lines += ["", f"Arguments: {', '.join(self.arguments)}; written: {', '.join(self.outputs)}"]
        lines += ["", "ValueError: a mistake in the problem or the tensors; NotImplementedError: no kernel takes the problem."]
        return "\n".join(lines)

    def __repr__(self):
        return f"<cutekernellib operator: {self.name}>"


class _Operators(dict):
    """The operators of the library, by their names."""

    def __missing__(self, name):
        raise KeyError(f"{name} is none of the operators {' '.join(self)}")


operators: dict[str, Operator] = _Operators((table["name"], Operator(table)) for table in json.loads(module.ckl_operators()))


@functools.lru_cache(8192)
def problem(name, line):
    """The bytes of a problem, kept by its line."""
    return bytes(module.ckl_problem(name, line))


@functools.lru_cache(8192)
def tensors_of(name, desc):
    """The tensors of a problem: name, dtype, shape, stride, output, optional, absent."""
    return json.loads(module.ckl_tensors(name, desc))


def version() -> str:
    """Of the loaded library."""
    return module.ckl_version()


def prepare(lines: list[str], device: str = "cuda") -> None:
    """Compiles the kernels of problem lines (``["gemm m=4096 n=4096 k=4096 a=f16"]``) ahead, on several threads."""
    if isinstance(lines, str):
        raise TypeError("prepare: lines are a list of problem lines, not one text")
    module.ckl_prepare(*device_number(device), "\n".join(lines))


def device_info(device: str = "cuda") -> dict[str, Any]:
    """What a device is: a dict of id, name, compute_capability, sm_count, memory_bytes."""
    return json.loads(module.ckl_device(*device_number(device)))
