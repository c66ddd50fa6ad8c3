"""cutekernellib.torch as torch sees it: gradients by each way, strides, blocks, mistakes, opcheck, compiled and captured graphs."""

import unittest

from test_torch import device, leaf, missing, normal

if not missing:
    import torch
    import torch.nn.functional as F

    import cutekernellib
    import cutekernellib.torch as ckl
    from cutekernellib.torch import _registry


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
