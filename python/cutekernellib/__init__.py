"""CuTeKernelLib: GPU operators for arrays of any DLPack library.

Functions (``softmax``, ``layer_norm``, ``linear`` ...) return new arrays. ``operators`` has every operator of the C library as it is
there: ``operators["gemm"].plan(m=16, n=8, k=64)`` is a plan to be called with tensors, whose ``text`` and ``explain()`` tell which
kernel was chosen and why. ``cutekernellib.torch``, imported when it is first named, is for models. Arrays of the host run on an emulated GPU (EmulatorWarning).
"""

import importlib as _importlib
import typing as _typing

from . import _functions
from ._functions import (
    add,
    attention,
    cross_entropy,
    elementwise,
    group_norm,
    layer_norm,
    linear,
    log_softmax,
    permute,
    reduce,
    rms_norm,
    rope,
    softmax,
    transpose,
)
from ._library import EmulatorWarning, Operator, Plan, device_info, operators, prepare, version
from ._shapes import typed as _typed

if _typing.TYPE_CHECKING:
    from . import torch as torch

__version__ = version()

__all__ = [
    "EmulatorWarning",
    "Operator",
    "Plan",
    "add",
    "attention",
    "cross_entropy",
    "device_info",
    "elementwise",
    "group_norm",
    "layer_norm",
    "linear",
    "log_softmax",
    "operators",
    "permute",
    "prepare",
    "reduce",
    "rms_norm",
    "rope",
    "softmax",
    "transpose",
]


for _name in __all__:
    if getattr(globals()[_name], "__module__", "") == _functions.__name__:
        globals()[_name] = _typed(globals()[_name])


def __getattr__(name):
    if name == "torch":  # which not everybody has
        return _importlib.import_module(".torch", __name__)
    told = f"the operator is operators[{name!r}]" if name in operators else f"it has {' '.join(__all__)}"
    raise AttributeError(f"module {__name__} has no attribute {name}; {told}")
