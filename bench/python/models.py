#!/usr/bin/env python3
"""models.py [--json FILE] [--document FILE] - models with and without cutekernellib.torch.accelerate(): losses and times on a GPU.

Forward without gradient, and training steps; torch's eager mode, torch.compile, CUDA graphs, and these of an accelerated model.
together.py runs all models at once, and decode.py.
"""

import argparse
import collections
import gc
import itertools
import json
import signal
import statistics
import time

import kernels
import results
import torch
import torch.nn.functional as F
from structures import MODELS, batch_for
from torch import nn

import cutekernellib.torch as ckl

WAYS = ["eager,accelerated,compiled,accelerated compiled,graphs,accelerated graphs"]
PROTOCOL = (
    "bf16, random weights; CUDA events around a call, of ways in turn, one GPU and nothing else on it, no cubins kept, clocks not "
    "locked, three calls before; medians of rounds. A step is forward, loss and backward, without the optimizer"
)


def loss_of(model, batch):
    x, target = batch
    return F.cross_entropy(model(x).flatten(0, -2), target.flatten())


def trained(model, batch, steps):
    """Losses of some steps from the weights that it has, which it then has again."""
    state = {k: v.clone() for k, v in model.state_dict().items()}
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 5))
    model.load_state_dict(state)
    return losses


def forward(model, batch):
    with torch.no_grad():
        return model(batch[0])


def step(model, batch):
    model.zero_grad(set_to_none=True)
    loss_of(model, batch).backward()


FUNCTIONS = {"forward": forward, "step": step}


def timed(run):
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in "se")
    start.record()
    run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end)


class Graphed(nn.Module):
    """A model whose forward and backward pass are CUDA graphs."""

    def __init__(self, model, batch):
        super().__init__()
        self.model = model
        torch.cuda.make_graphed_callables(self, (batch[0],))

    def forward(self, x):
        return self.model(x)


def captured(model, batch):
    """The forward pass without gradient as a CUDA graph."""
    forward(model, batch)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        forward(model, batch)
    return graph.replay


class Way:
    """A way to run a model, by name; while it is used its replacements are in place."""

    def __init__(self, model, name, function, batch):
        self.model, self.accelerated = model, name.startswith("accelerated")
        with self:
            if name.endswith("graphs") and function is forward:
                self.run = captured(model, batch)
                return
            if name.endswith("graphs"):
                model = Graphed(model, batch)
            elif name.endswith("compiled"):
                model = torch.compile(model)
            self.run = lambda: function(model, batch)
            for _ in range(3):
                self.run()

    def __enter__(self):
        self.report = ckl.accelerate(self.model, quiet=True) if self.accelerated else None
        return self

    def __exit__(self, *_):
        if self.report:
            self.report.undo()


class OutOfTime(BaseException):
    """Nothing between catches it."""


def _out_of_time(*_):
    raise OutOfTime


def ways_of(model, batch, names, options, row):
    """All that are ready in time, by (forward or step, name)."""
    ways = {}
    signal.signal(signal.SIGALRM, _out_of_time)
    for what, name in itertools.product(options.functions, names):
        began = time.monotonic()
        try:
            left = min(max(options.turn.deadline - began, 1e-3), 3600)
            signal.setitimer(signal.ITIMER_REAL, left, 3)  # again, should anything swallow the first
            ways[what, name] = Way(model, name, FUNCTIONS[what], batch)
        except (Exception, OutOfTime) as why:  # of torch.compile, or of a capture
            row.setdefault("not measured", {})[f"{what}, {name}"] = f"{type(why).__name__}: {why}"[:300]
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(f"{row['model']}, {what}, {name}: prepared in {time.monotonic() - began:.1f} s", flush=True)
    return ways


def timed_in_turn(ways, rounds):
    """Milliseconds of each, medians of rounds."""
    times = {key: [] for key in ways}
    for _ in range(rounds):
        for key, way in ways.items():
            with way:
                times[key].append(timed(way.run))
    return {key: round(statistics.median(t), 3) for key, t in times.items() if t}


def say(row, options):
    """At once: what comes later may fail."""
    print(json.dumps(row), flush=True)
    if options.json:
        results.save(options.json, PROTOCOL, [row], "model")


