"""cutekernellib.torch against torch: values, gradients, fake kernels, compiled graphs; on a GPU where there is one."""

import inspect
import unittest
import warnings

try:
    import torch
    import torch.nn.functional as F

    import cutekernellib
    import cutekernellib.torch as ckl
    from cutekernellib import EmulatorWarning
    from cutekernellib.torch import _registry

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


def with_gaps(x):
    """A tensor, or those of a list, with a gap behind each element; anything else as it is."""
    if isinstance(x, list):
        return [with_gaps(each) for each in x]
    if not isinstance(x, torch.Tensor):
        return x
    return torch.stack((x.detach(), x.detach()), -1)[..., 0].requires_grad_(x.requires_grad)


@unittest.skipIf(missing, missing)
class Registration(unittest.TestCase):
    def calls(self):
        """Every operator that has a gradient, and arguments."""
        x, w, b = (leaf(*s) for s in ((4, 16), (16,), (16,)))
        image, target = leaf(2, 4, 3, 3), torch.tensor([1, 2, 0, 3], device=device)
        q, k, v = (leaf(1, 2, 4, 16, dtype=torch.float16) for _ in "qkv")
        yield "softmax", (x, 1, True, 1.0)
        yield "add", (x, leaf(4, 16), 2.0, -1.0)
        yield "elementwise", ("gelu(a*x+b)", [x, b], ["x", "b"], [2.0], ["a"])
        yield "permute", (image, [2, 0, 3, 1])
        yield "transpose", (image,)
        for op, axes in (("sum", [1]), ("mean", []), ("sum", [-1, 0])):
            yield "reduce", (image, op, axes, 0)
        yield "reduce", (x, "std", [1], 1)
        yield "reduce", (x.detach(), "argmax", [1], 0)
        yield "layer_norm", (x, w, b, 1e-5)
        yield "rms_norm", (x, w, 1e-5)
        yield "add_rms_norm", (x, leaf(4, 16), w, 1e-5)
        yield "group_norm", (image, 2, None, None, 1e-5)
        yield "group_norm", (image, 2, leaf(4), leaf(4), 1e-5)
        yield "cross_entropy", (x, target, None, -100, True, 0.0)
        yield "cross_entropy", (x, target, normal(16), 3, False, 0.1)
        yield "unary", (x, "gelu")
        yield "silu_mul", (x, leaf(4, 16))
        yield "rope", (leaf(4, 2, 8), leaf(4, 1, 8), target, 1e4, "half", False)
        yield "rotate", (*(leaf(1, h, 4, 8) for h in (2, 1)), normal(1, 4, 8), normal(1, 4, 8), False)
        yield "add_layer_norm", (x, leaf(4, 16), w, b, 1e-5)
        up, down = leaf(8, 16), leaf(16, 8)
        for activation in ("identity", "relu", "gelu", "gelu_erf", "silu"):
            yield "linear", (x, up, leaf(8), activation, False)
        yield "linear", (x, down, None, "identity", True)
        yield "mlp", (x, up, leaf(8), down, b, leaf(4, 16), "gelu_erf", False)
        yield "mlp", (x, down, None, up, None, None, "silu", True)
        yield "gated_mlp", (x, up, leaf(8, 16), down, leaf(4, 16))
        for activation, turned, biases in (("gelu", True, True), ("gelu_erf", False, False)):
            wide, high = ((16, 48), (16, 24)) if turned else ((48, 16), (24, 16))
            weights = []
            shapes = (16,), wide, (16, 16), (16,), high, high[::-1]
            for shape, has_bias in zip(shapes, (True, biases, True, True, True, biases)):
                weight = normal(*shape, dtype=torch.float16)
                out = shape[0] if len(shape) == 1 or not turned else shape[1]
                weights += [weight, normal(out, dtype=torch.float16) if has_bias else None]
            tokens = normal(2, 3, 16, dtype=torch.float16)
            leaves = [x if x is None else x.div_(4).requires_grad_() for x in (tokens, *weights)]
            yield "block", (*leaves, 2, turned, 0.3, 1e-5, 1e-6, activation, turned)
            attended = leaf(2, 3, 16, dtype=torch.float16)
            yield "block_tail", (attended, leaves[0], *leaves[7:], 1e-6, activation, turned)
        for last, bias, gamma in ((True, True, True), (False, False, False)):
            x = normal(2, 16, 5, 4).to(memory_format=torch.channels_last if last else torch.contiguous_format)
            shapes = (16, 1, 3, 3), (16,), (16,), (16,), (24, 16), (24,), (16, 24), (16,), (16,)
            given = True, bias, True, True, True, bias, True, bias, gamma
            leaves = [leaf(*s) if is_given else None for s, is_given in zip(shapes, given)]
            yield "conv_block", (x.requires_grad_(), *leaves, 1, 1, 1e-6, "gelu_erf")
        shapes = (2, 3, 16), (16,), (32, 16), (16, 16), (16, 16), (16, 32), (16,), (24, 16), (24, 16), (16, 24)
        leaves = [normal(*s, dtype=torch.float16).div_(4).requires_grad_() for s in shapes]  # heads of 8: four, of keys two
        yield "decoder_layer", (*leaves, *(normal(1, 3, 8, dtype=torch.float16) for _ in range(2)), 8, 0.3, 1e-5, 1e-6)
        tables = [normal(1, 3, 8, dtype=torch.float16) for _ in range(2)]
        yield "decoder_head", (*leaves[:5], *tables, 8, 1e-5)
        attended = leaf(2, 3, 32, dtype=torch.float16)
        yield "decoder_tail", (attended, leaves[0], *leaves[5:], 1e-6)
        sizes = ([1, 1], [1, 1], [1, 1])
        yield "conv2d", (image, leaf(4, 1, 3, 3), leaf(4), *sizes, 4)
        last = normal(1, 4, 5, 5).to(memory_format=torch.channels_last).requires_grad_()
        yield "conv2d", (last, leaf(2, 4, 3, 3), leaf(2), [2, 2], [1, 1], [1, 1], 1)
        plain = (True, 0.25, 0, 0, 0.0)
        yield "attention", (q, k, v, None, None, *plain)
        yield "attention_packed", (leaf(1, 4, 3, 2, 16, dtype=torch.float16), True, 0.25)
        yield "attention", (q, k, v, None, leaf(2), False, 0.25, 2, 1, 10.0)
        mask = leaf(1, 2, 1, 4, dtype=torch.float16)
        yield "attention", (q, k, v, mask, None, False, 0.25, 0, 0, 0.0)
        starts = torch.tensor([0, 1, 4], device=device, dtype=torch.int32)
        flat = [leaf(2, 4, 16, dtype=torch.float16) for _ in "qkv"]
        yield "attention_ragged", (*flat, starts, starts, None, 3, 3, *plain)
        yield "attention_ragged", (*flat, starts, starts, leaf(2), 3, 3, *plain)
        cache = [normal(2, 2, 6, 16, dtype=torch.float16) for _ in "kv"]
        lengths = torch.tensor([6, 3], device=device, dtype=torch.int32)
        q = normal(2, 4, 1, 16, dtype=torch.float16)
        yield "attention_decode", (q, *cache, lengths, None, None, 0.25, 0, 0.0, 0)
        yield "attention_decode", (q, cache[0], None, lengths, None, None, 0.25, 0, 0.0, 8)
        new = [normal(2, 2, 1, 16, dtype=torch.float16) for _ in "kv"]
        yield "attention_decode_append", (q, cache[0], None, new[0], None, lengths, None, None, 0.25, 0, 0.0, 8)
        yield "attention_decode_append", (q, *cache, *new, lengths, None, None, 0.25, 0, 0.0, 0)

    def test_gradients_without_the_dispatcher(self):
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

    def test_gradients_of_some(self):
        """Of one input alone, or of all but one: the same as where all are wanted."""
        def gradients(name, args, leaves):
            args = [x.detach().requires_grad_(i in leaves) if isinstance(x, torch.Tensor) else x for i, x in enumerate(args)]
            y = getattr(_registry.differentiable, name)(*args)
            torch.manual_seed(4)
            outputs = [t for t in (y if isinstance(y, tuple) else (y,)) if t.requires_grad]
            return torch.autograd.grad(outputs, [args[i] for i in leaves], [torch.randn_like(t) for t in outputs])

        for name, args in self.calls():
            leaves = [i for i, x in enumerate(args) if isinstance(x, torch.Tensor) and x.requires_grad]
            wanted = dict(zip(leaves, gradients(name, args, leaves))) if len(leaves) > 1 else {}
            for i in wanted:
                some = [i] if i % 2 else [j for j in leaves if j != i]
                for j, got in zip(some, gradients(name, args, some)):
                    torch.testing.assert_close(got, wanted[j], rtol=1e-5, atol=1e-5, msg=lambda m: f"{name}, input {j}: {m}")

    def test_without_gradient_and_dispatcher(self):
        for name, args in self.calls():
            if name.endswith("_append"):  # its cache would change
                continue
            with torch.no_grad():
                got, wanted = getattr(_registry.direct, name)(*args), getattr(torch.ops.cutekernellib, name)(*args)
            got, wanted = (y[0] if isinstance(y, (tuple, list)) else y for y in (got, wanted))
            torch.testing.assert_close(got, wanted, rtol=0, atol=0)

    def test_tensors_with_gaps(self):
        """A problem says nothing of the strides of most: biases, positions, lengths. Caches that are written keep their memory."""
        for name, args in self.calls():
            results = []
            for is_apart in (False, True):
                given = [
                    with_gaps(x) if is_apart and not (name.endswith("_append") and i in (1, 2)) else x
                    for i, x in enumerate(args)
                ]
                leaves = [
                    x for arg in given for x in (arg if isinstance(arg, list) else [arg]) if getattr(x, "requires_grad", False)
                ]
                y = getattr(torch.ops.cutekernellib, name)(*given)
                first = y[0] if isinstance(y, (tuple, list)) else y
                torch.manual_seed(4)
                dy = torch.randn(first.shape, device=device).to(first.dtype)
                results.append([first, *torch.autograd.grad(first, leaves, dy)] if first.requires_grad else [first])
            for got, wanted in zip(*results):
                torch.testing.assert_close(got, wanted, rtol=2e-3, atol=2e-3, msg=lambda m: f"{name}: {m}")

    def test_blocks_that_do_not_fit(self):
        x, args = next((args[0], args[1:]) for name, args in self.calls() if name == "conv_block")
        for image, padding in (x[:, :8], (1, 1)), (x, (0, 0)):  # other channels, fewer pixels than are added
            with self.assertRaisesRegex(ValueError, "conv_block: x.* do not fit"):
                torch.ops.cutekernellib.conv_block(image, *args[:9], *padding, *args[11:])
        for name, wrong in ("block", 3), ("block", 5), ("block", 11), ("decoder_layer", 3), ("decoder_layer", 9):
            args = list(next(args for called, args in self.calls() if called == name))
            args[wrong] = args[wrong][:, :-1]
            with self.assertRaisesRegex(ValueError, f"{name}: .*(do not fit|are not)"):
                getattr(torch.ops.cutekernellib, name)(*args)
        with self.assertRaisesRegex(ValueError, "decoder_layer: .* are not whole heads of 7"):
            args = next(args for called, args in self.calls() if called == "decoder_layer")
            torch.ops.cutekernellib.decoder_layer(*args[:12], 7, *args[13:])

    def test_classes_of_others(self):
        """An array of a class that is derived, in whatever file, from the library's own."""
        x = normal(3, 4).as_subclass(type("Named", (torch.Tensor,), {"__module__": "elsewhere"}))
        torch.testing.assert_close(cutekernellib.softmax(x), x.softmax(-1), check_dtype=True, atol=1e-6, rtol=1e-5)

    def test_gradient_beside_integers(self):
        x, n = leaf(5), torch.arange(5, dtype=torch.int32, device=device)
        ckl.elementwise("x*n", x=x, n=n).sum().backward()
        torch.testing.assert_close(x.grad, n.float())

    def test_mistakes(self):
        """Say what is wrong, by exceptions of fitting types."""
        x, q, image = normal(4, 8), normal(1, 2, 4, 8, dtype=torch.float16), normal(1, 3, 5, 5)
        filters, tables = normal(4, 3, 3, 3), normal(1, 4, 8, dtype=torch.float16)
        mistakes = {
            "softmax: torch's tensors are wanted, not list": (TypeError, lambda: ckl.softmax([1.0], 0)),
            "layer_norm: torch's tensors are wanted, not list": (TypeError, lambda: ckl.layer_norm(x, (8,), [1.0] * 8)),
            "add: torch's tensors are wanted, not float": (TypeError, lambda: ckl.add(x, 2.0)),
            "layer_norm: eps is of str, not float": (TypeError, lambda: cutekernellib.layer_norm(x, eps="a")),
            r"attention: mask\[3, 3\] is not one of \[1, 2, 4, 4\]": (
                ValueError,
                lambda: ckl.scaled_dot_product_attention(q, q, q, attn_mask=tables[:, :3, :3].reshape(3, 3)),
            ),
            "attention: window is of str, not tuple": (TypeError, lambda: ckl.attention(q, q, q, window="x")),
            "attention: q is of bytes, not Tensor": (TypeError, lambda: ckl.attention(b"x", q, q)),
            "add: alpha is of str, not float": (TypeError, lambda: ckl.add(x, x, alpha="relu")),
            "rms_norm: x is no array but of int": (TypeError, lambda: cutekernellib.rms_norm(3)),
            "attention_ragged: Dimension out of range": (ValueError, lambda: ckl.attention_ragged(q, x[0], q, x, x, 1, 1)),
            "conv.*stride": (ValueError, lambda: ckl.conv2d(image, filters, stride=10**20)),
            "has the operands a, given are a, b": (ValueError, lambda: ckl.elementwise("sqrt(a)", a=x, b=x)),
            "silu: x is sparse, torch.sparse_coo": (NotImplementedError, lambda: ckl.silu(x.to_sparse())),
            "num_groups=-7 is less than 1": (ValueError, lambda: ckl.group_norm(image, -7)),
            r"linear: x\[4,8\] weight\[8\] do not fit": (ValueError, lambda: ckl.linear(x.to("meta"), x[0].to("meta"))),
            "unsqueeze_dim=3 is none of 1, 2": (ValueError, lambda: ckl.apply_rotary_pos_emb(q, q, tables, tables, 3)),
            "are not one or two numbers each": (ValueError, lambda: ckl.conv2d(image, filters, stride=(1, 1, 1))),
            "latent=32 is more than the 8 elements of a key": (
                ValueError,
                lambda: ckl.attention_decode(q[:, :, :1], q[:, :1], None, latent=32),
            ),
        }
        for sentence, (kind, call) in mistakes.items():
            with self.subTest(sentence), self.assertRaisesRegex(kind, sentence):
                call()
        with self.assertRaisesRegex(TypeError, "softmax: x is no array but of NoneType"):
            cutekernellib.softmax(None)

    def test_head_of_a_decoder(self):
        """Against its parts, with tables of which both halves differ."""
        args = next(args for name, args in self.calls() if name == "decoder_head")
        x, norm, q, k, v, cos, sin, head_dim, eps = args
        torch.manual_seed(6)
        dys = [torch.randn(2, 3, w.shape[0], device=device, dtype=torch.float16) for w in (q, k, v)]
        normed = ckl.rms_norm(x, (16,), norm, eps)
        heads = [ckl.linear(normed, w).unflatten(-1, (-1, head_dim)) for w in (q, k)]
        rotated = ckl.apply_rotary_pos_emb(*heads, cos, sin, unsqueeze_dim=2)
        parts = [y.flatten(2) for y in rotated] + [ckl.linear(normed, v)]
        whole = torch.ops.cutekernellib.decoder_head(*args)[:3]
        for got, wanted in zip(whole, parts):
            torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)
        gradients = [torch.autograd.grad(ys, [x, norm, q, k, v], dys) for ys in (whole, parts)]
        for got, wanted in zip(*gradients):
            torch.testing.assert_close(got, wanted, rtol=2e-2, atol=2e-2)

    def test_every_operator_is_among_the_calls(self):
        forward = {name for name in vars(_registry.direct) if not name.endswith("_backward")}
        self.assertEqual(forward, {name for name, _ in self.calls()})

    def test_opcheck(self):
        """It compares all bytes of what blocks keep, the ones between what lies there, too: torch fills them if it is deterministic."""
        torch.use_deterministic_algorithms(True, warn_only=True)
        self.addCleanup(torch.use_deterministic_algorithms, False)
        for name, args in self.calls():
            with self.subTest(name):
                torch.library.opcheck(getattr(torch.ops.cutekernellib, name).default, args)

    def test_compiled_without_graph_breaks(self):
        w, b = normal(16), normal(16)

        def layer(x):
            return ckl.softmax(ckl.gelu(ckl.layer_norm(x, (16,), w, b)), -1)

        x = leaf(4, 16)
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


if __name__ == "__main__":
    unittest.main()
