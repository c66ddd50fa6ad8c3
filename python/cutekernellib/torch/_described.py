"""How a description of a block (_blocks.py) becomes an operator, and that of its gradient: torch's side of a tape (_tape.py).

What it saves is the caller's thread, which calls the library once (_sequence.py), and autograd, which has one node and one tensor of
what is kept.
"""

import functools
import math
import re
import types

import torch

from .._shapes import expect
from ._registry import operator, without_gradient
from ._sequence import Value, pack, place, run_sequence, values_of
from ._tape import Gradients, Tape


class Block:
    """A description and how its operators come of it: describe(tape, *inputs, *options) gives y, or several results.

    inputs: names and shapes, with a ? where None may stand. Those that have the modes of the first one but the last are rows, too. At
    their end may be those that the operator of the gradient has nothing of: `residual`, only added to y, has y's gradient, cos and sin
    have none. options: as a schema has them. is_image: the first input and others of four modes have their channels last. instead: of
    inputs that are only added up the number of the result that is their sum. The gradient gets it in their place, and theirs is one.
    """

    def __init__(self, describe, inputs, options, count, is_image, instead):
        self.describe, self.name, self.options, self.count = describe, describe.__name__, options, count
        words = [word.rstrip("]").split("[") for word in inputs.split()]
        self.names, self.is_optional = [name.rstrip("?") for name, _ in words], [name.endswith("?") for name, _ in words]
        modes = [shape.split(",") for _, shape in words]
        self.by_rows = [shape[:-1] == modes[0][:-1] for shape in modes]
        self.orders = [torch.channels_last if is_image and len(shape) == 4 else torch.contiguous_format for shape in modes]
        self.is_image, self.instead = is_image, [instead.get(name) for name in self.names]
        self.has_residual = self.names[-1] == "residual"
        self.owners = [i if of is None else self.instead.index(of) for i, of in enumerate(self.instead)]  # of gradients
        self.saved = len(self.names) - self.has_residual  # so many first ones
        self.differentiable = self.saved - 2 * (self.names[-1] == "sin")
        pattern = inputs.replace("?", "")
        self.patterns = pattern, re.sub(r"\[(\w+),(\w+)\]", r"[\2,\1]", pattern)  # and where weights are turned
        self.code, self.gradient_code = functools.lru_cache(4096)(self._code), functools.lru_cache(4096)(self._gradient_code)

    def schema(self, count):
        """Of the first inputs."""
        names = zip(self.names[:count], self.is_optional)
        return ", ".join(f"Tensor{'?' * is_optional} {name}" for name, is_optional in names)

    def expect(self, tensors, options):
        """ValueError where they do not fit, such as tensors of two types."""
        expect(self.name, self.patterns[self.options.endswith("turned") and options[-1]], *tensors)

    def results_like(self, x, columns):
        """Memory for results of so many columns each."""
        if self.is_image:
            return [torch.empty_like(x, memory_format=self.orders[0])]
        lead = x.shape[:-1]
        return [x.new_empty((*lead, n)) for n in columns]

    def tape(self, shapes, dtype, options, keeps):
        """The tape, its inputs and its results."""
        lead = (shapes[0][0], *shapes[0][2:]) if self.is_image else shapes[0][:-1]

        def value(shape, name, by_rows):
            columns = shape[1 if self.is_image else -1] if by_rows else math.prod(shape)
            return Value(columns, dtype, by_rows, shape, name)

        tape = Tape(math.prod(lead), dtype, keeps)
        inputs = [shape if shape is None else value(shape, *rest) for shape, *rest in zip(shapes, self.names, self.by_rows)]
        results = self.describe(tape, *inputs, *options)
        results = results if isinstance(results, tuple) else (results,)
        for i, y in enumerate(results):
            y.name = f"y{i}"
        return tape, inputs, results

    def gradients(self, tape, inputs, results, needs):
        """Of those of the differentiable inputs that are needed."""
        wanted = [x for x, need in zip(inputs, needs) if need and x is not None]
        return Gradients(tape, {y: Value(y.columns, y.dtype, name="d" + y.name) for y in results}, wanted)

    def kept(self, tape, inputs, results):
        """Places of what the gradient looks at, and how many bytes they are with what else the steps forward want."""
        steps = self.gradients(tape, inputs, results, [True] * self.differentiable).steps
        return place(tape.steps, tape.rows, "kept", {value for step in steps for value in values_of(step)})

    def _code(self, shapes, dtype, options, keeps):
        """The bytes of the sequence, those of its memory, and the columns of its results."""
        self.expect([x if x is None else types.SimpleNamespace(shape=x, dtype=dtype) for x in shapes], options)
        tape, inputs, results = self.tape(shapes, dtype, options, keeps)
        places, size = self.kept(tape, inputs, results) if keeps else place(tape.steps, tape.rows, "kept")
        names = [*self.names, *(y.name for y in results), "kept"]
        return pack(tape.steps, names, places), size, [y.columns for y in results]

    def _gradient_code(self, shapes, dtype, options, needs):
        """The bytes of the sequence, and those of its memory."""
        tape, inputs, results = self.tape(shapes, dtype, options, True)
        places, _ = self.kept(tape, inputs, results)
        g = self.gradients(tape, inputs, results, needs)
        work, size = place(g.steps, g.rows, "work", placed=places)
        made = ["d" + name for name in self.names[: self.differentiable]]
        given = [name if i is None else f"y{i}" for name, i in zip(self.names[: self.saved], self.instead)]
        names = [*("d" + y.name for y in results), *given, "kept", *made, "work"]
        return pack(g.steps, names, places | work), size

    def run(self, args, keeps):
        """The results, and the memory, where what the gradient looks at is kept."""
        given, options = args[: len(self.names)], args[len(self.names) :]
        x, dtype = given[0], given[0].dtype
        tensors = [t if t is None else t.contiguous(memory_format=order) for t, order in zip(given, self.orders)]
        shapes = [t if t is None else t.shape if t.dtype is dtype else self.expect(given, options) for t in tensors]
        code, size, columns = self.code(tuple(shapes), dtype, options, keeps)
        results, kept = self.results_like(x, columns), x.new_empty(size, dtype=torch.uint8)
        run_sequence(code, *tensors, *results, kept)
        return *results, kept

    def run_gradient(self, *args):
        """args: gradients of the results, inputs but the residual, what is kept, options, and which gradients are needed."""
        count = self.count + self.saved
        given, kept, options, needs = args[:count], args[count], args[count + 1 : -1], args[-1]
        orders = [*self.orders[:1] * self.count, *self.orders]
        tensors = [t if t is None else t.contiguous(memory_format=order) for t, order in zip(given, orders)]
        shapes = [t if t is None else t.shape for t in tensors[self.count :]] + [None] * self.has_residual
        code, size = self.gradient_code(tuple(shapes), given[0].dtype, options, tuple(needs))
        gradients = self.made_gradients(*args)
        run_sequence(code, *tensors, kept, *gradients, kept.new_empty(size))
        return gradients

    def made(self, *args):
        """Memory for the results and what is kept, of which sizes may be the symbols of a trace."""
        shapes, x = [t if t is None else t.shape for t in args[: len(self.names)]], args[0]
        if all(type(n) is int for shape in shapes if shape is not None for n in shape):
            self.expect(args[: len(self.names)], args[len(self.names) :])
        tape, inputs, results = self.tape(shapes, x.dtype, args[len(self.names) :], True)
        _, size = self.kept(tape, inputs, results)
        return *self.results_like(x, [y.columns for y in results]), x.new_empty(size, dtype=torch.uint8)

    def made_gradients(self, *args):
        """Memory for them, without elements where none is needed."""
        rows = zip(args[self.count :], self.orders, args[-1])
        return tuple([torch.empty_like(t, memory_format=o) if need else args[0].new_empty(0) for t, o, need in rows])

    def setup(self, ctx, inputs, output):
        saved = [x if i is None else output[i] for x, i in zip(inputs[: self.saved], self.instead)]
        ctx.save_for_backward(*saved, output[-1])
        ctx.options = inputs[len(self.names) :]

    def gradient(self, ops, ctx, *dys):
        """Of all inputs and options."""
        needs, count = ctx.needs_input_grad, self.differentiable
        if self.count > 1 and any([dy is None for dy in dys]):  # of a result that nobody took
            made = self.made(*ctx.saved_tensors[:-1], *[None] * self.has_residual, *ctx.options)
            dys = [torch.zeros_like(y) if dy is None else dy for dy, y in zip(dys, made)]
        asked, owners = [False] * count, self.owners[:count]
        for need, owner in zip(needs, owners):
            asked[owner] |= need
        made = getattr(ops, self.name + "_backward")(*dys, *ctx.saved_tensors, *ctx.options, asked)
        others = [None] * (len(needs) - count)
        if self.has_residual and needs[count]:
            others[0] = dys[0]
        return *[made[owner] if need else None for owner, need in zip(owners, needs)], *others


def described(inputs, options, count=1, is_image=False, instead=types.MappingProxyType({})):
    """Registers the description that follows as an operator of so many results, and that of its gradient."""

    def register(describe):
        block = Block(describe, inputs, options, count, is_image, instead)
        name, options_of = block.name, f", {options}" if options else ""
        results, gradients = (", ".join(["Tensor"] * n) for n in (count + 1, block.differentiable))
        schema = f"{name}({block.schema(len(block.names))}{options_of}) -> ({results})"
        operator(schema, block.made, block.gradient, block.setup, count)(lambda *args: block.run(args, True))
        without_gradient(name, lambda *args: block.run(args, False)[:count])
        dys = ", ".join(f"Tensor dy{i}" for i in range(count))
        given = f"{dys}, {block.schema(block.saved)}, Tensor kept{options_of}, bool[] needs"
        operator(f"{name}_backward({given}) -> ({gradients})", block.made_gradients)(block.run_gradient)
        return describe

    return register
