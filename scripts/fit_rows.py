#!/usr/bin/env python3
"""fit_rows.py - fits the cost of kernels that stream rows to sweeps, and judges it.

    scripts/fit_rows.py fit          coefficients by bench/sweeps/rows-*.txt, into src/skeletons/memory_fit.h: 20 s
    scripts/fit_rows.py judge FILE   how good the model's first choice among the configs of sweeps is
    scripts/fit_rows.py check CKL    the library's predictions are those of this file

A sweep is what `ckl bench LINE --configs FILE` prints, behind a line "== LINE". The model is that of memory_cost.c and row_cost.c.
"""
import glob
import math
import os
import random
import re
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "src/skeletons/memory_fit.h")
SM_COUNT, CLOCK, THREADS, REGISTERS, CTAS, FIT_SECONDS = 132, 1980, 2048, 65536, 32, 20
BYTES = {"f32": 4, "f16": 2, "bf16": 2}

# Where fitting begins, and what each coefficient is.
START = {
    "launch_us": (0.6, "before the first byte and behind the last"),
    "memory_bytes": (4.0e6, "a microsecond, of HBM"),
    "latency": (2500.0, "cycles from the first load of a CTA to its last store, without what follows"),
    "barrier": (200.0, "cycles of a reduction in a CTA"),
    "cluster": (1500.0, "cycles of one in a cluster, for each CTA but one"),
    "cta": (100.0, "cycles between the starts of two CTAs of an SM"),
    "warp": (50.0, "cycles of a CTA for each of its warps"),
    "line": (2.0, "cycles of an SM for a line of 128 bytes that an access touches"),
    "element": (4.0, "instructions of a warp for an element of each thread"),
    "registers": (24.0, "of a thread beside its elements"),
}


def overlapped(*parts):
    return sum(x ** 4 for x in parts) ** 0.25


def predicted(p, x):
    """Microseconds: row_cost() of the library."""
    registers = int(min(255, max(32, p["registers"] + x["registers"])))
    resident = max(1, min(CTAS, THREADS // x["threads"], REGISTERS // (x["threads"] * registers)))
    warps, of_sm = x["threads"] / 32, x["ctas"] / min(SM_COUNT, x["ctas"])
    wait = p["latency"] + (p["barrier"] if x["row_threads"] > 32 else 0) + p["cluster"] * (x["cluster"] - 1) + p["warp"] * warps
    instructions = x["elements"] * p["element"]
    memory = x["bytes"] / p["memory_bytes"]
    issue = of_sm * warps * instructions / 4 / CLOCK
    lines = of_sm * warps * x["lines"] * p["line"] / CLOCK
    starts = of_sm * p["cta"] / CLOCK
    latency = (max(1, of_sm / resident) * wait + instructions) / CLOCK
    return p["launch_us"] + overlapped(memory, latency, issue, lines, starts)


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
    element, inputs = BYTES[d["dtype"]], tensors - 1
    held = s["vec"] * s["steps"] + s["ragged"]
    packed = math.ceil(held * element / 4)
    accesses = tensors * (s["steps"] + s["ragged"]) + (0 if op == "softmax" else s["steps"])
    lines = 32 * s["vec"] * element / min(128, s["row_threads"] * s["vec"] * element)
    return {**s, "ctas": ctas, "lines": lines * accesses, "bytes": rows * cols * element * tensors, "elements": held * inputs,
            "registers": held + packed * (inputs - (element == 4))}


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
            weight = (best / us) ** 0.5
            total += weight * math.log(guess / us) ** 2
            count += weight
        total += 2 * (min(picks)[1] / best - 1)
    return total / count


def fit(data, seconds):
    p = {name: value for name, (value, _) in START.items()}
    best, draw, end = loss(p, data), random.Random(1), time.time() + seconds
    while time.time() < end:
        q = dict(p)
        for name in draw.sample(list(p), draw.choice((1, 1, 2, 3))):
            q[name] *= math.exp(draw.gauss(0, draw.choice((0.02, 0.1, 0.4))))
        now = loss(q, data)
        if now < best:
            p, best = q, now
    return p


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


def write(p):
    body = "".join(f"    double {name}; // {meaning}\n" for name, (_, meaning) in START.items())
    values = "".join(f"    .{name} = {value:.6g},\n" for name, value in p.items())
    with open(HEADER, "w") as file:
        file.write(f"""/* memory_fit.h - coefficients of memory_cost(), written by scripts/fit_rows.py from bench/sweeps; never by hand. */
#ifndef CKL_SKELETONS_MEMORY_FIT_H
#define CKL_SKELETONS_MEMORY_FIT_H

typedef struct memory_fit {{
{body}}} memory_fit;

static const memory_fit fit = {{
{values}}};

#endif
""")


def read_header():
    return {name: float(value) for name, value in re.findall(r"\.(\w+) = ([-+.e\d]+),", open(HEADER).read())}


def check(p, ckl, data):
    """`ckl explain` predicts this file's cost of two configs of every sweep."""
    asked = [(line, row) for line, rows in data for row in (rows[0], rows[-1])]
    lines = "".join(f"{line} config='{config}'\n" for line, (_, _, config) in asked)
    answer = subprocess.run([ckl, "explain", "--suite", "-", "--device", "emulator:h200"], input=lines, capture_output=True,
                            text=True, check=True).stdout
    found = re.findall(r"^predicted: ([\d.]+) us", answer, re.M)
    if len(found) != len(asked):
        sys.exit(f"ckl explain shows {len(found)} predictions for {len(asked)} configs")
    for us, (line, (_, x, config)) in zip(found, asked):
        if abs(predicted(p, x) - float(us)) > 0.006:
            sys.exit(f"{line}: the library says {us} us, this file {predicted(p, x):.2f}: {config}")
    print(f"{len(found)} predictions agree")


def main():
    command, *paths = sys.argv[1:] or ["help"]
    given = [path for path in paths if path != "-v" and command == "judge"]
    if command not in ("fit", "judge", "check"):
        sys.exit(__doc__)
    data = prepare(read_sweeps(given or sorted(glob.glob(os.path.join(ROOT, "bench/sweeps/rows-*.txt")))))
    if command == "check":
        return check(read_header(), paths[0], data)
    if command == "fit":
        write(fit(data, FIT_SECONDS))
    judge(read_header(), data)


if __name__ == "__main__":
    main()
