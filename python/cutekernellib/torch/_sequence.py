"""Several operators in one call of the library. What lies between them is memory in one tensor of bytes, which is allocated once.

A call of an operator costs Python some 15 us: shapes that are looked at, problems that are looked up, a tensor for each result. A block
of a model does all that when it first meets a shape, and keeps what came of it: the bytes of a sequence.
"""

import struct

from .. import _problems
from .._library import module, operators
from ._products import gemm_problem

run_sequence = module.ckl_sequence  # (the bytes, *tensors in the order of their names)

_ALIGNMENT = 256  # bytes; of what lies in a tensor of bytes
_PLACE, _NUMBER = struct.Struct("=iiq"), struct.Struct("=iid")  # step_argument in src/ffi/call.c
_NOTHING, _TENSOR, _MEMORY, _IS_NUMBER = range(4)


class Memory:
    """Places in a tensor of bytes, one behind the other. A place is what Sequence.add() takes: (name of the tensor, offset).

    Sizes may be symbols of a trace.
    """

    def __init__(self, name, bytes=0):
        self.name, self.bytes = name, bytes

    def __call__(self, count, itemsize):
        at = self.bytes
        self.bytes += (count * itemsize + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        return self.name, at

    def fork(self):
        """The same memory from here on, for what comes when what is taken next is not needed any more."""
        return Memory(self.name, self.bytes)

    def join(self, other):
        self.bytes = max(self.bytes, other.bytes)


def behind(place, count, itemsize):
    """The place so many elements behind one."""
    return place[0], place[1] + count * itemsize


class Sequence:
    """Steps over tensors of these names; most are matrices of so many rows, all of one type."""

    def __init__(self, tensors, rows, dtype):
        self.rows, self.dtype, self._steps, self._operators = rows, dtype, [], list(operators)
        self._tensors = {name: i for i, name in enumerate(tensors)}

    def add(self, name, desc, **arguments):
        """An operator with its arguments by name: a tensor's name, a place in one, a number, or None."""
        wanted = operators[name].arguments
        if not arguments.keys() <= set(wanted):
            raise TypeError(f"{name}: arguments are {', '.join(wanted)}, not {', '.join(arguments)}")
        head = struct.pack("=ii", self._operators.index(name), len(wanted))
        self._steps.append(head + desc + bytes(-len(desc) % 8) + b"".join(self._packed(arguments.get(n)) for n in wanted))

    def _packed(self, x):
        if x is None:
            return _PLACE.pack(_NOTHING, 0, 0)
        if isinstance(x, str):
            return _PLACE.pack(_TENSOR, self._tensors[x], 0)
        if isinstance(x, tuple):
            return _PLACE.pack(_MEMORY, self._tensors[x[0]], x[1])
        return _NUMBER.pack(_IS_NUMBER, 0, x)

    def __bytes__(self):
        return b"".join(self._steps)

    def product(self, a, b, d, n, k, turned=False, bias=None, activation="identity", x=None, c=None):
        """d[rows,n] = activation(a[rows,k] * b + c + bias); x gets what the activation takes. turned: b is [k,n]."""
        layout = "nn" if turned else "nt"
        desc = gemm_problem(self.rows, n, k, self.dtype, layout, bias is not None, activation, x is not None, c is not None)
        self.add("gemm", desc, a=a, b=b, bias=bias, d=d, x=x, c=c, beta=None if c is None else 1.0)

    def data_gradient(self, dy, weight, dx, n, k, turned=False, derivative="identity", x=None, c=None):
        """dx[rows,k] = derivative at x of (dy[rows,n] * weight + c)."""
        layout = "nt" if turned else "nn"
        desc = gemm_problem(self.rows, k, n, self.dtype, layout, False, derivative, False, c is not None)
        self.add("gemm", desc, a=dy, b=weight, d=dx, x=x, c=c, beta=None if c is None else 1.0)

    def weight_gradient(self, dy, x, dweight, n, k, turned=False):
        """dweight = dy[rows,n]^T * x[rows,k], or turned."""
        (a, m), (b, n) = ((x, k), (dy, n)) if turned else ((dy, n), (x, k))
        desc = gemm_problem(m, n, self.rows, self.dtype, "tn", False, "identity", False, False)
        self.add("gemm", desc, a=a, b=b, d=dweight)

    def sum(self, x, y, n):
        """y[n]: the sums of columns of x[rows,n]."""
        self.add("reduce", _problems.reduce("sum", (self.rows, n), (n, 1), (0,), self.dtype), x=x, y=y)

    def norm(self, name, n, eps, **arguments):
        """layernorm or rmsnorm of x[rows,n]."""
        residual = arguments.get("residual") is not None
        self.add(name, _problems.norm(name, self.rows, n, self.dtype, eps, True, residual), **arguments)

    def norm_gradient(self, name, n, **arguments):
        """The gradient of that, plus dsum."""
        dsum = arguments.get("dsum") is not None
        self.add(name, _problems.norm(name, self.rows, n, self.dtype, 0, True, dsum, True), **arguments)

    def elements(self, expression, count, y, *inputs, dtypes=(), to=None):
        """An expression of inputs without gaps, in the order in which it has them; dtypes, to: of inputs and y, where not all are of one."""
        names = tuple(zip("abcd", dtypes or (self.dtype,) * len(inputs)))
        desc = _problems.elementwise(expression, (count,), names, ((1,),) * (len(inputs) + 1), to or self.dtype)
        self.add("elementwise", desc, **{f"in{i}": x for i, x in enumerate(inputs)}, out=y)

    def scale(self, x, factors, y, rows, columns):
        """y[rows,columns] = x, each row times a factor of its own."""
        names, strides = (("a", self.dtype), ("b", self.dtype)), ((columns, 1), (1, 0), (columns, 1))
        desc = _problems.elementwise("a*b", (rows, columns), names, strides, self.dtype)
        self.add("elementwise", desc, in0=x, in1=factors, out=y)
