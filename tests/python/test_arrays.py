"""Arrays of CuPy and JAX, where these are: on a GPU if there is one."""

import importlib
import unittest
import warnings

import numpy as np

import cutekernellib as ckl

warnings.simplefilter("ignore", ckl.EmulatorWarning)


class Arrays(unittest.TestCase):
    def functions(self, library):
        """library: its module like numpy."""
        try:
            xp = importlib.import_module(library)
            x = xp.asarray(np.random.default_rng(1).standard_normal((4, 40)).astype(np.float32))
        except Exception as why:
            self.skipTest(f"there is no {library}: {type(why).__name__}")
        e = xp.exp(x - x.max(1, keepdims=True))
        for got, wanted in (
            (ckl.softmax(x), e / e.sum(1, keepdims=True)),
            (ckl.elementwise("a*x+y", a=2.0, x=x, y=x[0]), 2 * x + x[0]),
            (ckl.reduce(x, "max", 0), x.max(0)),
            (ckl.rms_norm(x), x / xp.sqrt((x * x).mean(1, keepdims=True) + 1e-5)),
        ):
            self.assertIs(type(got), type(x))
            np.testing.assert_allclose(
                np.asarray(got.get() if hasattr(got, "get") else got),
                np.asarray(wanted.get() if hasattr(wanted, "get") else wanted),
                1e-5,
                1e-5,
            )

    def test_cupy(self):
        self.functions("cupy")

    def test_jax(self):
        self.functions("jax.numpy")


if __name__ == "__main__":
    unittest.main()
