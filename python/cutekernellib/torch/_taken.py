"""Which tensors accelerate()'s replacements take."""

import torch

from ._registry import is_transformed

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
PRODUCTS_MIN = 2**30  # multiply-adds of a layer: below, a call costs more than its kernel, and torch's calls are cheaper
host = False  # are tensors of the host taken, too?


def takes(x, *others):
    """Are these tensors on a GPU, of one type that the operators have? By autocast torch would make f32 of shorter ones."""
    is_own = (x.is_cuda or host) and x.dtype in FLOATS and all(o is None or o.dtype == x.dtype for o in others)
    return is_own and not is_transformed() and (x.dtype == torch.float32 or not torch.is_autocast_enabled(x.device.type))


def multiplies(x, weight, bias, axis=-1):
    """Is this a product of 16-bit types, along an axis of x, that takes a GPU some microseconds at least?"""
    return (
        (host or x.numel() // max(x.shape[axis], 1) * weight.numel() >= PRODUCTS_MIN)
        and takes(x, weight, bias)
        and x.dtype != torch.float32
        and type(weight) is torch.nn.Parameter
    )
