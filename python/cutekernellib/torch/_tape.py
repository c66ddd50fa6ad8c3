"""What a block of a model does, written down operator by operator: the steps forward, and from them those of its gradient.

Each method of a Tape adds an operator's steps and a rule that adds those of its gradient. Rules run in the opposite order, as in any
reverse mode. What they fuse: a gradient that is there already is added by the product or norm that makes the next one, and the
derivative of an activation is taken by the product behind which it stands.
"""

import collections
from functools import partial

import torch

from .. import _problems
from ._elements import FUNCTIONS, rotation
from ._sequence import Steps, Value

_DERIVATIVES = {"gelu": "gelu_tanh", "gelu_erf": "gelu", "silu": "silu", "relu": "relu"}  # gemm's names, and those of FUNCTIONS


class Tape(Steps):
    """Forward; keeps: there will be a gradient, so what it wants is written, too."""

    def __init__(self, rows, dtype, keeps):
        super().__init__(rows, dtype)
        self.keeps, self.rules = keeps, []

    def value(self, columns, **options):
        return Value(columns, self.dtype, **options)

    def _kept(self, columns, dtype=None):
        return Value(columns, dtype or self.dtype) if self.keeps else None

    def _rule(self, rule, outputs, *inputs):
        """rule(gradients): what adds the gradients of inputs, where those of outputs are known."""
        self.rules.append((outputs, dict.fromkeys(x for x in inputs if x is not None), rule))

    def linear(self, x, weight, bias=None, activation="identity", residual=None, turned=False):
        """activation(x * weight^T + bias + residual); turned: x * weight."""
        (n, k), rows = reversed(weight.shape) if turned else weight.shape, self.rows
        y = self.value(n)
        if activation not in ("identity", *_DERIVATIVES):
            raise ValueError(f"linear: activation={activation} is none of identity, {', '.join(_DERIVATIVES)}")
        if activation != "identity":
            y.activation, y.before = activation, self._kept(n)
        self.gemm(rows, n, k, "nn" if turned else "nt", x, weight, y, bias, activation, y.before, residual)

        def rule(g):
            dy = g.of(y)
            if x in g.wanted:
                derivative, before, added, dx = *g.derivative(x), g.take(x), g.target(x)
                dx.activation = x.activation if before else "identity"
                g.gemm(rows, k, n, "nt" if turned else "nn", dy, weight, dx, None, derivative, before, added)
            if weight in g.wanted:
                (a, m), (b, columns) = ((x, k), (dy, n)) if turned else ((dy, n), (x, k))
                g.gemm(m, columns, rows, "tn", a, b, g.target(weight))
            if bias in g.wanted:
                g.sums(dy, g.target(bias), rows, n, 0)
            g.pass_on(residual, dy)

        self._rule(rule, [y], x, weight, bias, residual)
        return y

    def layer_norm(self, x, weight, bias, eps, residual=None):
        """With a residual: of the sum, and the sum."""
        if weight is None and bias is not None:
            raise ValueError("layer_norm: a bias needs a weight")
        if weight is not None and bias is None:
            bias = self.value(weight.columns, by_rows=False)
            self.elements("min(relu(a),0)", bias, weight)
        return self._norm("layernorm", x, {"gamma": weight, "beta": bias}, eps, residual)

    def rms_norm(self, x, weight, eps, residual=None):
        return self._norm("rmsnorm", x, {"gamma": weight}, eps, residual)

    def _norm(self, name, x, parameters, eps, residual):
        n, sizes = x.columns, (self.rows, x.columns, self.dtype)
        y, h = self.value(n), None if residual is None else self.value(n)
        statistics = {"rstd": self._kept(1, torch.float32)}
        if name == "layernorm":
            statistics["mean"] = self._kept(1, torch.float32)
        is_affine = parameters["gamma"] is not None
        problem = partial(_problems.norm, name, *sizes, eps, is_affine, h is not None)
        self.step(name, problem, x=x, residual=residual, y=y, sum=h, **parameters, **statistics)
        total = x if h is None else h

        def rule(g):
            dsum, dx = g.take(total), g.target(x if h is None else residual)
            gradients = {"d" + key: g.target(p) for key, p in parameters.items() if is_affine}
            problem = partial(_problems.norm, name, *sizes, 0, is_affine, dsum is not None, True)
            arguments = dict(x=total, gamma=parameters["gamma"], dy=g.of(y), dsum=dsum, dx=dx)
            g.step(name, problem, **arguments, **gradients, **statistics)
            if h is not None:
                g.pass_on(x, dx)

        self._rule(rule, [y] if h is None else [y, h], x, residual, *parameters.values())
        return y if h is None else (y, h)

    def attention(self, parts, batch, head_dim, causal, scale):
        """Of q, k and v, each (value, its first column, columns); heads lie side by side."""
        o, tokens = self.value(parts[0][2]), self.rows // batch if batch else 0
        lse = self._kept(o.columns // head_dim, torch.float32)
        parts = *parts, (o, 0, o.columns)
        shapes = [(batch, columns // head_dim, tokens, head_dim) for _, _, columns in parts[:3]]
        strides = tuple([(tokens * x.columns, head_dim, x.columns, 1) for x, _, _ in parts])
        places = {name: (x, first) for name, (x, first, _) in zip("qkvo", parts)}

        def problem(lse, backward):
            return partial(_problems.attention, *shapes, strides, self.dtype, causal, scale, lse=lse, backward=backward)

        def rule(g):
            dx = {x: g.target(x) for x in dict.fromkeys(x for x, _, _ in parts[:3])}
            gradients = {f"d{name}": (dx[x], first) for name, (x, first, _) in zip("qkv", parts)}
            g.step("attention", problem(False, True), **places, lse=lse, dout=g.of(o), **gradients)

        self.step("attention", problem(self.keeps, False), **places, lse=lse)
        self._rule(rule, [o], *(x for x, _, _ in parts[:3]))
        return o

    def rotate(self, x, cos, sin, head_dim):
        """Halves of heads rotated by tables [B or 1,S,D]."""
        y = self.value(x.columns)
        _rotate(self, x, y, cos, sin, head_dim, False)
        self._rule(lambda g: _rotate(g, g.of(y), g.target(x), cos, sin, head_dim, True), [y], x)
        return y

    def silu_mul(self, x, y):
        """silu(x) * y"""
        z = self.value(x.columns)
        self.elements(FUNCTIONS["silu_mul"][0], z, x, y)

        def rule(g):
            dz = g.of(z)
            g.elements(FUNCTIONS["silu_mul"][1], g.target(x), dz, y, x)
            g.elements("g*silu(x)", g.target(y), dz, x)

        self._rule(rule, [z], x, y)
        return z

    def conv(self, x, filter, bias, padding):
        """With a filter for each channel, at every pixel; images are rows of channels, one for each pixel."""
        y, shapes = self.value(x.columns), (x.shape, filter.shape)
        geometry = (1, 1), tuple(padding), (1, 1), x.columns, True

        def problem(direction="forward"):
            biased = bias is not None and direction == "forward"
            return partial(_problems.conv, *shapes, self.dtype, *geometry, biased, direction=direction)

        def rule(g):
            dy = g.of(y)
            if x in g.wanted:
                g.step("conv", problem("data"), w=filter, dy=dy, dx=g.target(x))
            if filter in g.wanted:
                g.step("conv", problem("weight"), x=x, dy=dy, dw=g.target(filter))
            if bias in g.wanted:  # apart: the gradient of filters alone has a faster kernel
                g.sums(dy, g.target(bias), self.rows, y.columns, 0)

        self.step("conv", problem(), x=x, w=filter, bias=bias, y=y)
        self._rule(rule, [y], x, filter, bias)
        return y

    def scale(self, weight, bias, gamma):
        """A layer's weight and bias, or None, with each row times a factor."""
        scaled = self.value(weight.columns, by_rows=False, shape=weight.shape)
        scaled_bias = bias and self.value(bias.columns, by_rows=False)
        _scale(self, weight, gamma, scaled)
        if bias:
            self.elements("a*b", scaled_bias, bias, gamma)

        def rule(g):
            """Of gamma: a sum over what weight and bias have."""
            f32, d, rows = torch.float32, g.of(scaled), gamma.columns
            terms, sums = (Value(n, f32, by_rows=False) for n in (weight.columns, rows))
            g.elements("a*b", terms, d, weight)
            g.sums(terms, sums, rows, weight.columns // rows, 1)
            _scale(g, d, gamma, g.target(weight))
            if not bias:
                g.elements("cast(a)", g.target(gamma), sums)
                return
            dbias = g.of(scaled_bias)
            g.elements("a+b*c", g.target(gamma), sums, dbias, bias)
            g.elements("a*b", g.target(bias), dbias, gamma)

        self._rule(rule, [scaled, scaled_bias] if bias else [scaled], weight, bias, gamma)
        return scaled, scaled_bias


def _rotate(steps, x, y, cos, sin, head_dim, inverse):
    heads, half, batch, tokens = x.columns // head_dim, head_dim // 2, *cos.shape[:2]
    shape = steps.rows // tokens if tokens else 0, heads, tokens, head_dim
    strides, table = (tokens * x.columns, head_dim, x.columns, 1), (tokens * head_dim, head_dim, 1)
    sizes = shape, strides, strides, (batch, tokens, head_dim), (table, table), steps.dtype, inverse
    sines = [(sin, half), (sin, 0)] if inverse else [(sin, 0), (sin, half)]
    first = dict(in0=(x, 0), in1=(cos, 0), in2=(x, half), in3=sines[0], out=(y, 0))
    second = dict(in0=(x, half), in1=(cos, half), in2=(x, 0), in3=sines[1], out=(y, half))
    steps.step("elementwise", lambda: rotation(*sizes)[0], **first)
    steps.step("elementwise", lambda: rotation(*sizes)[1], **second)


def _scale(steps, x, factors, y):
    """y = x, each row times a factor of its own."""
    rows, columns = factors.columns, x.columns // factors.columns
    names, strides = (("a", steps.dtype), ("b", steps.dtype)), ((columns, 1), (1, 0), (columns, 1))
    problem = partial(_problems.elementwise, "a*b", (rows, columns), names, strides, steps.dtype)
    steps.step("elementwise", problem, in0=x, in1=factors, out=y)


class Gradients(Steps):
    """Backward: the gradients of those of a tape's inputs that are wanted, of those of its results, which are known."""

    def __init__(self, tape, known, wanted):
        super().__init__(tape.rows, tape.dtype)
        self.wanted, self._known, self._sums = set(wanted), known, []
        for outputs, inputs, _ in tape.rules:
            if not self.wanted.isdisjoint(inputs):
                self.wanted |= set(outputs)
        rules = [(inputs, rule) for outputs, inputs, rule in tape.rules if not self.wanted.isdisjoint(outputs)]
        self._uses = collections.Counter(x for inputs, _ in rules for x in inputs)  # that are still to come
        for _, rule in reversed(rules):
            rule(self)
            for total, other in self._sums:
                self.elements("a+b", total, total, other)
            self._sums.clear()
        for x in wanted:
            if self._known[x].name != "d" + x.name:  # another's gradient, too
                self.elements("cast(a)", Value(x.columns, x.dtype, x.by_rows, x.shape, "d" + x.name), self._known[x])

    def of(self, y):
        """The gradient of y; where an activation made y, of what that took."""
        dy = self._known[y]
        if y.activation in ("identity", dy.activation):
            return dy
        derived = Value(y.columns, y.dtype)
        self.elements(FUNCTIONS[_DERIVATIVES[y.activation]][1], derived, dy, y.before)
        return derived

    def take(self, x):
        """What is known so far, or None, of which the caller makes a part of what he writes to target(x)."""
        return self._known.pop(x, None)

    def derivative(self, x):
        """That of the activation that made x, as a product behind x has it, and its argument: if it is the last that adds to the gradient."""
        if x.activation == "identity" or self._uses[x] > 1:
            return "identity", None
        return "d" + x.activation, x.before

    def target(self, x):
        """Where the next part of the gradient of x is written, which nobody reads if it is not wanted."""
        is_last = self._uses[x] == 1
        out = Value(x.columns, x.dtype, x.by_rows, x.shape)
        if x not in self.wanted:
            return out
        self._uses[x] -= 1
        if is_last and x.name:
            out.name = "d" + x.name
        if x in self._known:
            self._sums.append((out, self._known[x]))
        self._known[x] = out
        return out

    def pass_on(self, x, dx):
        """dx is a part of the gradient of x, too, the first one that becomes known."""
        if x in self.wanted:
            assert x not in self._known
            self._uses[x] -= 1
            self._known[x] = dx
