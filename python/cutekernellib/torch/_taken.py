"""Which tensors accelerate()'s replacements take."""

import torch

from . import _registry

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
PRODUCTS_MIN = 2**30  # multiply-adds of a layer: below, a call costs more than its kernel, and torch's calls are cheaper
_is_any_autocast = torch._C._is_any_autocast_enabled  # without the name of a device to look at
host = False  # are tensors of the host taken, too?


def fit(x, *others):
    """Are these tensors on a GPU, of one type that the operators have? By autocast torch would make f32 of shorter ones."""
    dtype, on_gpu = x.dtype, x.is_cuda
    if dtype not in FLOATS or not (on_gpu or host):
        return False
    for other in others:
        if other is not None and other.dtype is not dtype:
            return False
    if dtype is torch.float32 or not _is_any_autocast():
        return True
    return not torch.is_autocast_enabled("cuda" if on_gpu else "cpu")


def takes(*tensors):
    """Are they taken?"""
    return fit(*tensors) and not _registry.is_transformed()


def multiplies(x, weight, bias, axis=-1):
    """Is this a product of 16-bit types, along an axis of x, that takes a GPU some microseconds at least?"""
    return (
        (host or x.numel() // max(x.shape[axis], 1) * weight.numel() >= PRODUCTS_MIN)
        and takes(x, weight, bias)
        and x.dtype != torch.float32
        and type(weight) is torch.nn.Parameter
    )
