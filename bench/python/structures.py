"""structures.py - the models that are measured, with random weights, and what they are fed.

A Llama and a GPT-2 of transformers, a ViT and a ConvNeXt of timm; where transformers is missing, a Llama and a GPT-2 of the same
structure from here.
"""

import torch
import torch.nn.functional as F
from torch import nn


class LlamaRMSNorm(nn.Module):
    def __init__(self, hidden, eps=1e-6):
        super().__init__()
        self.weight, self.variance_epsilon = nn.Parameter(torch.ones(hidden)), eps

    def forward(self, x):
        h = x.float()
        h = h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * h.to(x.dtype)


class GatedMLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(hidden, inner, bias=False), nn.Linear(hidden, inner, bias=False)
        self.down_proj, self.act_fn = nn.Linear(inner, hidden, bias=False), nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


def rotated(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class LlamaLayer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, inner):
        super().__init__()
        self.d = hidden // heads
        self.norm, self.post_norm, self.mlp = LlamaRMSNorm(hidden), LlamaRMSNorm(hidden), GatedMLP(hidden, inner)
        self.q, self.o = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = (nn.Linear(hidden, kv_heads * self.d, bias=False) for _ in "kv")

    def forward(self, x, cos, sin):
        h = self.norm(x)
        q, k, v = (p(h).unflatten(-1, (-1, self.d)).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        x = x + self.o(o.transpose(1, 2).flatten(2))
        return x + self.mlp(self.post_norm(x))


class Llama(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads, kv_heads, inner):
        super().__init__()
        self.embed, self.norm = nn.Embedding(vocabulary, hidden), LlamaRMSNorm(hidden)
        self.layers = nn.ModuleList(LlamaLayer(hidden, heads, kv_heads, inner) for _ in range(layers))
        self.head, self.d = nn.Linear(hidden, vocabulary, bias=False), hidden // heads

    def forward(self, tokens):
        angle = torch.outer(
            torch.arange(tokens.shape[1], device=tokens.device),
            1e4 ** (-torch.arange(0, self.d, 2, device=tokens.device) / self.d),
        )
        angle = torch.cat((angle, angle), -1)
        x = self.embed(tokens)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class GPT2Layer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.attn, self.proj = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.act, self.down = nn.Linear(hidden, 4 * hidden), nn.GELU("tanh"), nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(self.act(self.up(self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self, vocabulary, hidden, layers, heads):
        super().__init__()
        self.embed, self.positions = nn.Embedding(vocabulary, hidden), nn.Embedding(2048, hidden)
        self.layers, self.norm = nn.ModuleList(GPT2Layer(hidden, heads) for _ in range(layers)), nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class Logits(nn.Module):
    """A model of transformers as one from tokens to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


def llama(small):
    hidden, layers, heads, kv_heads, inner = (64, 2, 4, 2, 128) if small else (2048, 8, 16, 8, 5632)
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return "llama", Llama(32000, hidden, layers, heads, kv_heads, inner)
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        intermediate_size=inner,
        attn_implementation="sdpa",
    )
    return "transformers llama", Logits(LlamaForCausalLM(config))


def gpt2(small):
    hidden, layers, heads = (64, 2, 4) if small else (1024, 12, 16)
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
    except ImportError:
        return "gpt2", GPT2(50257, hidden, layers, heads)
    none = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    config = GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads, n_positions=2048, attn_implementation="sdpa", **none)
    return "transformers gpt2", Logits(GPT2LMHeadModel(config))


def images(name):
    def make(small):
        import timm

        return "timm " + name, timm.create_model(name, num_classes=1000)

    return make


MODELS = [llama, gpt2, images("vit_base_patch16_224"), images("convnext_base")]


def batch_for(name, device, small):
    """Inputs and targets."""
    if name.startswith("timm"):
        size = 2 if small else 64
        return torch.randn(size, 3, 224, 224, device=device, dtype=torch.bfloat16), torch.randint(1000, (size,), device=device)
    shape = (2, 16) if small else (4, 1024)
    return torch.randint(32000, shape, device=device), torch.randint(32000, shape, device=device)