def measure(model, batch, names, options, row):
    """Adds milliseconds of ways, taken in turn, to a row."""
    gc.collect()
    torch.cuda.empty_cache()  # of the ways before
    ways = ways_of(model, batch, names, options, row)
    with options.turn.alone():
        began = time.monotonic()
        for (what, name), milliseconds in timed_in_turn(ways, options.rounds).items():
            row.setdefault(what, {})[name] = milliseconds
        print(f"{row['model']}: timed alone for {time.monotonic() - began:.1f} s", flush=True)
        say(row, options)
        for (what, name), way in ways.items() if options.kernels else ():
            with way:
                kernels.write(options.kernels, f"{row['model']}, {what}, {name}", way.run)


COLUMNS = {  # what is in a column: milliseconds of one way, or a ratio of two
    "eager": "eager",
    "torch.compile": "compiled",
    "accelerated": "accelerated",
    "of eager": ("eager", "accelerated"),
    "of torch.compile": ("compiled", "accelerated"),
    "accelerated, compiled": "accelerated compiled",
    "graphs": "graphs",
    "accelerated graphs": "accelerated graphs",
    "of graphs": ("graphs", "accelerated graphs"),
}


def cell(times, of):
    if isinstance(of, tuple):
        return f"{times[of[0]] / times[of[1]]:.2f}" if set(of) <= set(times) else ""
    return f"{times[of]:.2f}" if of in times else ""


def table(rows):
    """Rows of results as docs/python.md has them, without columns that nothing was measured for."""
    cells = [["model", "", *COLUMNS]]
    for row in rows:
        for what, name in (("forward", "forward"), ("step", "training step")):
            cells.append([row["model"], name, *(cell(row.get(what, {}), of) for of in COLUMNS.values())])
    columns = [column for i, column in enumerate(zip(*cells)) if i < 2 or any(column[1:])]
    lines = [results.markdown(list(zip(*columns))), "", "Losses of the first steps, eager and accelerated:", ""]
    for row in rows:
        losses = (" ".join(f"{x:.4f}" for x in row.get(mode + " losses", [])) for mode in ("eager", "accelerated"))
        lines.append(f"- {row['model']}: {' and '.join(losses)}")
    return "\n".join(lines)


def trained_both_ways(model, batch, steps, device):
    """Losses, eager and accelerated, and what was replaced and what not."""
    losses = {"eager losses": trained(model, batch, steps)}
    report = ckl.accelerate(model, host=device == "cpu", quiet=True)
    losses["accelerated losses"] = trained(model, batch, steps)
    print(report, flush=True)
    report.undo()
    counted = {"swapped": report.swapped, "left": report.left}
    return losses | {name: dict(collections.Counter(of.values())) for name, of in counted.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", help="a file of results, to be made or added to")
    parser.add_argument("--models", default="0123", help="which of the four, by number")
    parser.add_argument(
        "--ways", nargs="+", default=WAYS, help="names with commas, which are taken in turn; one set after the other"
    )
    parser.add_argument("--functions", nargs="+", default=list(FUNCTIONS), choices=FUNCTIONS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--losses", type=int, default=4, help="of so many steps; 0: none")
    results.add_turn(parser)
    parser.add_argument("--kernels", help="a file, to be added to: the kernels of each way")
    parser.add_argument("--small", action="store_true", help="for a try")
    parser.add_argument("--document", help="measure nothing: write the table of --json between the marks of this file")
    options = parser.parse_args()
    if options.document:
        return results.put(options.document, "measured", table(results.read(options.json)))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for make in (MODELS[int(i)] for i in options.models):
        torch.manual_seed(1)
        try:
            with torch.device(device):
                name, model = make(options.small)
        except ImportError as why:
            print(f"skipped: {why}")
            continue
        model = model.to(device, torch.bfloat16)
        batch, row = batch_for(name, device, options.small), {"model": name}
        if options.losses:
            row |= trained_both_ways(model, batch, options.losses, device)
            say(row, options)
        for names in options.ways if device == "cuda" else ():
            measure(model, batch, names.split(","), options, row)


if __name__ == "__main__":
    main()
