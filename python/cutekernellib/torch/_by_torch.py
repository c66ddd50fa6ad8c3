"""Gradients that have no kernel here: torch's own, of the same function written in torch. They are right, and slower than a kernel."""

import torch
import torch.nn.functional as F


def gradients(function, dy, *inputs):
    """Of function(*inputs), each None where there is none, as of integers; also below the dispatcher, and in a trace."""
    floats = {i: x for i, x in enumerate(inputs) if x.is_floating_point()}

    def of_floats(*given):
        given = dict(zip(floats, given))
        return function(*[given.get(i, x) for i, x in enumerate(inputs)])

    made = dict(zip(floats, torch.func.vjp(of_floats, *floats.values())[1](dy)))
    return tuple(map(made.get, range(len(inputs))))


# Expressions, as `elementwise` reads them

_FUNCTIONS = {
    "neg": torch.neg,
    "relu": torch.relu,
    "cast": lambda x: x,
    "silu": F.silu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "max": torch.maximum,
    "min": torch.minimum,
} | {name: getattr(torch, name) for name in "abs sigmoid tanh erf exp log sqrt rsqrt add sub mul div pow".split()}


def expression(expr, dtype, names, numbers):
    """The function of tensors of these names that an expression is, in f32; expr was accepted by the operator before."""
    code = compile(expr.replace("^", "**"), "expression", "eval")

    def function(*tensors):
        values = dict(zip(names, (x.float() for x in tensors))) | {
            name: torch.tensor(x, device=tensors[0].device) for name, x in numbers.items()
        }
        return eval(code, _FUNCTIONS | values).to(dtype)

    return function


# Reductions


def _prod(x, axes):
    for axis in sorted(axes, reverse=True):
        x = x.prod(axis)
    return x


def reduction(op, axes, correction):
    """The function of a tensor that a reduction is, in f32. Of equal largest elements each has a share of the gradient."""
    function = {
        "max": lambda x: x.amax(axes),
        "min": lambda x: x.amin(axes),
        "prod": lambda x: _prod(x, axes),
        "var": lambda x: x.var(axes, correction=correction),
        "std": lambda x: x.std(axes, correction=correction),
        "norm1": lambda x: torch.linalg.vector_norm(x, 1, axes),
        "norm2": lambda x: torch.linalg.vector_norm(x, 2, axes),
        "logsumexp": lambda x: x.logsumexp(axes),
    }[op]
    return lambda x: function(x.float()).to(x.dtype)
