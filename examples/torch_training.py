"""torch_training.py - a small model trained with torch's kernels and, accelerated, with ours: the same losses."""

import warnings

import torch
from torch import nn

import cutekernellib as ckl

warnings.simplefilter("ignore", ckl.EmulatorWarning)
device = "cuda" if torch.cuda.is_available() else "cpu"


def train(accelerated, steps=4):
    torch.manual_seed(1)
    model = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 10)).to(device)
    if accelerated:
        report = ckl.torch.accelerate(model, host=device == "cpu")  # without a GPU on the emulated one
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    x, target = torch.randn(16, 32, device=device), torch.randint(10, (16,), device=device)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    if accelerated:
        report.undo()
    return losses


torchs, ours = train(False), train(True)
print(torchs, ours)
assert max(abs(a - b) for a, b in zip(torchs, ours)) < 1e-3
