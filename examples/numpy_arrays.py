"""numpy_arrays.py - arrays of the host, without a GPU: functions, a compiled expression, a plan and why it is what it is."""

import warnings

import numpy as np

import cutekernellib as ckl

warnings.simplefilter("ignore", ckl.EmulatorWarning)
x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)

y = ckl.softmax(x, axis=-1)
assert abs(y.sum(-1) - 1).max() < 1e-5

z = ckl.elementwise("gelu(a*x+b)", a=2.0, x=x, b=x[0])
assert z.shape == x.shape

plan = ckl.operators["gemm"].plan(m=4, n=8, k=64, a="f32", device="cpu")
d = np.empty((4, 8), np.float32)
plan(a=x, b=x[:1].repeat(8, 0), d=d)
assert np.allclose(d, (x @ x[:1].T).repeat(8, 1), atol=1e-4)
print(plan.text)
print(plan.explain())
