"""Several operators in one call of the library. What lies between them is memory in one tensor of bytes, which is allocated once.

A call of an operator costs Python some 15 us: shapes that are looked at, problems that are looked up, a tensor for each result. A block
of a model does all that when it first meets a shape, and keeps what came of it: the bytes of a sequence.
"""

import struct

from .._library import module, operators

run_sequence = module.ckl_sequence  # (the bytes, *tensors in the order of their names)

_ALIGNMENT = 256  # bytes; of what lies in a tensor of bytes
_PLACE, _NUMBER = struct.Struct("=iiq"), struct.Struct("=iid")  # step_argument in src/ffi/call.c
_NOTHING, _TENSOR, _MEMORY, _IS_NUMBER = range(4)


def padded(count, itemsize):
    """Bytes of memory for so many elements; the count may be a symbol of a trace."""
    return (count * itemsize + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT


class Memory:
    """Places in a tensor of bytes, one behind the other. A place is what Sequence.add() takes: (name of the tensor, offset)."""

    def __init__(self, name, begin=0):
        self.name, self.bytes = name, begin

    def __call__(self, count, itemsize):
        at, self.bytes = self.bytes, self.bytes + padded(count, itemsize)
        return self.name, at


class Sequence:
    """Steps over tensors of these names."""

    def __init__(self, tensors):
        self._tensors = {name: i for i, name in enumerate(tensors.split())}
        self._steps, self._operators = [], list(operators)

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
