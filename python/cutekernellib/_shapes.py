"""Shapes and types that the arguments of a function must have, written as in its documentation: ``x[*,K] weight[N,K] bias[N]``.

All arguments are of the first one's type but those with a ~ behind their name, which have one of their own: ``target~[rows]``.
"""

from __future__ import annotations

import functools


@functools.lru_cache(None)
def _parsed(pattern):
    """[(name, modes, is of its own type)]"""
    words = (word.rstrip("]").split("[") for word in pattern.split())
    return [(name.rstrip("~"), modes.split(","), name.endswith("~")) for name, modes in words]


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
    given = [(argument, modes, tuple(shape)) for (argument, modes, _), shape in zip(wanted, shapes) if shape is not None]
    if not all([_fits(modes, shape, sizes) for _, modes, shape in given]):
        are, should_be = (" ".join(f"{row[0]}[{','.join(map(str, row[i]))}]" for row in given) for i in (2, 1))
        raise ValueError(f"{name}: {are} do not fit {should_be}")


@functools.lru_cache(8192)
def _check_types(name, pattern, *dtypes):
    told = [x if x is None else getattr(x, "name", str(x)).rpartition(".")[2] for x in dtypes]
    (first, _, _), *others = _parsed(pattern)
    for (argument, _, is_own), dtype in zip(others, told[1:]):
        if dtype and not is_own and dtype != told[0]:
            raise ValueError(f"{name}: {argument} is of {dtype}, {first} of {told[0]}")


def expect(name, pattern, *arrays):
    """ValueError where the arrays, the first one or None for others, do not fit the pattern; TypeError of what is no array."""
    try:
        shapes, dtype = [None if x is None else x.shape for x in arrays], arrays[0].dtype
    except AttributeError:
        for i, ((argument, *_), x) in enumerate(zip(_parsed(pattern), arrays)):
            if (x is not None or i == 0) and not hasattr(x, "shape"):
                raise TypeError(f"{name}: {argument} is no array but of {type(x).__name__}") from None
        raise
    _check(name, pattern, *shapes)
    if any([x is not None and x.dtype is not dtype for x in arrays]):
        _check_types(name, pattern, *[x if x is None else x.dtype for x in arrays])
