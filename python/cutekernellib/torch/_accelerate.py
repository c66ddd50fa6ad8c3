"""accelerate(): modules of a model, and functions of torch.nn.functional, replaced by ours where they take the problem."""

from __future__ import annotations

import collections
import functools
import sys

import torch
import torch.nn.functional as F

from . import _taken
from ._functions import FUNCTIONS, causal_mask, rotary, rotates_halves
from ._modules import WHOLE, forward_of, subclass, why_not


class Report:
    """What accelerate() did: `swapped` and `left` by name, and undo(). Printing it tells both, and what came of the calls since."""

    def __init__(self):
        self.swapped: dict[str, str] = {}  # name of a module or function: its class
        self.left: dict[str, str] = {}  # name of a module: why
        self._modules = {}
        self._undo = []

    @property
    def passed_on(self) -> dict[str, int]:
        """Name of a module: how often it called its own forward since, because no operator took the arguments."""
        calls = {name: getattr(module, "ckl_passed_on", 0) for name, module in self._modules.items()}
        return {name: count for name, count in calls.items() if count}

    def undo(self) -> None:
        """The model and torch's functions as they were."""
        while self._undo:
            self._undo.pop()()

    def __str__(self):
        swapped = collections.Counter(self.swapped.values())
        left = collections.Counter(self.left.values())
        lines = [f"swapped {sum(swapped.values())}:"] + [f"    {n:5} {what}" for what, n in swapped.most_common()]
        lines += [f"left {sum(left.values())}:"] + [f"    {n:5} {why}" for why, n in left.most_common()]
        passed_on = collections.Counter(self.swapped[name] for name in self.passed_on)
        if passed_on:
            lines += ["swapped, but not taken in some calls:"]
            lines += [f"    {n:5} {what}" for what, n in passed_on.most_common()]
        return "\n".join(lines)


def _swap_module(report, name, module, forward):
    was = type(module)
    module.__class__ = subclass(was, forward)
    report.swapped[name], report._modules[name] = was.__name__, module

    def undo():
        module.__class__ = was
        for own in ("ckl_passed_on", "ckl_whole"):
            vars(module).pop(own, None)

    report._undo.append(undo)


@functools.lru_cache(None)
def _replaced(original, replacement):
    """One function for both, whenever it is asked for: traces are kept by it."""

    @functools.wraps(original)
    def replaced(*args, **options):
        return replacement(original, *args, **options)

    replaced.ckl_original = original
    return replaced


def _swap_function(report, file, name, replacement):
    original = getattr(file, name)
    if getattr(original, "ckl_original", None):
        return  # another model's accelerate() did it
    setattr(file, name, _replaced(original, replacement))
    report.swapped[f"{file.__name__}.{name}"] = f"{file.__name__}.{name}"
    report._undo.append(lambda: setattr(file, name, original))


def accelerate(model: torch.nn.Module, *, functions: bool = True, host: bool = False, quiet: bool = False) -> Report:
    """Replaces modules of a model, in place, by ours where an operator takes them, and prints what it replaced and what not.

    Each replaced module looks at its input and calls its own forward() where it is not taken: another type, another device.
    Parameters, state_dict() and isinstance() stay as they are; pickled it is the model as it was. functions: also those of torch.nn.functional that models call,
    such as scaled_dot_product_attention and cross_entropy, for the whole process. host: take tensors of the host, too, which run
    on the emulated GPU: for tests. Returns a Report; its undo() puts everything back.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"accelerate: the model is no torch.nn.Module but of {type(model).__name__}")
    report, was_host, _taken.host = Report(), _taken.host, host
    report._undo.append(lambda: setattr(_taken, "host", was_host))
    inside = set()  # modules that those around them take over
    for name, module in model.named_modules():
        forward, kind = forward_of(module), type(module).__name__
        why = why_not(module, forward)
        if forward and not why:
            _swap_module(report, name, module, forward)
            inside |= {id(child) for child in module.modules()} if forward in WHOLE else set()
        elif why and id(module) not in inside:
            report.left[name] = f"{kind}: {why}"
    for name, replacement in FUNCTIONS.items() if functions else ():
        _swap_function(report, F, name, replacement)
    for file in {sys.modules[type(module).__module__] for module in model.modules()} if functions else ():
        if rotates_halves(getattr(file, "apply_rotary_pos_emb", None)):
            _swap_function(report, file, "apply_rotary_pos_emb", rotary)
        if hasattr(file, "create_causal_mask"):
            _swap_function(report, file, "create_causal_mask", causal_mask)
    if not quiet:
        print(report)
    return report
