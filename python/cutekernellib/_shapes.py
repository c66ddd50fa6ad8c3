"""Shapes that the arguments of a function must have, written as in its documentation: ``x[*,K] weight[N,K] bias[N]``."""

from __future__ import annotations

import functools


@functools.lru_cache(None)
def _parsed(pattern):
    """[(name, modes)]"""
    words = (word.rstrip("]").split("[") for word in pattern.split())
    return [(name, modes.split(",")) for name, modes in words]


def _fits(modes, shape, sizes):
    """Has a shape these modes? sizes: of the letters, and of * the modes that it stands for, as they were before."""
    if "*" in modes:
        before = modes.index("*")
        behind = len(shape) - (len(modes) - before - 1)
        if behind < before:
            return False
        shape = (*shape[:before], shape[before:behind], *shape[behind:])
    return len(shape) == len(modes) and all(
        (int(mode) if mode.isdigit() else sizes.setdefault(mode, n)) == n for mode, n in zip(modes, shape)
    )


@functools.lru_cache(8192)
def _check(name, pattern, *shapes):
    sizes, wanted = {}, _parsed(pattern)
    given = [(argument, modes, tuple(shape)) for (argument, modes), shape in zip(wanted, shapes) if shape is not None]
    if not all([_fits(modes, shape, sizes) for _, modes, shape in given]):
        are, should_be = (" ".join(f"{row[0]}[{','.join(map(str, row[i]))}]" for row in given) for i in (2, 1))
        raise ValueError(f"{name}: {are} do not fit {should_be}")


def expect(name, pattern, *arrays):
    """ValueError where the arrays, or None for those that are not there, do not fit the pattern; TypeError of what is no array."""
    for (argument, _), x in zip(_parsed(pattern), arrays):
        if x is not None and not hasattr(x, "shape"):
            raise TypeError(f"{name}: {argument} is no array but of {type(x).__name__}")
    _check(name, pattern, *[None if x is None else x.shape for x in arrays])
