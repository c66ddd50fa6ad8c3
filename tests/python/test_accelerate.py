"""cutekernellib.torch.accelerate(): models with our operators in place of torch's against the same models without."""

import copy
import io
import sys
import unittest
import unittest.mock

from test_torch import device, missing, normal

if not missing:
    import torch
    import torch.nn.functional as F

    import cutekernellib.torch as ckl
    from cutekernellib.torch import _modules, _registry

try:
    import transformers
    from transformers.models.llama import modeling_llama
except ImportError:
    transformers = None
try:
    from timm.layers import GluMlp
    from timm.models.convnext import ConvNeXt
    from timm.models.vision_transformer import VisionTransformer

    timm = True
except ImportError:
    timm = False

wants_transformers = unittest.skipUnless(transformers, "there is no transformers")
wants_timm = unittest.skipUnless(timm, "there is no timm")


def accelerate(model):
    return ckl.accelerate(model, host=device == "cpu", quiet=True)


def gpt2(**options):
    config = {"vocab_size": 20, "n_embd": 32, "n_layer": 1, "n_head": 2, "n_positions": 8, "bos_token_id": 1, "eos_token_id": 1}
    dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**config | dropout | options))


def llama(**options):
    config = {"vocab_size": 20, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config | heads | options))


def vit(depth=1):
    torch.manual_seed(5)
    return VisionTransformer(img_size=32, patch_size=16, embed_dim=32, depth=depth, num_heads=2, num_classes=10)


def convnext(**options):
    return ConvNeXt(depths=(1, 1, 1, 1), dims=(16, 16, 16, 16), num_classes=10, **options)


class Block(torch.nn.Module if not missing else object):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(16)
        self.up, self.act, self.down = torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 16)
        self.frozen = torch.nn.BatchNorm2d(3)

    def forward(self, x):
        return self.down(self.act(self.up(self.norm(x)))) + F.softmax(x, -1)


class OwnNorm(torch.nn.Module if not missing else object):
    """Of another model's own class, whose weights are distances from 1."""

    def __init__(self, n):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.rand(n)), 1e-6

    def forward(self, x):
        return F.normalize(x, dim=-1) * (1 + self.weight)


class Adapted(torch.nn.Module if not missing else object):
    """As adapters have it: a layer, whose weights it shows as its own, and a sum with another one."""

    bias = None

    def __init__(self, inputs, outputs):
        super().__init__()
        self.base, self.adapter = (torch.nn.Linear(inputs, outputs, bias=False) for _ in range(2))

    @property
    def weight(self):
        return self.base.weight

    def forward(self, x):
        return self.base(x) + self.adapter(x)


class GatedMLP(torch.nn.Module if not missing else object):
    def __init__(self, layer):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = layer(16, 24), layer(16, 24), layer(24, 16)
        self.act_fn = torch.nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def as_on_a_gpu():
    """A context in which tensors of the host, too, go as calls do that neither a trace nor anything else wants to see."""
    def way(name, *tensors, **_):
        if torch.compiler.is_compiling():
            return getattr(_registry.registered, name)
        needs_gradient = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)
        return getattr(_registry.differentiable if needs_gradient else _registry.direct, name)

    return unittest.mock.patch.object(_registry, "way", way)


def names_of_calls(names):
    """A context in which the operators called are added to a list."""
    way = _registry.way
    return unittest.mock.patch.object(
        _registry, "way", lambda name, *tensors, **options: names.append(name) or way(name, *tensors, **options)
    )


