"""Functions of NumPy arrays on the emulated GPU, against NumPy."""

import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import warnings

import numpy as np

import cutekernellib as ckl

warnings.simplefilter("ignore", ckl.EmulatorWarning)
rng = np.random.default_rng(1)


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


class Functions(unittest.TestCase):
    def close(self, got, wanted, error=1e-5):
        self.assertEqual(got.shape, np.shape(wanted))
        np.testing.assert_allclose(got, wanted, error, error)

    def test_softmax(self):
        x = normal(3, 5, 7)
        for axis in (0, 1, -1):
            self.close(ckl.softmax(x, axis), softmax(x, axis))
            self.close(ckl.log_softmax(x, axis), np.log(softmax(x, axis)))
        self.close(ckl.softmax(x[:, ::2].transpose(2, 0, 1), scale=0.5), softmax(0.5 * x[:, ::2].transpose(2, 0, 1), -1))

    def test_norms(self):
        x, w, b = normal(2, 3, 20), normal(20), normal(20)
        n = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        self.close(ckl.layer_norm(x), n)
        self.close(ckl.layer_norm(x, w), n * w)
        self.close(ckl.layer_norm(x, w, b), n * w + b)
        self.close(ckl.rms_norm(x, w, 1e-3), x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-3) * w)

    def test_group_norm(self):
        x, w, b = normal(2, 6, 3, 4), normal(6), normal(6)
        g = x.reshape(2, 2, -1)
        n = ((g - g.mean(-1, keepdims=True)) / np.sqrt(g.var(-1, keepdims=True) + 1e-5)).reshape(x.shape)
        self.close(ckl.group_norm(x, 2, w, b), n * w[:, None, None] + b[:, None, None])

    def test_cross_entropy(self):
        x, target = normal(6, 11), np.array([0, 3, -100, 10, 2, 2])
        p = -np.log(softmax(x, 1))
        wanted = np.where(target == -100, 0, p[np.arange(6), np.maximum(target, 0)])
        self.close(ckl.cross_entropy(x, target, reduction="none"), wanted)
        self.close(ckl.cross_entropy(x, target), wanted.sum() / 5)
        self.close(ckl.cross_entropy(x, target, reduction="sum"), wanted.sum())

    def test_weighted_and_smoothed_cross_entropy(self):
        x, target, w = normal(6, 11), np.array([0, 3, -100, 10, 2, 2]), np.arange(1, 12, dtype=np.float32) / 8
        p, counts, own = -np.log(softmax(x, 1)), target != -100, np.maximum(target, 0)
        for weight in (None, w):
            each = np.ones(11, np.float32) if weight is None else w
            wanted = 0.75 * each[own] * p[np.arange(6), own] + 0.25 * (each * p).mean(1)
            options = {"weight": weight, "label_smoothing": 0.25}
            self.close(ckl.cross_entropy(x, target, reduction="none", **options), wanted * counts)
            self.close(ckl.cross_entropy(x, target, **options), (wanted * counts).sum() / (each[own] * counts).sum())
        self.close(ckl.cross_entropy(x, target, w[::-1], reduction="sum"), (counts * w[::-1][own] * p[np.arange(6), own]).sum())

    def test_elementwise(self):
        x, b = normal(4, 6), normal(6)
        self.close(ckl.elementwise("2*relu(x) - s*b", x=x, s=3.0, b=b), 2 * np.maximum(x, 0) - 3 * b)
        self.close(ckl.elementwise("x*y", x=x.T, y=b[:, None]), x.T * b[:, None])
        self.close(ckl.elementwise("exp(x)", x=np.float32(0.5).reshape(())), np.exp(np.float32(0.5)))
        self.assertEqual(ckl.elementwise("cast(x)", x=x, dtype="int32").dtype, np.int32)
        self.close(ckl.add(x, x, alpha=2.0, beta=-0.5), 1.5 * x)

    def test_reduce(self):
        x = normal(3, 4, 5)
        self.close(ckl.reduce(x, "sum", 1), x.sum(1))
        self.close(ckl.reduce(x.transpose(2, 0, 1), "max", (0, 2)), x.max((1, 2)))
        self.close(ckl.reduce(x, "mean"), x.mean())
        self.assertEqual(ckl.reduce(x, "argmin", -1).tolist(), x.argmin(-1).tolist())

    def test_linear(self):
        x, w, b = normal(2, 5, 16, dtype=np.float16), normal(8, 16, dtype=np.float16), normal(8, dtype=np.float16)
        wanted = x.astype(np.float32) @ w.astype(np.float32).T + b
        self.close(ckl.linear(x, w, b).astype(np.float32), wanted, 1e-2)
        self.close(ckl.linear(x, w, b, "relu").astype(np.float32), np.maximum(wanted, 0), 1e-2)

    def test_attention(self):
        q, k, v = (
            normal(1, 4, 6, 16, dtype=np.float16),
            normal(1, 2, 6, 16, dtype=np.float16),
            normal(1, 2, 6, 16, dtype=np.float16),
        )
        kk, vv = (np.repeat(t, 2, 1).astype(np.float32) for t in (k, v))
        scores = q.astype(np.float32) @ kk.transpose(0, 1, 3, 2) / 4
        self.close(ckl.attention(q, k, v), softmax(scores, -1) @ vv, 5e-3)
        hidden = np.where(np.tril(np.ones((6, 6))), scores, -np.inf)
        self.close(ckl.attention(q, k, v, causal=True), softmax(hidden, -1) @ vv, 5e-3)

    def test_strides(self):
        """Whatever the strides, and be the memory read-only, the result is that of dense arrays."""
        x, q, rows = normal(4, 20), normal(4, 2, 8), np.arange(4)
        for call, *arrays in (
            (lambda w, b: ckl.layer_norm(x, w, b), normal(20), normal(20)),
            (lambda w: ckl.rms_norm(x, w), normal(20)),
            (lambda w, b: ckl.group_norm(x, 2, w, b), normal(20), normal(20)),
            (lambda t, w: ckl.cross_entropy(x, t, abs(w)), rows, normal(20)),
            (lambda x, w, b: ckl.linear(x, w, b), x, normal(6, 20), normal(6)),
            (lambda q, p: ckl.rope(q, None, p)[0], q, rows),
            (lambda x: ckl.softmax(x), x),
            (lambda x: ckl.reduce(x, "max", 1), x),
            (lambda x: ckl.permute(x, (1, 0)), x),
            (lambda x: ckl.transpose(x), x),
            (lambda x, y: ckl.elementwise("x*y", x=x, y=y), x, normal(20)),
        ):
            wanted = call(*arrays)
            read_only = [a.copy() for a in arrays]
            for a in read_only:
                a.flags.writeable = False
            for given in (
                [np.repeat(a, 2, -1)[..., ::2] for a in arrays],
                [a[..., ::-1].copy()[..., ::-1] for a in arrays],
                read_only,
            ):
                np.testing.assert_array_equal(call(*given), wanted)

    def test_zeros_are_no_defaults(self):
        x, q = 1e-4 * normal(4, 8), normal(1, 1, 4, 8, dtype=np.float16)
        wanted = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
        self.close(ckl.layer_norm(x, eps=0.0), wanted, 1e-4)
        self.close(ckl.group_norm(x, 1, np.ones(8, np.float32), np.zeros(8, np.float32), eps=0.0), wanted, 1e-4)
        self.close(ckl.rms_norm(x, eps=0.0), x / np.sqrt((x * x).mean(-1, keepdims=True)), 1e-4)
        self.close(ckl.softmax(x, scale=0.0), np.full_like(x, 1 / 8))
        self.close(ckl.attention(q, q, q, scale=0.0), np.broadcast_to(q.mean(2, keepdims=True), q.shape), 5e-3)

    def test_rope(self):
        q, k, positions = normal(3, 2, 8), normal(3, 1, 8), np.array([0, 5, 2], np.int32)
        angle = positions[:, None, None] * 100.0 ** (-np.arange(4) / 4)
        for got, x in zip(ckl.rope(q, k, positions, theta=100.0), (q, k)):
            a, b = x[..., :4], x[..., 4:]
            wanted = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)
            self.close(got, wanted)

    def test_permute(self):
        x = rng.integers(0, 100, (2, 3, 4), np.int8)
        self.assertTrue((ckl.permute(x[:, :, ::2], (2, 0, 1)) == x[:, :, ::2].transpose(2, 0, 1)).all())

    def test_transpose(self):
        x = rng.integers(0, 100, (2, 6, 8), np.int16)
        empty = x[:0], x[:, :0], x[:, :, :0], x[0, :0]
        for given in (x[0], x[1, ::2, ::3], x[0].T, np.broadcast_to(x[0, 0], (4, 8)), x, x[:, ::2], *empty):
            np.testing.assert_array_equal(ckl.transpose(given), given.swapaxes(-1, -2))
        with self.assertRaisesRegex(ValueError, "no two modes"):
            ckl.transpose(x[0, 0])


