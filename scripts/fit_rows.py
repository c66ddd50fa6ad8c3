#!/usr/bin/env python3
"""fit_rows.py - fits the cost of kernels that hold rows in registers to sweeps, and judges it.

    scripts/fit_rows.py fit [--seconds S]    coefficients by bench/sweeps/rows-*.txt, into src/skeletons/row_fit.h
    scripts/fit_rows.py judge FILE...        how good the model's first choice is on sweeps

A sweep is what `ckl bench LINE --configs FILE` prints, behind a line "== LINE". The model is that of memory_cost.c and row_cost.c.
"""
import glob
import math
import os
import random
import re
import shlex
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "src/skeletons/row_fit.h")
SM_COUNT, THREADS, REGISTERS, CTAS = 132, 2048, 65536, 32
COPY, READ = 4.2e6, 4.5e6  # bytes a microsecond
BYTES = {"f32": 4, "f16": 2, "bf16": 2}

START = {
    "launch_us": (1.5, "before the first byte and behind the last"),
    "clock": (1755.0, "cycles of a microsecond; not fitted"),
    "memory": (0.95, "of the rate that the limits promise"),
    "latency": (900.0, "cycles from the first load of a CTA to its last store, without what follows"),
    "shuffle": (30.0, "cycles of each step of a reduction in a warp"),
    "barrier": (100.0, "cycles of a reduction in a CTA, beside those"),
    "cluster": (1500.0, "cycles of one in a cluster"),
    "access": (12.0, "instructions of a warp for an access"),
    "element": (6.0, "instructions for an element"),
    "start": (60.0, "instructions of a warp beside them"),
    "base": (24.0, "registers of a thread beside its elements"),
}
FIXED = ("clock",)


def overlapped(*parts):
    return sum(x ** 4 for x in parts) ** 0.25


def predicted(p, x):
    resident = min(CTAS, THREADS // x["threads"],
                   REGISTERS // int(x["threads"] * min(255, max(32, p["base"] + x["registers"]))))
    resident = max(resident, 1)
    warps = x["threads"] / 32
    instructions = warps * (p["start"] + x["accesses"] * p["access"] + x["elements"] * p["element"])
    life = p["latency"] + p["shuffle"] * x["shuffles"] + (p["barrier"] if x["row_threads"] > 32 else 0) \
        + (p["cluster"] if x["cluster"] > 1 else 0)
    turns = x["ctas"] / (SM_COUNT * resident)
    turns = max(1, turns)
    sms = min(SM_COUNT, x["ctas"])
    issue = x["ctas"] * instructions / sms / 4 / p["clock"]
    latency = (turns * life + instructions / 4) / p["clock"]
    memory = x["bytes"] / (COPY * p["memory"])
    return p["launch_us"] + overlapped(memory, latency, issue)


def fields(words):
    return dict(word.split("=", 1) for word in words if "=" in word)


def features(line, config):
    op, *words = line.split()
    d = {"dtype": "f32", "direction": "forward", **fields(words)}
    c = fields(config.split())
    if op == "softmax":
        rows, cols = map(int, d["shape"].split("x"))
    else:
        rows, cols = int(d["rows"]), int(d["cols"])
    s = {k: int(c[k]) for k in ("threads", "row_threads", "cluster", "vec", "steps", "ragged")}
    tensors = 3 if d["direction"] == "backward" else 2
    ctas = -(-rows // (s["threads"] // s["row_threads"])) * s["cluster"]
    held = s["vec"] * s["steps"] + s["ragged"]
    packed = held * BYTES[d["dtype"]] / 4
    return {**s, "ctas": ctas, "bytes": rows * cols * BYTES[d["dtype"]] * tensors,
            "accesses": tensors * (s["steps"] + s["ragged"]) + (s["steps"] if op != "softmax" else 0),
            "elements": held * (tensors - 1), "shuffles": math.log2(min(32, s["row_threads"])),
            "registers": held + (packed if BYTES[d["dtype"]] < 4 else 0) + (packed if tensors == 3 else 0)}


def read_sweeps(paths):
    """[(line, [(microseconds, config)])]"""
    sweeps = []
    for path in paths:
        for text in open(path):
            if text.startswith("== "):
                sweeps.append((text[3:].strip(), []))
                continue
            found = re.match(r"\s*([\d.]+)\s+[\d.]+\s+[\d.]+\s+\[.*?\]\s+(\w+ threads=.*)", text)
            if found:
                sweeps[-1][1].append((float(found[1]), found[2].strip()))
    return [s for s in sweeps if s[1]]


def prepare(sweeps):
    return [(line, [(us, features(line, config), config) for us, config in rows]) for line, rows in sweeps]


def loss(p, data):
    """Squared logarithms of predicted / measured, near the best of a line most, and what the choice loses."""
    total, count = 0, 0
    for _, rows in data:
        best = min(us for us, _, _ in rows)
        picks = []
        for us, x, _ in rows:
            guess = predicted(p, x)
            picks.append((guess, us))
            weight = (best / us) ** 2
            total += weight * math.log(guess / us) ** 2
            count += weight
        total += 2 * (min(picks)[1] / best - 1)
    return total / count


def fit(data, seconds):
    p = {name: value for name, (value, _) in START.items()}
    best, draw, end = loss(p, data), random.Random(1), time.time() + seconds
    while time.time() < end:
        q = dict(p)
        for name in draw.sample([n for n in p if n not in FIXED], draw.choice((1, 1, 2, 3))):
            q[name] *= math.exp(draw.gauss(0, draw.choice((0.02, 0.1, 0.4))))
        q["memory"] = min(q["memory"], 1.08)
        now = loss(q, data)
        if now < best:
            p, best = q, now
    return p, best


def judge(p, data):
    regrets = []
    for line, rows in data:
        best = min(us for us, _, _ in rows)
        pick = min(rows, key=lambda r: predicted(p, r[1]))
        regrets.append(pick[0] / best)
        print(f"{pick[0] / best:6.3f} {best:9.2f} us, predicted {predicted(p, pick[1]):9.2f}  {line}: {pick[2]}")
        if "-v" in sys.argv:
            for us, x, config in sorted(rows, key=lambda r: r[0]):
                print(f"      {us:9.2f} {predicted(p, x):9.2f} {config}")
    print(f"mean {sum(regrets) / len(regrets):.4f}, worst {max(regrets):.4f}")


if __name__ == "__main__":
    data = prepare(read_sweeps([a for a in sys.argv[2:] if os.path.exists(a)] or glob.glob(os.path.join(ROOT, "bench/sweeps/rows-*.txt"))))
    p, now = fit(data, 20)
    print(now, {k: round(v, 4) for k, v in p.items()})
    judge(p, data)
