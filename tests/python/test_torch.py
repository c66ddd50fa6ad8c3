"""The functions of cutekernellib.torch against torch: values, gradients, mistakes; on a GPU where there is one."""

import inspect
import unittest
import warnings

try:
    import torch
    import torch.nn.functional as F

    import cutekernellib
    import cutekernellib.torch as ckl
    from cutekernellib import EmulatorWarning

    warnings.simplefilter("ignore", EmulatorWarning)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    missing = None
except ImportError as why:
    device, missing = None, f"torch cannot be imported ({why.name})"


def normal(*shape, dtype=None):
    return torch.randn(*shape, device=device, dtype=dtype)


def leaf(*shape, dtype=None):
    return normal(*shape, dtype=dtype).requires_grad_()


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

    def like_torch(self, name, *inputs, error=1e-5, **options):
        """The function of torch.nn.functional of the same name and options."""
        ours, torchs = getattr(ckl, name), getattr(F, name)
        self.same(lambda *a: ours(*a, **options), lambda *a: torchs(*a, **options), *inputs, error=error)

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
        self.like_torch("layer_norm", normal(5, 3, 8), normalized_shape=(3, 8))
        self.same(lambda x, w: ckl.rms_norm(x, (24,), w, 1e-5), lambda x, w: F.rms_norm(x, (24,), w, 1e-5), normal(4, 24), w)
        small = 1e-3 * normal(4, 24, dtype=torch.bfloat16)  # whose squares are about the smallest eps
        self.like_torch("rms_norm", small, normalized_shape=(24,), error=2e-2)
        both = [
            lambda *a: torch.cat(ckl.add_rms_norm(*a)),
            lambda x, r, w: torch.cat([F.rms_norm(x + r, (24,), w, 1e-5), x + r]),
        ]
        self.same(*both, normal(4, 24), normal(4, 24), w)
        for x in (normal(2, 4, 3, 5), normal(2, 4, 3, 5).to(memory_format=torch.channels_last)):
            self.same(
                lambda *a: ckl.group_norm(a[0], 2, *a[1:]), lambda *a: F.group_norm(a[0], 2, *a[1:]), x, normal(4), normal(4)
            )
            self.like_torch("group_norm", x, num_groups=2)

    def test_zeros_are_no_defaults(self):
        x, q = 1e-4 * normal(4, 24), normal(1, 2, 5, 16, dtype=torch.float16)
        self.like_torch("layer_norm", x, normalized_shape=(24,), eps=0.0, error=1e-4)
        self.like_torch("rms_norm", x, normalized_shape=(24,), eps=0.0, error=1e-4)
        self.like_torch("group_norm", x, num_groups=2, eps=0.0, error=1e-4)
        self.same(lambda x: ckl.softmax(x, 1, scale=0.0), lambda x: (0 * x).softmax(1), x)
        mean = lambda q, k, v: v.mean(2, keepdim=True) + 0 * (q + k)  # on a GPU torch gives NaN
        self.same(lambda q, k, v: ckl.scaled_dot_product_attention(q, k, v, scale=0.0), mean, q, q, q, error=2e-3)

    def test_cross_entropy(self):
        target = torch.tensor([1, -100, 9, 0], device=device)
        for reduction in ("mean", "sum", "none"):
            self.like_torch("cross_entropy", normal(4, 10), target, reduction=reduction)

    def test_cross_entropy_of_other_modes(self):
        weight = torch.rand(5, device=device)
        for logits, classes in ((5,), ()), ((2, 5, 3), (2, 3)), ((2, 5, 2, 3), (2, 2, 3)):
            target = torch.randint(5, classes, device=device)
            for reduction in ("mean", "sum", "none"):
                self.like_torch("cross_entropy", normal(*logits), target, weight=weight, reduction=reduction)
        with self.assertRaisesRegex(ValueError, "do not fit x.N,classes,"):
            ckl.cross_entropy(normal(2, 5, 3), torch.zeros(3, 2, dtype=torch.int64, device=device))

    def test_weighted_and_smoothed_cross_entropy(self):
        target, weight = torch.tensor([1, -100, 9, 0], device=device), torch.rand(10, device=device)
        for reduction in ("mean", "sum", "none"):
            for options in ({"weight": weight}, {"label_smoothing": 0.2}, {"weight": weight, "label_smoothing": 0.2}):
                self.like_torch("cross_entropy", normal(4, 10), target, reduction=reduction, **options)
        with self.assertRaisesRegex(NotImplementedError, "weight has no gradient"):
            ckl.cross_entropy(normal(4, 10), target, weight.clone().requires_grad_())
        with self.assertRaisesRegex(ValueError, "smoothing=2 is not in 0..1"):
            ckl.cross_entropy(normal(4, 10), target, label_smoothing=2.0)

    def test_elements(self):
        for approximate in ("none", "tanh"):
            self.like_torch("gelu", 3 * normal(5, 13), approximate=approximate)
        self.like_torch("silu", 3 * normal(40))
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
        self.like_torch("linear", *f16, error=1e-2)
        self.same(lambda *a: ckl.linear(*a, activation="relu"), lambda *a: F.linear(*a).relu(), *f16, error=1e-2)
        gelu = (lambda *a: ckl.linear(*a, activation="gelu"), lambda *a: F.gelu(F.linear(*a), approximate="tanh"))
        self.same(*gelu, *f16, error=2e-2)

    def test_attention(self):
        q, k, v = (normal(2, 6, 4, 16, dtype=torch.float16).transpose(1, 2) for _ in range(3))
        mask = torch.rand(2, 1, 6, 6, device=device) > 0.3
        mask[..., 0] = True
        for options in ({}, {"is_causal": True}, {"scale": 0.3}, {"attn_mask": mask}):
            self.like_torch("scaled_dot_product_attention", q, k, v, error=1e-2, **options)
        fewer = q, k[:, :2], v[:, :2]
        self.like_torch("scaled_dot_product_attention", *fewer, error=1e-2, is_causal=True, enable_gqa=True)
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
            self.like_torch("scaled_dot_product_attention", q, k, v, normal(*shape, dtype=torch.float16), error=1e-2)
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
        with self.assertRaisesRegex(ValueError, "linear: weight is of float32, x of float16"):
            ckl.linear(x, normal(3, 8))
        with self.assertRaisesRegex(TypeError, "softmax: torch's tensors are wanted, not ndarray"):
            ckl.softmax(normal(3, 4).cpu().numpy(), -1)
        with self.assertRaisesRegex(NotImplementedError, "softmax: no gradient comes of arrays"):
            cutekernellib.softmax(leaf(3, 4))
        with self.assertRaisesRegex(TypeError, "accelerate: the model is no torch.nn.Module but of int"):
            ckl.accelerate(3)
        with self.assertRaisesRegex(NotImplementedError, "padding=same"):
            ckl.conv2d(q, q, padding="same")
        with self.assertRaisesRegex(ValueError, "begin at 1"):
            ckl.conv2d(q, q, stride=0)
        for call, *args in (
            (ckl.linear, x, x[:, :7]),
            (ckl.linear, x, x, x[0]),
            (ckl.silu_mul, x, x[0]),
            (ckl.gelu, x, "other"),
            (ckl.silu, x.int()),
            (ckl.group_norm, x, 2, x[0]),
            (ckl.rms_norm, x[:, :4], (4,), x[0]),
            (ckl.permute, x, (0, 3)),
            (ckl.mlp, x, x, None, x, None),
            (ckl.rope, q[0], q[0], torch.arange(3, device=device)),
            (ckl.attention, q, q, q[:, :, :2]),
        ):
            with self.subTest(call.__name__), self.assertRaises(ValueError):
                call(*args)

    def test_no_second_gradients(self):
        w, target = normal(8), torch.tensor([1, 2, 0], device=device)
        for name, function in {
            "softmax": lambda x: ckl.softmax(x, -1),
            "layer_norm": lambda x: ckl.layer_norm(x, (8,), w),
            "cross_entropy": lambda x: ckl.cross_entropy(x, target),
        }.items():
            x = leaf(3, 8)
            (dx,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
            with self.assertRaisesRegex(NotImplementedError, f"{name}: there is no second gradient"):
                dx.sum().backward()

    def test_no_forward_derivatives(self):
        x = normal(3, 8)
        with self.assertRaisesRegex(NotImplementedError, "softmax: there is no forward-mode derivative"):
            torch.func.jvp(lambda x: ckl.softmax(x, -1), (x,), (x,))
        torch.testing.assert_close(torch.func.vmap(lambda x: ckl.softmax(x, -1))(x), x.softmax(-1))


if __name__ == "__main__":
    unittest.main()