class Plans(unittest.TestCase):
    def test_every_operator_has_a_plan(self):
        for operator in ckl.operators.values():
            plan = operator.plan(device="cpu")
            self.assertTrue(plan.text.startswith(operator.name))
            self.assertEqual([t["name"].replace("[", "").replace("]", "") for t in plan.tensors], operator.tensors)
            self.assertIn(plan.text.split()[1], plan.explain())

    def test_call(self):
        a, b, y = normal(400), normal(400), normal(400)
        plan = ckl.operators["add"].plan(n=400)
        plan(a, b, y)
        np.testing.assert_array_equal(y, a + b)
        plan(a=a, b=b, y=y, beta=-1.0)
        np.testing.assert_array_equal(y, a - b)
        wanted = a + b
        ckl.operators["add"]("n=400", a, b, a)  # in place
        np.testing.assert_array_equal(a, wanted)

    def test_what_lies_between_rows_stays(self):
        x, y = normal(3, 8), np.full((3, 8), 7, np.float32)
        ckl.operators["softmax"]("shape=3x5 ldx=8 ldy=8", x=x, y=y)
        self.assertTrue((y[:, 5:] == 7).all())
        np.testing.assert_allclose(y[:, :5], softmax(x[:, :5], 1), 1e-5)

    def test_outputs_side_by_side(self):
        joint, x = np.zeros((4, 16), np.float32), normal(4, 8)
        plan = ckl.operators["rmsnorm"].plan("rows=4 cols=8 residual=1 affine=0 ldy=16", device="cpu")
        plan(x=x, residual=x, y=joint[:, :8], sum=joint[:, 8:])
        np.testing.assert_array_equal(joint[:, 8:], 2 * x)
        self.assertTrue(joint[:, :8].all())

    def test_prepare(self):
        ckl.prepare(["softmax shape=4x64", "add n=7"], "cpu")
        self.assertIn("emulated", ckl.device_info("cpu")["name"])


