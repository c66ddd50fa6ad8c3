"""structures.py - the models that are measured, with random weights, and what they are fed: a Llama and a GPT-2 of transformers, a ViT
and a ConvNeXt of timm."""

import torch
from torch import nn


class Logits(nn.Module):
    """A model of transformers as one from tokens to logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


def llama(small):
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, layers, heads, kv_heads, inner = (64, 2, 4, 2, 128) if small else (2048, 8, 16, 8, 5632)
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
    from transformers import GPT2Config, GPT2LMHeadModel

    hidden, layers, heads = (64, 2, 4) if small else (1024, 12, 16)
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
