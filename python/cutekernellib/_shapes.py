"""Shapes and types that the arguments of a function must have, written as in its documentation: ``x[*,K] weight[N,K] bias[N]``.

All arguments are of the first one's type but those with a ~ behind their name, which have one of their own: ``target~[rows]``.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import sys


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


def _named(dtype):
    return getattr(dtype, "name", str(dtype)).rpartition(".")[2]


@functools.lru_cache(8192)
def check(name, pattern, *arrays):
    """expect() of shapes and types: each of arrays is None or (shape, type)."""
    given = [(*wanted, tuple(x[0]), _named(x[1])) for wanted, x in zip(_parsed(pattern), arrays) if x is not None]
    sizes, (first, *_, first_type) = {}, given[0]
    if not all([_fits(modes, shape, sizes) for _, modes, _, shape, _ in given]):
        are, should_be = (" ".join(f"{row[0]}[{','.join(map(str, row[i]))}]" for row in given) for i in (3, 1))
        raise ValueError(f"{name}: {are} do not fit {should_be}")
    for argument, _, is_own, _, dtype in given:
        if not is_own and dtype != first_type:
            raise ValueError(f"{name}: {argument} is of {dtype}, {first} of {first_type}")


def expect(name, pattern, *arrays):
    """ValueError where the arrays, the first one or None for others, do not fit the pattern; TypeError of what is no array."""
    try:
        arrays[0].shape
        check(name, pattern, *[None if x is None else (x.shape, x.dtype) for x in arrays])
    except AttributeError:
        for i, ((argument, *_), x) in enumerate(zip(_parsed(pattern), arrays)):
            if (x is not None or i == 0) and not hasattr(x, "shape"):
                raise TypeError(f"{name}: {argument} is no array but of {type(x).__name__}") from None
        raise


_ERRORS = (AttributeError, IndexError, OverflowError, RuntimeError, TypeError, ValueError)
_CALL = """def made(function, errors, told):
    def call({taken}):
        try:
            return function({given})
        except errors as error:
            told(error, {named})
            raise
    return call"""


def typed(function):
    """The function with a TypeError that names the argument where one is not of the annotated type, whatever else would say so.

    Its arguments are written out, as packed ones would cost a call 0.2 us.
    """
    signature = inspect.signature(function)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    taken = str(signature.replace(parameters=plain, return_annotation=signature.empty))[1:-1]
    named = [f"**{p.name}" if p.kind is p.VAR_KEYWORD else f"{p.name}={p.name}" for p in plain]
    given = [p.name if p.kind is p.POSITIONAL_OR_KEYWORD else n for p, n in zip(plain, named)]
    place: dict = {"__name__": __name__}  # by which a warning knows whose caller is meant
    exec(_CALL.format(taken=taken, given=", ".join(given), named=", ".join(named)), place)
    return functools.wraps(function)(place["made"](function, _ERRORS, functools.partial(_tell, function)))


def _tell(function, error, **arguments):
    """Raises what a caller is to see in the place of an error, if that is another one."""
    if not (isinstance(error, TypeError) and str(error).startswith(f"{function.__name__}: ")):
        _check_arguments(function, arguments)
    of_torch = isinstance(error, RuntimeError) and str(error).startswith("cutekernellib::")  # the dispatcher's
    if isinstance(error, (IndexError, OverflowError)) or of_torch:
        raise ValueError(f"{function.__name__}: {error}") from None


def _check_arguments(function, arguments):
    parameters = inspect.signature(function).parameters
    for name, x in arguments.items():
        annotation = parameters[name if name in parameters else list(parameters)[-1]].annotation  # the last one takes all names
        if not any(_is(x, kind) for kind in annotation.split(" | ")):
            told = _TOLD.get(annotation, annotation)
            raise TypeError(f"{function.__name__}: {name} is of {type(x).__name__}, not {told}") from None
        if str(getattr(x, "layout", "torch.strided")) != "torch.strided":
            raise NotImplementedError(f"{function.__name__}: {name} is sparse, {x.layout}") from None


_TOLD = {"A": "an array", "Array": "an array", "A | None": "an array | None", "Array | None": "an array | None"}
_KINDS = {"int": numbers.Integral, "float": numbers.Real, "bool": numbers.Integral, "str": str, "None": type(None)}


def _is(x, kind):
    """Is x of the type that an annotation calls so?"""
    if kind == "Tensor":
        return isinstance(x, sys.modules["torch"].Tensor)
    if kind in ("A", "Array"):
        return hasattr(x, "__dlpack_device__")
    if kind in _KINDS:
        return isinstance(x, _KINDS[kind])
    return kind == "Any" or (isinstance(x, (tuple, list)) and all(isinstance(n, numbers.Integral) for n in x))