class Errors(unittest.TestCase):
    def fails(self, kind, sentence, function, *args, **named):
        with self.assertRaisesRegex(kind, sentence):
            function(*args, **named)

    def test_kinds(self):
        x, softmax_ = normal(4, 8), ckl.operators["softmax"]
        self.fails(ValueError, "scale=-1 is negative", softmax_, "shape=4x8 scale=-1", x, None, x)
        self.fails(ValueError, "unknown key", softmax_, "shpae=4x8", x, None, x)
        self.fails(ValueError, "y has memory of 96 bytes, the problem needs 128", softmax_, "shape=4x8", x, None, normal(3, 8))
        self.fails(ValueError, "x is of f64", softmax_, "shape=4x8", x.astype(np.float64), None, x)
        self.fails(ValueError, "y is NULL", softmax_, "shape=4x8", x)
        self.fails(ValueError, "y is not a tensor", softmax_, "shape=4x8", x, None, 1)
        self.fails(ValueError, "negative strides", softmax_, "shape=4x8", x[::-1], None, x)
        self.fails(ValueError, "x has gaps", softmax_, "shape=4x4", x[:, ::2], None, x)
        self.fails(
            ValueError, "x has the shape that the problem says, and other", softmax_, "shape=4x8", np.asfortranarray(x), None, x
        )
        self.fails(ValueError, "no tensor", softmax_, "shape=4x8")
        self.fails(ValueError, "impl= and config=", softmax_, "shape=4x8 impl=row", x, None, x)
        self.fails(ValueError, "is not a number", ckl.operators["add"], "n=8", x, x, x, x)
        self.fails(TypeError, "arguments are x, mask", softmax_, "shape=4x8", z=x)
        self.fails(NotImplementedError, "complex64", ckl.softmax, x.astype(np.complex64))
        self.fails(ValueError, "out of range", ckl.softmax, x, 2)
        self.fails(ValueError, "do not broadcast", ckl.elementwise, "a+b", a=x, b=normal(3))
        self.fails(ValueError, "operands a, b", ckl.elementwise, "a+b", a=x)
        self.fails(NotImplementedError, "float17 is none of numpy's", ckl.elementwise, "x+1", x=x, dtype="float17")
        self.fails(ValueError, "names an axis twice", ckl.reduce, x, axis=(0, -2))
        self.fails(TypeError, "softmax: axis is of float, not int", ckl.softmax, x, 0.5)
        for function in (ckl.softmax, ckl.reduce, ckl.permute, ckl.transpose, ckl.rms_norm):
            self.fails(TypeError, "x is no array but of list", function, [1.0, 2.0], *[(0,)] * (function is ckl.permute))

    def test_shapes(self):
        x, half = normal(4, 8), normal(1, 2, 3, 8, dtype=np.float16)
        self.fails(ValueError, r"linear: x\[4,8\] weight\[3,7\] do not fit", ckl.linear, x, normal(3, 7))
        self.fails(ValueError, "layer_norm: weight is of float64, x of float32", ckl.layer_norm, x, np.ones(8))
        self.fails(ValueError, "add: b is of float16, a of float32", ckl.add, x, x.astype(np.float16))
        self.fails(ValueError, "reduction=avg is none of mean, sum, none", ckl.cross_entropy, x, x, reduction="avg")
        self.fails(TypeError, "prepare: lines are a list", ckl.prepare, "softmax shape=4x8", device="cpu")
        self.fails(ValueError, "cuda:x is none of cuda, cuda:NUMBER, cpu", ckl.device_info, "cuda:x")
        self.fails(AttributeError, r"the operator is operators\['gemm'\]", lambda: ckl.gemm)
        self.fails(AttributeError, "no attribute matmul; it has .* linear", lambda: ckl.matmul)
        self.fails(KeyError, "softmx is none of the operators add attention", lambda: ckl.operators["softmx"])
        self.fails(ValueError, "bias", ckl.linear, x, normal(3, 8), normal(4))
        self.fails(ValueError, "weight", ckl.rms_norm, x, normal(9))
        self.fails(ValueError, "target", ckl.cross_entropy, x, np.zeros(5, np.int64))
        self.fails(ValueError, "positions", ckl.rope, half[0], None, np.zeros(3, np.int32))
        self.fails(ValueError, "attention: q", ckl.attention, half, half, half[:, :, :2])

    def test_there_is_no_library(self):
        wrong = {
            "/nowhere/libcutekernellib.so": "there is no /nowhere/libcutekernellib.so: `pip install .` brings the library",
            __file__: f"CKL_LIBRARY={__file__} does not end in .so",
        }
        command = [sys.executable, "-c", "import cutekernellib"]
        for path, sentence in wrong.items():
            environment = {**os.environ, "CKL_LIBRARY": path}
            said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stderr
            self.assertIn(f"ImportError: {sentence}", said)


