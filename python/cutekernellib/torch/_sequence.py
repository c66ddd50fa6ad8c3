"""Several operators in one call of the library. What lies between them is memory in one tensor of bytes, which is allocated once.

A call of an operator costs Python some 15 us: shapes that are looked at, problems that are looked up, a tensor for each result. A block
of a model does all that when it first meets a shape, and keeps what came of it: the bytes of a sequence.
"""

import struct
from functools import partial

from .. import _problems
from .._library import module, operators

run_sequence = module.ckl_sequence  # (the bytes, *tensors in the order of their names)

_UNIT = 16  # rows and bytes of a row are rounded up to it, so what lies in a tensor of bytes begins at whole 256
_PLACE, _NUMBER = struct.Struct("=iiq"), struct.Struct("=iid")  # step_argument in src/ffi/call.c
_NOTHING, _TENSOR, _MEMORY, _IS_NUMBER = range(4)
_INDEX = {name: i for i, name in enumerate(operators)}


class Value:
    """A tensor of a sequence: the caller's, of a name, or memory. It has so many columns in each row; without rows, so many elements."""

    activation, before = "identity", None  # of a product: what it was made by, and of what

    def __init__(self, columns, dtype, by_rows=True, shape=None, name=None):
        self.columns, self.dtype, self.by_rows, self.shape, self.name = columns, dtype, by_rows, shape, name
        self.bytes = columns * dtype.itemsize  # of a row


class Steps:
    """Operators one behind the other, over values of so many rows, most of them of one type."""

    def __init__(self, rows, dtype):
        self.rows, self.dtype, self.steps = rows, dtype, []

    def step(self, name, problem, **arguments):
        """An operator with its arguments by name: a value, (a value, an element of it), a number, or None. problem(): its bytes."""
        if not arguments.keys() <= set(operators[name].arguments):
            raise TypeError(f"{name}: arguments are {', '.join(operators[name].arguments)}, not {', '.join(arguments)}")
        self.steps.append((name, problem, arguments))

    def gemm(self, m, n, k, layout, a, b, d, bias=None, activation="identity", x=None, c=None):
        """d[m,n] = activation(a * b + c + bias); x gets what the activation takes, or has it for a derivative."""
        keeps = x is not None and activation[0] != "d"
        options = dict(layout=layout, preactivation=keeps, c=c is not None)
        problem = partial(_problems.gemm, m, n, k, self.dtype, bias is not None, activation, **options)
        self.step("gemm", problem, a=a, b=b, bias=bias, d=d, x=x, c=c, beta=None if c is None else 1.0)

    def elements(self, expression, y, *inputs):
        """An expression of inputs without gaps, in the order in which it has them."""
        count, dtypes = self.rows * y.columns if y.by_rows else y.columns, tuple(zip("abcd", (x.dtype for x in inputs)))
        problem = partial(_problems.elementwise, expression, (count,), dtypes, ((1,),) * (len(inputs) + 1), y.dtype)
        self.step("elementwise", problem, **{f"in{i}": x for i, x in enumerate(inputs)}, out=y)

    def sums(self, x, y, rows, columns, axis):
        """y: the sums of x[rows,columns] along an axis."""
        self.step("reduce", partial(_problems.reduce, "sum", (rows, columns), (columns, 1), (axis,), x.dtype), x=x, y=y)


def values_of(step):
    """Those among the arguments of a step, each once."""
    given = (x[0] if isinstance(x, tuple) else x for x in step[2].values())
    return dict.fromkeys(x for x in given if isinstance(x, Value))


def place(steps, rows, memory, kept=(), placed=()):
    """Where in a tensor of bytes of this name values lie that are neither the caller's nor placed, {value: (name, a byte)}; its size.

    What was read for the last time makes room for what comes behind it, but for what is kept. Large values are placed first. A place is
    so many bytes of every row, as rows may be the symbol of a trace.
    """
    lives, places, size = {}, {}, 0  # first and last step of each
    for i, step in enumerate(steps):
        for value in values_of(step):
            if not value.name and value not in placed:
                lives[value] = lives.get(value, (i,))[0], len(steps) if value in kept else i
    for by_rows, unit, count in (True, _UNIT, (rows + _UNIT - 1) // _UNIT * _UNIT), (False, _UNIT**2, 1):
        spans, end = [], 0
        for value in sorted([v for v in lives if v.by_rows == by_rows], key=lambda v: -v.bytes):
            (first, last), bytes = lives[value], (value.bytes + unit - 1) // unit * unit
            at = _room(bytes, sorted(span for begin, until, span in spans if begin <= last and first <= until))
            spans.append((first, last, (at, at + bytes)))
            places[value], end = (memory, size + at * count), max(end, at + bytes)
        size += end * count
    return places, size


def _room(bytes, taken):
    """The first place for so many bytes beside those taken."""
    at = 0
    for begin, end in taken:
        if at + bytes <= begin:
            break
        at = max(at, end)
    return at


def pack(steps, tensors, places):
    """The bytes of a sequence over tensors of these names."""
    index = {name: i for i, name in enumerate(tensors)}

    def packed(x):
        value, first = x if isinstance(x, tuple) else (x, None)
        if value is None:
            return _PLACE.pack(_NOTHING, 0, 0)
        if not isinstance(value, Value):
            return _NUMBER.pack(_IS_NUMBER, 0, value)
        tensor, at = (value.name, None) if value.name else places[value]
        if at is first is None:
            return _PLACE.pack(_TENSOR, index[tensor], 0)
        return _PLACE.pack(_MEMORY, index[tensor], (at or 0) + (first or 0) * value.dtype.itemsize)

    code = []
    for name, problem, arguments in steps:
        desc, wanted = problem(), operators[name].arguments
        head = struct.pack("=ii", _INDEX[name], len(wanted))
        code.append(head + desc + bytes(-len(desc) % 8) + b"".join(packed(arguments.get(n)) for n in wanted))
    return b"".join(code)