@unittest.skipIf(missing, missing)
class Accelerate(unittest.TestCase):
    def agrees(self, model, loss_of, *swapped):
        """Losses and gradients with and without, and traced as one graph; the classes and functions that were replaced."""
        model, results = model.to(device, torch.bfloat16), []
        for accelerated in (False, True):
            report = accelerate(model) if accelerated else None
            model.zero_grad()
            with as_on_a_gpu(), torch.no_grad():
                alone = loss_of(model)
            with as_on_a_gpu():
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

    @wants_transformers
    def test_models_of_transformers(self):
        tokens = torch.randint(20, (1, 5), device=device)

        def loss_of(model):
            return F.cross_entropy(model(input_ids=tokens, use_cache=False).logits[0], tokens[0])

        torch.manual_seed(5)
        rotary = "transformers.models.llama.modeling_llama.apply_rotary_pos_emb"
        swapped = ("Linear", "LlamaRMSNorm", "LlamaMLP", "LlamaDecoderLayer", rotary)  # of the vocabulary
        self.agrees(llama(num_attention_heads=2, num_key_value_heads=1), loss_of, *swapped)
        self.agrees(gpt2(), loss_of, "Linear", "LayerNorm", "GPT2MLP", "GPT2Block")

    @wants_timm
    def test_models_of_timm(self):
        torch.manual_seed(5)
        x, target = normal(2, 3, 32, 32, dtype=torch.bfloat16), torch.tensor([3, 7], device=device)

        def loss_of(model):
            return F.cross_entropy(model(x), target)

        self.agrees(vit(), loss_of, "Linear", "Block", "Mlp", "PatchEmbed")
        self.agrees(convnext(ls_init_value=0.5), loss_of, "Conv2d", "ConvNeXtBlock", "Mlp")

    def test_blocks_are_taken_whole(self):
        """By the models that are installed: what a block is called with must be what its replacement looks for."""
        whole = {"block", "conv_block", "decoder_layer"}
        hooked = {
            "gpt2": "transformer.h.0.attn",
            "llama": "model.layers.0.self_attn",
            "vit": "blocks.0.attn",
            "convnext": "stages.1.blocks.0.norm",
        }
        for name, model, x in self.small_models():
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

    @wants_timm
    def test_blocks_that_change_behind_their_first_call(self):
        """What was found out about a block is asked again: of other modules in it, other types, and copies."""
        model, x, names = vit().bfloat16().eval().to(device), normal(1, 5, 32, dtype=torch.bfloat16), []
        report = ckl.accelerate(model, host=True, quiet=True)
        with names_of_calls(names), torch.no_grad():
            block = model.blocks[0]
            before, other = block(x), copy.deepcopy(block)
            other.norm1.weight.mul_(2)
            wanted = other(x)
            self.assertFalse(torch.equal(wanted, before))
            copied = copy.copy(block)  # of its own class, and with the members of the original
            copied.__class__ = type(block)
            vars(copied).update(vars(block), _modules=other._modules)
            self.assertTrue(torch.equal(copied(x), wanted))
            block.norm1 = other.norm1
            self.assertTrue(torch.equal(block(x), wanted))
            self.assertEqual(names, ["block"] * 4)
            self.assertEqual(block.half()(x.half()).dtype, torch.float16)
            self.assertEqual(names, ["block"] * 5)
            block.float()(x.float())
            self.assertNotIn("block", names[5:])
            block.bfloat16().ls1 = torch.nn.Softmax(-1)  # so it is not known what the block is, until that goes
            block(x), block(x)
            self.assertNotIn("block", names[5:])
            block.ls1 = torch.nn.Identity()
            self.assertTrue(torch.equal(block(x), wanted))
            self.assertEqual(names[-1], "block")
        report.undo()
        self.assertNotIn("ckl_whole", vars(block))

    def test_blocks_without_a_kernel_for_the_gradient_go_by_parts(self):
        """On other GPUs than Hopper: attention's is torch's then. ConvNeXt's have no attention."""
        for name, model, x in self.small_models():
            names, report = [], ckl.accelerate(model, host=True, quiet=True)
            with names_of_calls(names), unittest.mock.patch.object(_modules, "has_gradient", lambda *_: False):
                with torch.no_grad():
                    model(x)
                alone = len([n for n in names if n in ("block", "conv_block", "decoder_layer")])
                model(x)
            taken = len([n for n in names if n in ("block", "conv_block", "decoder_layer")])
            self.assertEqual((alone, taken), (4, 8) if name == "convnext" else (2, 2), name)
            report.undo()

    def small_models(self):
        """Of two blocks, and inputs."""
        if transformers:
            models = ("gpt2", gpt2(n_layer=2, use_cache=False)), ("llama", llama(num_hidden_layers=2, use_cache=False))
            for name, model in models:
                yield name, model.to(device, torch.bfloat16), torch.randint(20, (2, 5), device=device)
        if timm:
            for name, model in ("vit", vit(2)), ("convnext", convnext()):
                yield name, model.to(device, torch.bfloat16), normal(2, 3, 32, 32, dtype=torch.bfloat16)

    @wants_transformers
    def test_generates_the_same_tokens(self):
        """With a cache, of prompts with and without padding; attention of a prompt is ours, that of a token torch's.

        Where two tokens are almost as likely either may come; what comes behind is not compared.
        """
        torch.manual_seed(5)
        ends = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "initializer_range": 0.5}
        tokens = torch.randint(2, 20, (2, 5), device=device)
        padding = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], device=device)
        for made, tail in (llama(**ends), "decoder_tail"), (gpt2(n_positions=16, **ends), "block_tail"):
            model = made.to(device, torch.bfloat16).eval()
            for mask in (torch.ones_like(tokens), padding):
                options = {"attention_mask": mask, "max_new_tokens": 4, "do_sample": False, "use_cache": True}
                options |= {"output_logits": True, "return_dict_in_generate": True}
                wanted, names = model.generate(tokens, **options), []
                report = accelerate(model)
                with names_of_calls(names):
                    got = model.generate(tokens, **options)
                report.undo()
                same = torch.ones(len(tokens), dtype=torch.bool, device=device)  # so far
                for i, (logits, expected) in enumerate(zip(got.logits, wanted.logits)):
                    if not same.any():
                        break
                    error = (logits - expected)[same].abs().max() / expected[same].abs().max()
                    self.assertLess(error, 0.05, f"{type(model).__name__}, token {i}")
                    same &= got.sequences[:, 5 + i] == wanted.sequences[:, 5 + i]
                self.assertEqual(sum("attention" in name for name in names), 1, f"{type(model).__name__}: {names}")
                self.assertEqual(names.count(tail), 4)  # the prompt's, and tokens'

    @wants_transformers
    def test_trained_with_padding(self):
        """Attention is the model's own then, between two parts of a layer."""
        torch.manual_seed(5)
        tokens, mask = torch.randint(20, (2, 5), device=device), torch.ones(2, 5, dtype=torch.int64, device=device)
        mask[0, 3:] = 0

        def loss_of(model):
            logits = model(input_ids=tokens, attention_mask=mask, use_cache=False).logits
            return F.cross_entropy(logits[mask > 0].float(), tokens[mask > 0])

        for model, block, parts in (
            (gpt2(), "GPT2Block", ["block_tail"]),
            (llama(), "LlamaDecoderLayer", ["decoder_head", "decoder_tail"]),
        ):
            self.agrees(model, loss_of, block)
            report, names = ckl.accelerate(model, host=True, quiet=True), []
            with names_of_calls(names):
                loss_of(model)
            report.undo()
            self.assertEqual([name for name in names if name in ("block", "block_tail") or "decoder" in name], parts)

    @wants_transformers
    def test_counted_tokens_want_no_mask(self):
        model, made = llama().model.to(device, torch.bfloat16), []
        original, tokens = modeling_llama.create_causal_mask, torch.randint(20, (1, 5), device=device)

        def create_causal_mask(*args, **options):
            made.append(options)
            return original(*args, **options)

        with unittest.mock.patch.object(modeling_llama, "create_causal_mask", create_causal_mask):
            report = accelerate(model)
            model(tokens, use_cache=False)
            self.assertEqual(len(made), 0)
            model(tokens, position_ids=torch.tensor([[0, 1, 2, 0, 1]], device=device), use_cache=False)
            self.assertEqual(len(made), 1)
            report.undo()

    @wants_transformers
    def test_packed_sequences_stay_apart(self):
        model, tokens = gpt2().to(device, torch.bfloat16).eval(), torch.randint(20, (1, 6), device=device)
        positions = torch.tensor([[0, 1, 2, 0, 1, 2]], device=device)
        logits = []
        for accelerated in (False, True):
            report = accelerate(model) if accelerated else None
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
            report = accelerate(model) if accelerated else None
            with torch.autocast(device, torch.bfloat16, enabled=autocast):
                results.append(model(x))
            results[-1].float().square().sum().backward()
        report.undo()
        torch.testing.assert_close(*reversed(results), rtol=5e-2, atol=5e-2)
        return results[1]

    def test_classes_of_the_same_name(self):
        """Are not taken for those of torch: what they do is not known."""
        x = normal(5, 16, dtype=torch.bfloat16)
        for own, name in (OwnNorm, "LayerNorm"), (OwnNorm, "RMSNorm"), (Adapted, "Linear"):
            made = type(name, (own,), {})
            model = GatedMLP(made) if own is Adapted else torch.nn.Sequential(made(16))
            self.agrees_on(model.bfloat16(), x)

    def test_norms_of_several_modes(self):
        norms = torch.nn.RMSNorm((3, 8)), torch.nn.LayerNorm((3, 8)), torch.nn.RMSNorm(8, elementwise_affine=False)
        self.agrees_on(torch.nn.Sequential(*norms), normal(4, 3, 8))

    def test_weights_made_anew_for_every_call(self):
        """They are no parameters of the module, as those of pruned ones are not."""

        class Doubled(torch.nn.Module):
            def forward(self, weight):
                return 2 * weight

        x, norm = normal(4, 16).float(), torch.nn.LayerNorm(16).to(device)
        wanted = 2 * norm(x)
        self.addCleanup(accelerate(norm).undo)
        torch.nn.utils.parametrize.register_parametrization(norm, "weight", Doubled())
        torch.testing.assert_close(norm(x), wanted, rtol=1e-5, atol=1e-5)

    def test_functions_that_a_call_goes_through(self):
        """Of a module of torch's own 11 by the same count; each costs some 0.1 us, which nothing else watches."""
        norm, x, names = torch.nn.LayerNorm(16).to(device), torch.zeros(2, 16, device=device), []
        report = accelerate(norm)
        self.addCleanup(report.undo)

        def note(frame, event, arg):
            names.extend({"call": [frame.f_code.co_name], "c_call": [getattr(arg, "__name__", "")]}.get(event, []))

        with torch.no_grad(), as_on_a_gpu():
            norm(x)
            sys.setprofile(note)
            norm(x)
            sys.setprofile(None)
        self.assertLessEqual(len(names), 20, names)

    @wants_transformers
    def test_a_part_of_a_head_rotates(self):
        sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32, "vocab_size": 20}
        sizes |= {"hidden_dropout": 0.0, "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 1}

        class States(transformers.GPTNeoXModel):
            def forward(self, tokens):
                return super().forward(tokens, use_cache=False)[0]

        model = States(transformers.GPTNeoXConfig(**sizes))
        self.agrees_on(model.bfloat16(), torch.randint(20, (2, 5), device=device))

    @wants_timm
    def test_a_gate_between_two_layers(self):
        self.agrees_on(
            GluMlp(16, 32, act_layer=torch.nn.SiLU, gate_last=False).bfloat16(), normal(2, 5, 16, dtype=torch.bfloat16)
        )

    def test_transforms(self):
        """Of torch.func, which want torch's own functions: a gradient for each input, and derivatives forward."""
        model, x, results = torch.nn.Sequential(torch.nn.LayerNorm(8), torch.nn.GELU()).to(device), normal(3, 2, 8), []
        parameters = {name: p.detach() for name, p in model.named_parameters()}
        squared = torch.func.grad(lambda p, x: torch.func.functional_call(model, p, (x,)).square().sum())
        for accelerated in (False, True):
            report = accelerate(model) if accelerated else None
            each = torch.func.vmap(squared, (None, 0))(parameters, x)["0.weight"]
            results.append((each, *torch.func.jvp(model, (x,), (x,))))
        report.undo()
        torch.testing.assert_close(*results)

    def test_copied_and_pickled(self):
        """A copy is accelerated as the model is; what is loaded is the model as it was."""
        model, x = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.GELU()).to(device), normal(3, 16)
        wanted = model(x)
        report = accelerate(model)
        copied, file = copy.deepcopy(model), io.BytesIO()
        torch.save(model, file)
        self.assertEqual([type(m) for m in copied], [type(m) for m in model])
        torch.testing.assert_close(copied(x), wanted)
        report.undo()
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        self.assertEqual([type(m) for m in loaded], [torch.nn.LayerNorm, torch.nn.GELU])
        torch.testing.assert_close(loaded(x), wanted, rtol=0, atol=0)

    @wants_timm
    def test_autocast(self):
        self.agrees_on(vit(), normal(2, 3, 32, 32), autocast=True)

    def test_channels_last(self):
        """Stays so; torch's own group norm of a GPU gives images in the order of their modes."""
        torch.manual_seed(5)
        conv = torch.nn.Conv2d(8, 8, 3, padding=1)
        norms = torch.nn.GroupNorm(2, 8), torch.nn.GroupNorm(4, 8, affine=False)
        images = torch.nn.Sequential(conv, *norms, torch.nn.SiLU(), torch.nn.Conv2d(8, 8, 2, stride=2))
        x = normal(2, 8, 6, 4, dtype=torch.bfloat16)
        y = self.agrees_on(images.bfloat16(), x.to(memory_format=torch.channels_last))
        self.assertTrue(y.is_contiguous(memory_format=torch.channels_last))

    @wants_timm
    def test_empty_batch(self):
        """For which torch 2.11's own attention of a GPU gives None, so there is nothing to compare with."""
        model = vit().to(device, torch.bfloat16)
        report = accelerate(model)
        y = model(normal(0, 3, 32, 32, dtype=torch.bfloat16))
        y.sum().backward()
        report.undo()
        self.assertEqual((y.shape, y.dtype), ((0, 10), torch.bfloat16))
        for name, p in model.named_parameters():
            self.assertFalse(p.grad.any(), name)

    def test_gradient_of_attention(self):
        q = normal(1, 2, 4, 16, dtype=torch.float16).requires_grad_()
        report = accelerate(torch.nn.Module())
        mask = torch.ones(4, 4, dtype=torch.bool, device=device)
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask).sum().backward()
        report.undo()
        self.assertTrue(q.grad.isfinite().all())

    def test_broadcast_attention(self):
        q, k = (normal(b, 2, 4, 16, dtype=torch.float16) for b in (2, 1))
        wanted = F.scaled_dot_product_attention(q, k, k)
        report = accelerate(torch.nn.Module())
        got = F.scaled_dot_product_attention(q, k, k)
        report.undo()
        torch.testing.assert_close(got, wanted, rtol=1e-2, atol=1e-2)

    def test_checkpointed_attention(self):
        q = normal(1, 2, 4, 16, dtype=torch.float16).requires_grad_()
        o = torch.utils.checkpoint.checkpoint(ckl.scaled_dot_product_attention, q, q, q, use_reentrant=False)
        o.sum().backward()
        self.assertTrue(q.grad.isfinite().all())

    def test_loss(self):
        """That of torch.nn, too, which passes what it has not."""
        x, target, names = normal(6, 16), torch.arange(6, device=device), []
        for loss in (
            torch.nn.CrossEntropyLoss(ignore_index=2, reduction="sum"),
            torch.nn.CrossEntropyLoss(normal(16).abs(), label_smoothing=0.1),
        ):
            wanted = loss(x, target)
            report = accelerate(torch.nn.Module())
            with names_of_calls(names):
                got = loss(x, target)
            report.undo()
            torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
        self.assertEqual(names, ["cross_entropy"] * 2)

    def test_same_losses_and_undo(self):
        torch.manual_seed(3)
        models, losses = [Block().to(device), Block().to(device)], ([], [])
        models[1].load_state_dict(models[0].state_dict())
        x, target = normal(6, 16), torch.arange(6, device=device)
        softmax = F.softmax
        for model, seen in zip(models, losses):
            report = accelerate(model) if seen is losses[1] else None
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
