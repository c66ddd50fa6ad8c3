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
from ._registry import dense, image, like, operator, without_gradient
from ._sequence import Value, pack, place, run_sequence, values_of
from ._tape import Gradients, Tape


class Block:
    """A description and how its operators come of it: describe(tape, *inputs, *options) gives y, or several results.

    inputs: names and shapes, with a ? where None may stand. Those that have the modes of the first one but the last are rows, too. An
    input that is only added to y is called residual: its gradient is that of y. There is none of cos and sin. options: as a schema has them.
    """

    def __init__(self, describe, inputs, options, count, is_image):
        self.describe, self.name, self.options = describe, describe.__name__, options
        self.count, self.is_image = count, is_image
        words = [word.rstrip("]").split("[") for word in inputs.split()]
        self.names, self.is_optional = [name.rstrip("?") for name, _ in words], [name.endswith("?") for name, _ in words]
        self.by_rows = [modes.rpartition(",")[0] == words[0][1].rpartition(",")[0] for _, modes in words]
        self.saved = [i for i, name in enumerate(self.names) if name != "residual"]
        self.differentiable = [i for i in self.saved if self.names[i] not in ("cos", "sin")]
        pattern = inputs.replace("?", "")
        self.patterns = pattern, re.sub(r"\[(\w+),(\w+)\]", r"[\2,\1]", pattern)  # and where weights are turned
        self.code, self.gradient_code = functools.lru_cache(4096)(self._code), functools.lru_cache(4096)(self._gradient_code)

    def schema(self, indices):
        return ", ".join(f"Tensor{'?' * self.is_optional[i]} {self.names[i]}" for i in indices)

    def expect(self, tensors, options):
        expect(self.name, self.patterns[self.options.endswith("turned") and options[-1]], *tensors)

    def dense(self, tensors):
        """Without gaps; images with their channels last."""
        return [x if x is None else image(x, x.dim() == 4) for x in tensors] if self.is_image else dense(*tensors)

    def like(self, x):
        return torch.empty_like(x, memory_format=torch.channels_last) if self.is_image and x.dim() == 4 else like(x)

    def results_like(self, x, columns):
        """Memory for results of so many columns each."""
        return [self.like(x) if self.is_image else x.new_empty((*x.shape[:-1], n)) for n in columns]

    def gradients_like(self, x, inputs, needs):
        """Memory for the gradients of inputs, without elements where none is needed."""
        return tuple([self.like(t) if need else x.new_empty(0) for t, need in zip(inputs, needs)])

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
        wanted = [inputs[i] for i, need in zip(self.differentiable, needs) if need and inputs[i] is not None]
        return Gradients(tape, {y: Value(y.columns, y.dtype, name="d" + y.name) for y in results}, wanted)

    def kept(self, tape, inputs, results):
        """Places of what the gradient looks at, and how many bytes they are with what else the steps forward want."""
        steps = self.gradients(tape, inputs, results, [True] * len(inputs)).steps
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
        given, made = [self.names[i] for i in self.saved], ["d" + self.names[i] for i in self.differentiable]
        return pack(g.steps, [*("d" + y.name for y in results), *given, "kept", *made, "work"], places | work), size

    def run(self, args, keeps):
        """The results, and the memory, where what the gradient looks at is kept."""
        tensors, options = self.dense(args[: len(self.names)]), args[len(self.names) :]
        x = tensors[0]
        if any([t is not None and t.dtype is not x.dtype for t in tensors]):
            self.expect(tensors, options)
        code, size, columns = self.code(tuple([t if t is None else t.shape for t in tensors]), x.dtype, options, keeps)
        results, kept = self.results_like(x, columns), x.new_empty(size, dtype=torch.uint8)
        run_sequence(code, *tensors, *results, kept)
        return *results, kept

    def run_gradient(self, *args):
        """args: gradients of the results, inputs but the residual, what is kept, options, and which gradients are needed."""
        *tensors, kept = args[: self.count + len(self.saved) + 1]
        *options, needs = args[self.count + len(self.saved) + 1 :]
        tensors = self.dense(tensors)
        given = dict(zip(self.saved, tensors[self.count :]))
        shapes = tuple([None if given.get(i) is None else given[i].shape for i in range(len(self.names))])
        code, size = self.gradient_code(shapes, tensors[0].dtype, tuple(options), tuple(needs))
        gradients = self.gradients_like(args[0], [given[i] for i in self.differentiable], needs)
        run_sequence(code, *tensors, kept, *gradients, kept.new_empty(size))
        return gradients

    def made(self, *args):
        """Memory for the results and what is kept, of which sizes may be the symbols of a trace."""
        shapes, x = [t if t is None else t.shape for t in args[: len(self.names)]], args[0]
        tape, inputs, results = self.tape(shapes, x.dtype, args[len(self.names) :], True)
        _, size = self.kept(tape, inputs, results)
        return *self.results_like(x, [y.columns for y in results]), x.new_empty(size, dtype=torch.uint8)

    def made_gradients(self, *args):
        given = dict(zip(self.saved, args[self.count :]))
        return self.gradients_like(args[0], [given[i] for i in self.differentiable], args[-1])

    def setup(self, ctx, inputs, output):
        ctx.save_for_backward(*[inputs[i] for i in self.saved], output[-1])
        ctx.options = inputs[len(self.names) :]

    def gradient(self, ops, ctx, *dys):
        """Of all inputs. What nothing comes after has no gradient in a trace."""
        needs, dys = ctx.needs_input_grad, list(dys)
        if None in dys:
            saved = dict(zip(self.saved, ctx.saved_tensors))
            made = self.made(*map(saved.get, range(len(self.names))), *ctx.options)
            dys = [torch.zeros_like(y) if dy is None else dy for dy, y in zip(dys, made)]
        wanted = [needs[i] for i in self.differentiable]
        made = getattr(ops, self.name + "_backward")(*dys, *ctx.saved_tensors, *ctx.options, wanted)
        gradients = dict(zip(self.differentiable, made))
        if "residual" in self.names:
            gradients[self.names.index("residual")] = dys[0]
        return tuple([gradients[i] if i in gradients and needs[i] else None for i in range(len(needs))])


def described(inputs, options, count=1, is_image=False):
    """Registers the description that follows as an operator of so many results, and that of its gradient."""

    def register(describe):
        block = Block(describe, inputs, options, count, is_image)
        name, options_of = block.name, f", {options}" if options else ""
        results, gradients = (", ".join(["Tensor"] * n) for n in (count + 1, len(block.differentiable)))
        schema = f"{name}({block.schema(range(len(block.names)))}{options_of}) -> ({results})"
        operator(schema, block.made, block.gradient, block.setup, count)(lambda *args: block.run(args, True))
        without_gradient(name)(lambda *args: block.run(args, False)[:count])
        dys = ", ".join(f"Tensor dy{i}" for i in range(count))
        given = f"{dys}, {block.schema(block.saved)}, Tensor kept{options_of}, bool[] needs"
        operator(f"{name}_backward({given}) -> ({gradients})", block.made_gradients)(block.run_gradient)
        return describe

    return register