class Types(unittest.TestCase):
    def test_every_function_is_documented_and_typed(self):
        for name in ckl.__all__:
            function = getattr(ckl, name)
            self.assertTrue(function.__doc__, name)
            if inspect.isfunction(function):
                self.assertEqual(set(function.__annotations__), {*inspect.signature(function).parameters, "return"}, name)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "there is no mypy")
    def test_a_type_checker(self):
        """Takes calls with NumPy's arrays, whose types know how many modes they have, and refuses a list."""
        program = """
import numpy as np
import cutekernellib as ckl

x, w = np.ones((4, 8), np.float32), np.ones(8, np.float32)
y: np.ndarray = ckl.linear(ckl.layer_norm(x, weight=w, bias=w), ckl.softmax(x), np.ones(4, np.float32))
loss: float = ckl.cross_entropy(x, np.zeros(4, np.int64), w).item() + ckl.reduce(x, "max").item()
text: str = ckl.operators["gemm"].plan("m=4 n=8 k=64", device="cpu").text
ckl.softmax([1.0])
"""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "program.py"
            path.write_text(program)
            environment = os.environ | {"MYPYPATH": os.environ.get("PYTHONPATH", "")}
            command = [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", folder, str(path)]
            said = subprocess.run(command, capture_output=True, text=True, check=False, env=environment).stdout.splitlines()
        self.assertEqual(len(said), 2, said)
        self.assertIn('program.py:9: error: Value of type variable "A" of "softmax" cannot be "list[float]"', said[0])


class Warnings(unittest.TestCase):
    def test_said_once(self):
        from cutekernellib import _library

        _library.warn_of_emulator.cache_clear()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            ckl.softmax(normal(2, 4))
            ckl.softmax(normal(2, 4))
        self.assertEqual([w.category for w in said], [ckl.EmulatorWarning])
        self.assertIn("simplefilter", str(said[0].message))
        self.assertEqual(said[0].filename, __file__)


if __name__ == "__main__":
    unittest.main()
