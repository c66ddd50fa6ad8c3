"""cutekernellib.torch against torch: values, gradients, fake kernels, compiled graphs; on a GPU where there is one."""

import inspect
import unittest
import unittest.mock
import warnings

try:
    import torch
    import torch.nn.functional as F

    import cutekernellib.torch as ckl
    from cutekernellib import EmulatorWarning

    warnings.simplefilter("ignore", EmulatorWarning)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    missing = None
except ImportError as why:
    missing = f"torch cannot be imported ({why.name})"


def normal(*shape, dtype=None):
    return torch.randn(*shape, device=device, dtype=dtype)


@unittest.skipIf(missing, missing)
class Functions(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def same(self, ours, torchs, *inputs, error=1e-5):
        """Values and gradients of all inputs that are floats."""
        results = []
        for function in (ours, torchs):
            leaves = [x.detach().clone().requires_grad_(x.is_floating_point()) for x in inputs]
            y = function(*leaves)
            torch.manual_seed(2)
            y.backward(torch.randn(y.shape, dtype=y.dtype, device=y.device))  # whatever the strides of y
            results.append([y.detach()] + [x.grad for x in leaves if x.is_floating_point()])
        for got, wanted in zip(*results):
            self.assertEqual(got.dtype, wanted.dtype)
            torch.testing.assert_close(got, wanted, rtol=error, atol=error)
        with torch.no_grad():
            torch.testing.assert_close(ours(*inputs), results[1][0], rtol=error, atol=error)

    def test_softmax(self):
        self.same(lambda x: ckl.softmax(x, 1), lambda x: x.softmax(1), normal(3, 7, 5))
        self.same(lambda x: ckl.log_softmax(x, -1), lambda x: x.log_softmax(-1), normal(3, 40))
        self.same(lambda x: ckl.softmax(x, -1, scale=0.25), lambda x: (x / 4).softmax(-1), normal(4, 6))

    def test_norms(self):
        w, b = normal(24), normal(24)
        self.same(
            lambda *a: ckl.layer_norm(a[0], (24,), *a[1:]), lambda *a: F.layer_norm(a[0], (24,), *a[1:]), normal(2, 3, 24), w, b
        )
        self.same(lambda x, w: ckl.layer_norm(x, (24,), w), lambda x, w: F.layer_norm(x, (24,), w), normal(5, 24), w)
        self.same(lambda x: ckl.layer_norm(x, (3, 8)), lambda x: F.layer_norm(x, (3, 8)), normal(5, 3, 8))
        self.same(lambda x, w: ckl.rms_norm(x, (24,), w, 1e-5), lambda x, w: F.rms_norm(x, (24,), w, 1e-5), normal(4, 24), w)
        small = 1e-3 * normal(4, 24, dtype=torch.bfloat16)  # whose squares are about the smallest eps
        self.same(lambda x: ckl.rms_norm(x, (24,)), lambda x: F.rms_norm(x, (24,)), small, error=2e-2)
        both = [
            lambda *a: torch.cat(ckl.add_rms_norm(*a)),
            lambda x, r, w: torch.cat([F.rms_norm(x + r, (24,), w, 1e-5), x + r]),
        ]
        self.same(*both, normal(4, 24), normal(4, 24), w)
        for x in (normal(2, 4, 3, 5), normal(2, 4, 3, 5).to(memory_format=torch.channels_last)):
            self.same(
                lambda *a: ckl.group_norm(a[0], 2, *a[1:]), lambda *a: F.group_norm(a[0], 2, *a[1:]), x, normal(4), normal(4)
            )

    def test_cross_entropy(self):
        target = torch.tensor([1, -100, 9, 0], device=device)
        for reduction in ("mean", "none"):
            self.same(
                lambda x: ckl.cross_entropy(x, target, reduction=reduction),
                lambda x: F.cross_entropy(x, target, reduction=reduction),
                normal(4, 10),
            )

    def test_elements(self):
        for approximate in ("none", "tanh"):
            self.same(lambda x: ckl.gelu(x, approximate), lambda x: F.gelu(x, approximate=approximate), 3 * normal(5, 13))
        self.same(ckl.silu, F.silu, 3 * normal(40))
        self.same(ckl.silu_mul, lambda x, y: F.silu(x) * y, normal(3, 8), normal(3, 8))

    def test_expressions(self):
        x, y = normal(3, 5), normal(1, 5)
        self.same(
            lambda x, y: ckl.elementwise("silu(a*x)-2*max(y, -x)^2/(1+exp(y))", x=x, y=y, a=0.5),
            lambda x, y: F.silu(0.5 * x) - 2 * torch.maximum(y, -x) ** 2 / (1 + y.exp()),
            x,
            y,
        )
        self.same(lambda x: ckl.elementwise("x*x*x", x=x), lambda x: x**3, normal(7, dtype=torch.bfloat16), error=2e-2)

    def test_reductions(self):
        x = normal(3, 4, 5)
        for op, by_torch in {
            "sum": lambda x, d: x.sum(d),
            "mean": lambda x, d: x.mean(d),
            "max": lambda x, d: x.amax(d),
            "min": lambda x, d: x.amin(d),
            "var": lambda x, d: x.var(d, correction=1),
            "std": lambda x, d: x.std(d, correction=1),
            "norm1": lambda x, d: x.abs().sum(d),
            "norm2": lambda x, d: x.square().sum(d).sqrt(),
            "logsumexp": lambda x, d: x.logsumexp(d),
        }.items():
            for axes in ([1], [0, 2]):
                self.same(
                    lambda x: ckl.reduce(x, op, axes, correction=1 if op in ("var", "std") else 0),
                    lambda x: by_torch(x, axes),
                    x,
                )
        self.same(lambda x: ckl.reduce(x, "prod", [2, 0]), lambda x: x.prod(2).prod(0), x)
        self.assertFalse(ckl.reduce(x.requires_grad_(), "argmax", 1).requires_grad)

    def test_rope(self):
        positions = torch.arange(6, device=device)
        q, k = normal(6, 4, 8), normal(6, 2, 8)
        angle = positions[:, None, None] * 10000.0 ** (-torch.arange(4, device=device) / 4)

        def rotated(x):
            a, b = x.chunk(2, -1)
            return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)

        for i in (0, 1):
            self.same(
                lambda q, k: ckl.rope(q, k, positions)[i] + 0 * q.sum() + 0 * k.sum(),
                lambda q, k: rotated((q, k)[i]) + 0 * q.sum() + 0 * k.sum(),
                q,
                k,
            )

    def test_rotation_by_tables(self):
        cos, sin = normal(2, 5, 8), normal(2, 5, 8)

        def by_torch(q, k):
            both = [x * cos[:, None] + torch.cat((-x[..., 4:], x[..., :4]), -1) * sin[:, None] for x in (q, k)]
            return torch.cat(both, 1)

        q, k = normal(2, 5, 3, 8).transpose(1, 2), normal(2, 1, 5, 8)
        self.same(lambda q, k: torch.cat(ckl.apply_rotary_pos_emb(q, k, cos, sin), 1), by_torch, q, k)

    def test_linear(self):
        x, w, b = normal(2, 5, 16), normal(8, 16), normal(8)
        f16 = [t.half() for t in (x, w, b)]
        self.same(ckl.linear, F.linear, *f16, error=1e-2)
        self.same(lambda *a: ckl.linear(*a, activation="relu"), lambda *a: F.linear(*a).relu(), *f16, error=1e-2)
        gelu = (lambda *a: ckl.linear(*a, activation="gelu"), lambda *a: F.gelu(F.linear(*a), approximate="tanh"))
        self.same(*gelu, *f16, error=2e-2)

    def test_attention(self):
        q, k, v = (normal(2, 6, 4, 16, dtype=torch.float16).transpose(1, 2) for _ in range(3))
        mask = torch.rand(2, 1, 6, 6, device=device) > 0.3
        mask[..., 0] = True
        for options in ({}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": mask}):
            self.same(
                lambda *a: ckl.scaled_dot_product_attention(*a, **options),
                lambda *a: F.scaled_dot_product_attention(*a, **options),
                *(q, k, v),
                error=1e-2,
            )
        grouped = {"is_causal": True, "enable_gqa": True}
        self.same(
            lambda *a: ckl.scaled_dot_product_attention(*a, **grouped),
            lambda *a: F.scaled_dot_product_attention(*a, **grouped),
            *(q, k[:, :2], v[:, :2]),
            error=1e-2,
        )
        joint = normal(2, 6, 3 * 4 * 16, dtype=torch.float16)  # q, k and v of one projection

        def parts(x):
            return (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in x.chunk(3, -1))

        self.same(
            lambda x: ckl.scaled_dot_product_attention(*parts(x), is_causal=True),
            lambda x: F.scaled_dot_product_attention(*parts(x), is_causal=True),
            joint,
            error=1e-2,
        )
        self.assertEqual(ckl.scaled_dot_product_attention(q, k, v).stride(), q.stride())
        with self.assertRaises(NotImplementedError):
            ckl.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
        for shape in ((6, 6), (1, 4, 1, 6), (2, 1, 6, 6)):  # a bias that is learned, however it is shared
            self.same(
                lambda *a: ckl.scaled_dot_product_attention(*a),
                lambda *a: F.scaled_dot_product_attention(*a),
                *(q, k, v, normal(*shape, dtype=torch.float16)),
                error=1e-2,
            )
        with self.assertRaisesRegex(NotImplementedError, "no gradient"):
            ckl.attention_decode(q.requires_grad_(), k, v)

    def test_ragged_attention(self):
        starts = torch.tensor([0, 2, 2, 7], device=device, dtype=torch.int32)

        def one_by_one(q, k, v):
            bounds = starts.tolist()
            parts = [[x[a:b].transpose(0, 1)[None] for x in (q, k, v)] for a, b in zip(bounds, bounds[1:]) if b > a]
            outputs = [F.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True) for part in parts]
            return torch.cat([o[0].transpose(0, 1) for o in outputs])

        q, k, v = (normal(7, heads, 16, dtype=torch.float16) for heads in (4, 2, 2))
        self.same(lambda *a: ckl.attention_ragged(*a, starts, starts, 5, 5, causal=True), one_by_one, q, k, v, error=1e-2)

    def test_decode(self):
        lengths, rows = torch.tensor([6, 3], device=device, dtype=torch.int32), torch.arange(2, device=device)
        q, k_new, v_new = (normal(2, h, 1, 16, dtype=torch.float16) for h in (4, 2, 2))
        table = torch.tensor([[3, 0, 1], [2, 4, 5]], device=device, dtype=torch.int32)
        places = (rows, lengths.long() - 1), (table[rows, (lengths.long() - 1) // 2].long(), (lengths.long() - 1) % 2)
        for pages, place, shape in ((None, places[0], (2, 6, 2, 16)), (table, places[1], (6, 2, 2, 16))):
            before = [normal(*shape, dtype=torch.float16) for _ in "kv"]  # [.., keys, heads, d]
            wanted = [x.clone() for x in before]
            for cache, new in zip(wanted, (k_new, v_new)):
                cache[place] = new[:, :, 0]
            o = ckl.attention_decode(q, *(x.transpose(1, 2) for x in before), lengths, pages, k_new=k_new, v_new=v_new)
            torch.testing.assert_close(o, ckl.attention_decode(q, *(x.transpose(1, 2) for x in wanted), lengths, pages))
            for got, cache in zip(before, wanted):
                torch.testing.assert_close(got, cache, rtol=0, atol=0)
        latent = normal(2, 1, 6, 16, dtype=torch.float16)  # of one head, shared by those of q
        seen = torch.arange(6, device=device) < lengths[:, None, None, None]
        wanted = F.scaled_dot_product_attention(q, latent, latent[..., :8], attn_mask=seen, enable_gqa=True)
        o = ckl.attention_decode(q, latent, None, lengths, latent=8)
        torch.testing.assert_close(o, wanted, rtol=1e-2, atol=1e-2)
        with self.assertRaisesRegex(ValueError, "has no v"):
            ckl.attention_decode(q, latent, None, lengths)
        with self.assertRaisesRegex(ValueError, "come together"):
            ckl.attention_decode(q, q, q, k_new=k_new)

    def test_latent_cache(self):
        lengths = torch.tensor([6, 3], device=device, dtype=torch.int32)
        q, cache, new = (normal(*shape, dtype=torch.float16) for shape in ((2, 4, 1, 136), (2, 1, 6, 136), (2, 1, 1, 136)))
        wanted = cache.clone()
        wanted[torch.arange(2, device=device), 0, lengths.long() - 1] = new[:, 0, 0]
        want = ckl.attention_decode(q, wanted, wanted[..., :128].clone(), lengths)
        close = {"rtol": 1e-2, "atol": 1e-2}
        torch.testing.assert_close(ckl.attention_decode(q, wanted, None, lengths, latent=128), want, **close)
        o = ckl.attention_decode(q, cache, None, lengths, k_new=new, latent=128)
        torch.testing.assert_close(o, want, **close)
        torch.testing.assert_close(cache, wanted, rtol=0, atol=0)
        with self.assertRaisesRegex(ValueError, "k_new alone"):
            ckl.attention_decode(q, cache, None, lengths, k_new=new, v_new=new[..., :128], latent=128)

    def test_tensors(self):
        x, y, row = normal(3, 4, 5), normal(3, 4, 5), normal(5)
        self.same(lambda a, b: ckl.add(a, b, alpha=2.0, beta=0.5), lambda a, b: 2 * a + 0.5 * b, x, y)
        self.same(lambda a: ckl.permute(a, (2, 0, -2)), lambda a: a.permute(2, 0, 1), x)
        self.same(lambda a: ckl.transpose(a, 1, -1), lambda a: a.transpose(1, 2), x)
        self.same(lambda a: ckl.transpose(a[:, 1], -2, -1), lambda a: a[:, 1].T, x)
        self.same(lambda a: ckl.transpose(a, 2, 0), lambda a: a.transpose(0, 2), x)
        self.same(lambda a: ckl.transpose(a, 1, 1), lambda a: a, x)
        self.same(lambda a: ckl.reduce(a, "sum", (0, 2)), lambda a: a.sum((0, 2)), x)
        self.same(lambda a: ckl.reduce(a, "mean"), lambda a: a.mean(), x)
        torch.testing.assert_close(ckl.reduce(x, "argmax", 1), x.argmax(1))
        wanted = F.gelu(2 * x + row, approximate="tanh")
        torch.testing.assert_close(ckl.elementwise("gelu(a*x+b)", a=2.0, x=x, b=row), wanted, rtol=1e-5, atol=1e-5)

    def test_every_function_is_documented_and_typed(self):
        for function in (getattr(ckl, name) for name in ckl.__all__ if name != "Report"):
            self.assertTrue(function.__doc__)
            self.assertEqual(set(function.__annotations__), {*inspect.signature(function).parameters, "return"})

    def test_errors(self):
        with self.assertRaisesRegex(ValueError, "dtype=f64"):
            ckl.softmax(normal(3, 4, dtype=torch.float64), -1)
        with self.assertRaisesRegex(ValueError, "normalized_shape"):
            ckl.layer_norm(normal(3, 4), (3,))
        x, q = normal(2, 8, dtype=torch.float16), normal(1, 2, 3, 8, dtype=torch.float16)
        for call, *args in (
            (ckl.linear, x, x[:, :7]),
            (ckl.linear, x, x, x[0]),
            (ckl.silu_mul, x, x[0]),
            (ckl.gelu, x, "other"),
            (ckl.rms_norm, x[:, :4], (4,), x[0]),
            (ckl.permute, x, (0, 3)),
            (ckl.mlp, x, x, None, x, None),
            (ckl.rope, q[0], q[0], torch.arange(3, device=device)),
            (ckl.attention, q, q, q[:, :, :2]),
        ):
            with self.subTest(call.__name__), self.assertRaises(ValueError):
                call(*args)


@unittest.skipIf(missing, missing)
class Registration(unittest.TestCase):
    def calls(self):
        """Every operator that has a gradient, and arguments."""
        x, w, b = (normal(*s).requires_grad_() for s in ((4, 16), (16,), (16,)))
        image, target = normal(2, 4, 3, 3).requires_grad_(), torch.tensor([1, 2, 0, 3], device=device)
        q, k, v = (normal(1, 2, 4, 16, dtype=torch.float16).requires_grad_() for _ in "qkv")
        yield "softmax", (x, 1, True, 1.0)
        yield "add", (x, normal(4, 16).requires_grad_(), 2.0, -1.0)
        yield "elementwise", ("gelu(a*x+b)", [x, b], ["x", "b"], [2.0], ["a"])
        yield "permute", (image, [2, 0, 3, 1])
        yield "transpose", (image,)
        for op, axes in (("sum", [1]), ("mean", []), ("sum", [-1, 0])):
            yield "reduce", (image, op, axes, 0)
        yield "reduce", (x, "std", [1], 1)
        yield "reduce", (x.detach(), "argmax", [1], 0)
        yield "layer_norm", (x, w, b, 1e-5)
        yield "rms_norm", (x, w, 1e-5)
        yield "add_rms_norm", (x, normal(4, 16).requires_grad_(), w, 1e-5)
        yield "group_norm", (image, 2, normal(4).requires_grad_(), normal(4).requires_grad_(), 1e-5)
        yield "cross_entropy", (x, target, -100, True)
        yield "unary", (x, "gelu")
        yield "silu_mul", (x, normal(4, 16).requires_grad_())
        yield "rope", (normal(4, 2, 8).requires_grad_(), normal(4, 1, 8).requires_grad_(), target, 1e4, "half", False)
        yield "rotate", (*(normal(1, h, 4, 8).requires_grad_() for h in (2, 1)), normal(1, 4, 8), normal(1, 4, 8), False)
        yield "add_layer_norm", (x, normal(4, 16).requires_grad_(), w, b, 1e-5)
        up, down = normal(8, 16).requires_grad_(), normal(16, 8).requires_grad_()
        for activation in ("identity", "relu", "gelu", "gelu_erf", "silu"):
            yield "linear", (x, up, normal(8).requires_grad_(), activation, False)
        yield "linear", (x, down, None, "identity", True)
        yield "mlp", (x, up, normal(8).requires_grad_(), down, b, w, normal(4, 16).requires_grad_(), "gelu_erf", False)
        yield "mlp", (x, down, None, up, None, None, None, "silu", True)
        yield "gated_mlp", (x, up, normal(8, 16).requires_grad_(), down, normal(4, 16).requires_grad_())
        for activation, turned, biases in (("gelu", True, True), ("gelu_erf", False, False)):
            wide, high = ((16, 48), (16, 24)) if turned else ((48, 16), (24, 16))
            weights = []
            for shape, has_bias in (
                ((16,), True),
                (wide, biases),
                ((16, 16), True),
                ((16,), True),
                (high, True),
                (high[::-1], biases),
            ):
                weight = normal(*shape, dtype=torch.float16)
                out = shape[0] if len(shape) == 1 or not turned else shape[1]
                weights += [weight, normal(out, dtype=torch.float16) if has_bias else None]
            tokens = normal(2, 3, 16, dtype=torch.float16)
            leaves = [x if x is None else x.div_(4).requires_grad_() for x in (tokens, *weights)]
            yield "block", (*leaves, 2, turned, 0.3, 1e-5, 1e-6, activation, turned)
        for last, bias, gamma in ((True, True, True), (False, False, False)):
            x = normal(2, 16, 5, 4).to(memory_format=torch.channels_last if last else torch.contiguous_format)
            shapes = (16, 1, 3, 3), (16,), (16,), (16,), (24, 16), (24,), (16, 24), (16,), (16,)
            given = True, bias, True, True, True, bias, True, bias, gamma
            leaves = [normal(*s).requires_grad_() if is_given else None for s, is_given in zip(shapes, given)]
            yield "conv_block", (x.requires_grad_(), *leaves, [1, 1], 1e-6, "gelu_erf")
        shapes = (2, 3, 16), (16,), (32, 16), (16, 16), (16, 16), (16, 32), (16,), (24, 16), (24, 16), (16, 24)
        leaves = [normal(*s, dtype=torch.float16).div_(4).requires_grad_() for s in shapes]  # heads of 8: four, of keys two
        yield "decoder_layer", (*leaves, *(normal(1, 3, 8, dtype=torch.float16) for _ in range(2)), 8, 0.3, 1e-5, 1e-6)
        sizes = ([1, 1], [1, 1], [1, 1])
        yield "conv2d", (image, normal(4, 1, 3, 3).requires_grad_(), normal(4).requires_grad_(), *sizes, 4)
        last = normal(1, 4, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
        yield "conv2d", (last, normal(2, 4, 3, 3).requires_grad_(), normal(2).requires_grad_(), [2, 2], [1, 1], [1, 1], 1)
        plain = (True, 0.25, 0, 0, 0.0)
        yield "attention", (q, k, v, None, None, *plain)
        yield "attention_packed", (normal(1, 4, 3, 2, 16, dtype=torch.float16).requires_grad_(), True, 0.25)
        yield "attention", (q, k, v, None, normal(2).requires_grad_(), False, 0.25, 2, 1, 10.0)
        mask = normal(1, 2, 1, 4, dtype=torch.float16).requires_grad_()
        yield "attention", (q, k, v, mask, None, False, 0.25, 0, 0, 0.0)
        starts = torch.tensor([0, 1, 4], device=device, dtype=torch.int32)
        flat = [normal(2, 4, 16, dtype=torch.float16).requires_grad_() for _ in "qkv"]
        yield "attention_ragged", (*flat, starts, starts, None, 3, 3, *plain)
        yield "attention_ragged", (*flat, starts, starts, normal(2).requires_grad_(), 3, 3, *plain)
        cache = [normal(2, 2, 6, 16, dtype=torch.float16) for _ in "kv"]
        lengths = torch.tensor([6, 3], device=device, dtype=torch.int32)
        q = normal(2, 4, 1, 16, dtype=torch.float16)
        yield "attention_decode", (q, *cache, lengths, None, None, 0.25, 0, 0.0)
        yield "attention_decode_latent", (q, cache[0], lengths, None, None, 0.25, 0, 0.0, 8)
        new = [normal(2, 2, 1, 16, dtype=torch.float16) for _ in "kv"]
        yield "attention_decode_latent_append", (q, cache[0], new[0], lengths, None, None, 0.25, 0, 0.0, 8)
        yield "attention_decode_append", (q, *cache, *new, lengths, None, None, 0.25, 0, 0.0)

    def test_gradients_without_the_dispatcher(self):
        from cutekernellib.torch import _registry

        for name, args in self.calls():
            leaves = [x for x in args if isinstance(x, torch.Tensor) and x.requires_grad]
            gradients = []
            for run in (getattr(_registry.differentiable, name), getattr(torch.ops.cutekernellib, name)) if leaves else ():
                y = run(*args)
                torch.manual_seed(4)
                outputs = [t for t in (y if isinstance(y, tuple) else (y,)) if t.requires_grad]
                gradients.append(torch.autograd.grad(outputs, leaves, [torch.randn_like(t) for t in outputs]))
            for got, wanted in zip(*gradients):
                torch.testing.assert_close(got, wanted, rtol=0, atol=0)

    def test_without_gradient_and_dispatcher(self):
        from cutekernellib.torch import _registry

        for name, args in self.calls():
            if name.endswith("_append"):  # its cache would change
                continue
            got, wanted = getattr(_registry.direct, name)(*args), getattr(torch.ops.cutekernellib, name)(*args)
            got, wanted = (y[0] if isinstance(y, (tuple, list)) else y for y in (got, wanted))
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)

    def test_blocks_that_do_not_fit(self):
        x, args = next((args[0], args[1:]) for name, args in self.calls() if name == "conv_block")
        for image, padding in (x[:, :8], [1, 1]), (x, [0, 0]):  # other channels, fewer pixels than are added
            with self.assertRaisesRegex(ValueError, "conv_block: x.* do not fit"):
                torch.ops.cutekernellib.conv_block(image, *args[:9], padding, *args[10:])
        for name, wrong in ("block", 3), ("block", 5), ("block", 11), ("decoder_layer", 3), ("decoder_layer", 9):
            args = list(next(args for called, args in self.calls() if called == name))
            args[wrong] = args[wrong][:, :-1]
            with self.assertRaisesRegex(ValueError, f"{name}: .*(do not fit|are not)"):
                getattr(torch.ops.cutekernellib, name)(*args)
        with self.assertRaisesRegex(ValueError, "decoder_layer: .* are not whole heads of 7"):
            args = next(args for called, args in self.calls() if called == "decoder_layer")
            torch.ops.cutekernellib.decoder_layer(*args[:12], 7, *args[13:])

    def test_every_operator_is_among_the_calls(self):
        from cutekernellib.torch import _registry

        forward = {name for name in vars(_registry.direct) if not name.endswith("_backward")}
        self.assertEqual(forward, {name for name, _ in self.calls()})

    def test_opcheck(self):
        for name, args in self.calls():
            with self.subTest(name):
                torch.library.opcheck(getattr(torch.ops.cutekernellib, name).default, args)

    def test_compiled_without_graph_breaks(self):
        w, b = normal(16), normal(16)

        def layer(x):
            return ckl.softmax(ckl.gelu(ckl.layer_norm(x, (16,), w, b)), -1)

        x = normal(4, 16).requires_grad_()
        backend = "inductor" if device == "cuda" else "aot_eager"
        y = torch.compile(layer, fullgraph=True, backend=backend)(x)
        torch.testing.assert_close(y, layer(x))
        y.square().sum().backward()
        self.assertIsNotNone(x.grad)

    @unittest.skipIf(missing or device == "cpu", "there is no GPU: no CUDA graphs, no streams")
    def test_captured_and_on_a_stream(self):
        x = normal(8, 64)
        ckl.softmax(x, -1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = ckl.softmax(ckl.rms_norm(x, (64,)), -1)
        x.copy_(normal(8, 64))
        graph.replay()
        torch.testing.assert_close(y, F.rms_norm(x, (64,)).softmax(-1))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            big = ckl.softmax(normal(4096, 4096), -1)
        stream.synchronize()
        torch.testing.assert_close(big.sum(-1), torch.ones(4096, device=device))


class Block(torch.nn.Module if not missing else object):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.act, self.down = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
        self.frozen = torch.nn.BatchNorm2d(3)

    def forward(self, x):
        return self.down(self.act(self.up(self.norm(x)))) + F.softmax(x, -1)


def as_on_a_gpu(name, *tensors):
    """How calls go that neither a trace nor anything else wants to see, for tensors of the host, too."""
    from cutekernellib.torch import _registry

    if _registry._is_compiling():
        return getattr(_registry.registered, name)
    needs_gradient = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
    return getattr(_registry.differentiable if needs_gradient else _registry.direct, name)


def names_of_calls(names):
    """A context in which the operators called are added to a list."""
    from cutekernellib.torch import _registry

    return unittest.mock.patch.object(ckl, "_way", lambda name, *tensors: names.append(name) or _registry.way(name, *tensors))


@unittest.skipIf(missing, missing)
class Accelerate(unittest.TestCase):
    def agrees(self, model, loss_of, *swapped):
        """Losses and gradients with and without, and traced as one graph; the classes and functions that were replaced."""
        model, results = model.to(device, torch.bfloat16), []
        for accelerated in (False, True):
            report = ckl.accelerate(model, host=device == "cpu", quiet=True) if accelerated else None
            model.zero_grad()
            with unittest.mock.patch.object(ckl, "_way", as_on_a_gpu), torch.no_grad():
                alone = loss_of(model)
            with unittest.mock.patch.object(ckl, "_way", as_on_a_gpu):
                loss = loss_of(model)
                loss.backward()
            torch.testing.assert_close(alone, loss.detach())
            results.append([loss.detach().float()] + [p.grad.float() for p in model.parameters()])
        torch._dynamo.reset()
        traced = loss_of(torch.compile(model, fullgraph=True, backend="aot_eager"))
        report.undo()
        torch.testing.assert_close(traced, loss)
        self.assertLessEqual(set(swapped), set(report.swapped.values()))
        self.assertFalse([name for name in report.left if ".mlp." in name or "patch_embed" in name])  # parts of one operator
        torch.testing.assert_close(results[1][0], results[0][0], rtol=1e-2, atol=1e-2)
        for got, wanted in zip(*results):  # bf16 rounds at other places
            self.assertLess((got - wanted).norm(), 0.1 * wanted.norm() + 1e-3)

    def test_models_of_transformers(self):
        try:
            from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
        except ImportError:
            self.skipTest("there is no transformers")
        tokens = torch.randint(20, (1, 5), device=device)

        def loss_of(model):
            return F.cross_entropy(model(input_ids=tokens, use_cache=False).logits[0], tokens[0])

        torch.manual_seed(5)
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
        llama = LlamaForCausalLM(LlamaConfig(vocab_size=20, intermediate_size=32, **sizes))
        rotary = "transformers.models.llama.modeling_llama.apply_rotary_pos_emb"
        swapped = ("Linear", "LlamaRMSNorm", "LlamaMLP", "LlamaDecoderLayer", rotary)  # of the vocabulary
        self.agrees(llama, loss_of, *swapped)
        none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
        gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=32, n_layer=1, n_head=2, n_positions=8, **none))
        swapped = ("Linear", "LayerNorm", "GPT2MLP", "GPT2Block")
        self.agrees(gpt2, loss_of, *swapped)

    def test_models_of_timm(self):
        try:
            from timm.models.convnext import ConvNeXt
            from timm.models.vision_transformer import VisionTransformer
        except ImportError:
            self.skipTest("there is no timm")
        torch.manual_seed(5)
        x, target = normal(2, 3, 32, 32, dtype=torch.bfloat16), torch.tensor([3, 7], device=device)
        vit = VisionTransformer(img_size=32, patch_size=16, embed_dim=32, depth=1, num_heads=2, num_classes=10)
        convnext = ConvNeXt(depths=(1, 1, 1, 1), dims=(16, 16, 16, 16), num_classes=10, ls_init_value=0.5)
        self.agrees(vit, lambda model: F.cross_entropy(model(x), target), "Linear", "Block", "Attention", "Mlp", "PatchEmbed")
        self.agrees(convnext, lambda model: F.cross_entropy(model(x), target), "Conv2d", "ConvNeXtBlock", "Mlp")

    def test_blocks_are_taken_whole(self):
        """By the models that are installed: what a block is called with must be what its replacement looks for."""
        whole = {"block", "conv_block", "decoder_layer"}
        hooked = {
            "gpt2": "transformer.h.0.attn",
            "llama": "model.layers.0.self_attn",
            "vit": "blocks.0.attn",
            "convnext": "stages.1.blocks.0.norm",
        }
        for name, model, x in self.transformers():
            names = []
            report = ckl.accelerate(model, host=True, quiet=True)
            with names_of_calls(names):
                model(x)
                blocks = sum(n in whole for n in names)
                self.assertEqual(blocks, 4 if name == "convnext" else 2, name)
                model.get_submodule(hooked[name]).register_forward_hook(lambda *_: None)  # wants to be called
                model(x)
                self.assertEqual(sum(n in whole for n in names), 2 * blocks - 1, name)
            report.undo()

    def transformers(self):
        """Models of two blocks, and inputs."""
        try:
            from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

            none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 1}
            gpt2 = GPT2LMHeadModel(
                GPT2Config(vocab_size=20, n_embd=32, n_layer=2, n_head=2, n_positions=8, use_cache=False, **none)
            )
            yield "gpt2", gpt2.to(device, torch.bfloat16), torch.randint(20, (2, 5), device=device)
            sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
            llama = LlamaForCausalLM(LlamaConfig(vocab_size=20, intermediate_size=32, use_cache=False, **sizes))
            yield "llama", llama.to(device, torch.bfloat16), torch.randint(20, (2, 5), device=device)
        except ImportError:
            pass
        try:
            from timm.models.convnext import ConvNeXt
            from timm.models.vision_transformer import VisionTransformer

            vit = VisionTransformer(img_size=32, patch_size=16, embed_dim=32, depth=2, num_heads=2, num_classes=10)
            yield "vit", vit.to(device, torch.bfloat16), normal(2, 3, 32, 32, dtype=torch.bfloat16)
            convnext = ConvNeXt(depths=(1, 1, 1, 1), dims=(16, 16, 16, 16), num_classes=10)
            yield "convnext", convnext.to(device, torch.bfloat16), normal(2, 3, 32, 32, dtype=torch.bfloat16)
        except ImportError:
            pass

    def test_generates_the_same_tokens(self):
        """With a cache, of prompts with and without padding; attention of a prompt is ours, that of a token torch's."""
        try:
            from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
        except ImportError:
            self.skipTest("there is no transformers")
        torch.manual_seed(5)
        ends = {"vocab_size": 20, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "initializer_range": 0.5}
        sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
        llama = LlamaForCausalLM(LlamaConfig(num_attention_heads=4, num_key_value_heads=2, **sizes, **ends))
        gpt2 = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, n_positions=16, **ends))
        tokens = torch.randint(2, 20, (2, 5), device=device)
        padding = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], device=device)
        for model in (llama.to(device, torch.bfloat16).eval(), gpt2.to(device, torch.bfloat16).eval()):
            for mask in (torch.ones_like(tokens), padding):
                options = {"attention_mask": mask, "max_new_tokens": 4, "do_sample": False, "use_cache": True}
                wanted, names = model.generate(tokens, **options), []
                report = ckl.accelerate(model, host=device == "cpu", quiet=True)
                with names_of_calls(names):
                    got = model.generate(tokens, **options)
                report.undo()
                self.assertTrue(torch.equal(got, wanted), f"{type(model).__name__}: {got} {wanted}")
                self.assertEqual(sum("attention" in name for name in names), 1, f"{type(model).__name__}: {names}")

    def test_counted_tokens_want_no_mask(self):
        try:
            from transformers import LlamaConfig, LlamaModel
            from transformers.models.llama import modeling_llama
        except ImportError:
            self.skipTest("there is no transformers")
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}
        model, made = LlamaModel(LlamaConfig(intermediate_size=32, **sizes)).to(device, torch.bfloat16), []
        original, tokens = modeling_llama.create_causal_mask, torch.randint(20, (1, 5), device=device)

        def create_causal_mask(*args, **options):
            made.append(options)
            return original(*args, **options)

        with unittest.mock.patch.object(modeling_llama, "create_causal_mask", create_causal_mask):
            report = ckl.accelerate(model, host=device == "cpu", quiet=True)
            model(tokens, use_cache=False)
            self.assertEqual(len(made), 0)
            model(tokens, position_ids=torch.tensor([[0, 1, 2, 0, 1]], device=device), use_cache=False)
            self.assertEqual(len(made), 1)
            report.undo()

    def test_packed_sequences_stay_apart(self):
        try:
            from transformers import GPT2Config, GPT2LMHeadModel
        except ImportError:
            self.skipTest("there is no transformers")
        config = GPT2Config(vocab_size=20, n_embd=32, n_layer=1, n_head=2, n_positions=8, bos_token_id=1, eos_token_id=1)
        model, tokens = GPT2LMHeadModel(config).to(device, torch.bfloat16).eval(), torch.randint(20, (1, 6), device=device)
        positions = torch.tensor([[0, 1, 2, 0, 1, 2]], device=device)
        logits = []
        for accelerated in (False, True):
            report = ckl.accelerate(model, host=device == "cpu", quiet=True) if accelerated else None
            with torch.no_grad():
                given = (None, None), (None, positions), (tokens[:, 3:], None)
                logits.append([model(tokens if x is None else x, position_ids=p, use_cache=False).logits for x, p in given])
        self.assertEqual(type(model.transformer).__name__, "GPT2Model")
        report.undo()
        for got, wanted in zip(*logits):
            torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)
        together, apart, alone = logits[1]
        torch.testing.assert_close(apart[:, 3:], alone, rtol=2e-2, atol=2e-2)
        self.assertGreater((together[:, 3:] - alone).abs().max(), 0.1)

    def agrees_on(self, model, x, autocast=False):
        """What a model gives accelerated, which is what it gives without, and has gradients."""
        model, results = model.to(device), []
        for accelerated in (False, True):
            report = ckl.accelerate(model, host=device == "cpu", quiet=True) if accelerated else None
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                results.append(model(x))
            results[-1].float().square().sum().backward()
        report.undo()
        torch.testing.assert_close(*reversed(results), rtol=5e-2, atol=5e-2)
        return results[1]

    def vit(self):
        """A small model of timm."""
        try:
            from timm.models.vision_transformer import VisionTransformer
        except ImportError:
            self.skipTest("there is no timm")
        torch.manual_seed(5)
        return VisionTransformer(img_size=32, patch_size=16, embed_dim=32, depth=1, num_heads=2, num_classes=10)

    def test_autocast(self):
        self.agrees_on(self.vit(), normal(2, 3, 32, 32), autocast=True)

    def test_channels_last(self):
        """Stays so; torch's own group norm of a GPU gives images in the order of their modes."""
        torch.manual_seed(5)
        conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        images = torch.nn.Sequential(conv, torch.nn.GroupNorm(2, 8), torch.nn.SiLU(), torch.nn.Conv2d(8, 8, 2, stride=2))
        x = normal(2, 8, 6, 4, dtype=torch.bfloat16)
        y = self.agrees_on(images.bfloat16(), x.to(memory_format=torch.channels_last))
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))

    def test_empty_batch(self):
        """For which torch 2.11's own attention of a GPU gives None, so there is nothing to compare with."""
        model = self.vit().to(device, torch.bfloat16)
        report = ckl.accelerate(model, host=device == "cpu", quiet=True)
        y = model(normal(0, 3, 32, 32, dtype=torch.bfloat16))
        y.sum().backward()
        report.undo()
        self.assertEqual((y.shape, y.dtype), ((0, 10), torch.bfloat16))
        for name, p in model.named_parameters():
            self.assertFalse(p.grad.any(), name)

    def test_gradient_of_attention(self):
        q = normal(1, 2, 4, 16, dtype=torch.float16).requires_grad_()
        report = ckl.accelerate(torch.nn.Module(), host=device == "cpu", quiet=True)
        mask = torch.ones(4, 4, dtype=torch.bool, device=device)
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
        report.undo()
        self.assertTrue(q.grad.isfinite().all())

    def test_checkpointed_attention(self):
        q = normal(1, 2, 4, 16, dtype=torch.float16).requires_grad_()
        o = torch.utils.checkpoint.checkpoint(ckl.scaled_dot_product_attention, q, q, q, use_reentrant=False)
        o.sum().backward()
        self.assertTrue(q.grad.isfinite().all())

    def test_same_losses_and_undo(self):
        torch.manual_seed(3)
        models, losses = [Block().to(device), Block().to(device)], ([], [])
        models[1].load_state_dict(models[0].state_dict())
        x, target = normal(6, 16), torch.arange(6, device=device)
        softmax = F.softmax
        for model, seen in zip(models, losses):
            report = ckl.accelerate(model, host=device == "cpu", quiet=True) if seen is losses[1] else None
            if report:
                self.assertEqual({report.swapped["norm"], report.swapped["act"]}, {"LayerNorm", "GELU"})
                self.assertIn("BatchNorm2d: there is no batch norm", str(report))
                self.assertIsInstance(model.norm, torch.nn.LayerNorm)
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            for _ in range(3):
                loss = F.cross_entropy(model(x), target)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                seen.append(loss.item())
        report.undo()
        self.assertIs(F.softmax, softmax)
        self.assertIs(type(models[1].norm), torch.nn.LayerNorm)
        torch.testing.assert_close(*map(torch.tensor, losses), rtol=1e-4, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
