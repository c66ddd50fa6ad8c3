#!/usr/bin/env python3
"""fit_rows.py - fits the cost of kernels that stream rows to sweeps, and judges it.

    scripts/fit_rows.py fit          coefficients of rows by MEASURED, into src/skeletons/memory_fit.h: 40 s
    scripts/fit_rows.py judge FILE   how good the model's first choice among the configs of sweeps is
    scripts/fit_rows.py check CKL    the library's predictions are those of this file

A sweep is what `ckl bench LINE --configs FILE` prints, behind a line "== LINE", or of `ckl bench --json`. The model is that of memory_cost.c
and row_cost.c.
"""
import collections
import math
import os
import random
import re
import subprocess
import sys
import time

from judge_costs import rows_of

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "src/skeletons/memory_fit.h")
SM_COUNT, CLOCK, THREADS, REGISTERS, CTAS, REGISTERS_MAX, FIT_SECONDS = 132, 1980, 2048, 65536, 32, 255, 40
NORM_US = 0.2 # of norm_cost.c
ROWS = (("softmax", "row"), ("layernorm", "forward"), ("rmsnorm", "forward"))
MEASURED = ("sweeps/rows-first.txt", "results/softmax.json", "results/norm.json", "results/steps/costs-disagreements.json")
BYTES = {"f32": 4, "f16": 2, "bf16": 2}
GONE = re.compile(r" (?:(?:hold_gamma|shifted)=0|prefetch=[01]|column_threads=\d+|residence=reload)") # in configs measured; ckl has none of them any more

# Where fitting begins, and what each coefficient is.
START = {
    "launch_us": (1.0, "before the first byte and behind the last"),
    "memory_bytes": (4.0e6, "a microsecond, of HBM"),
    "latency": (2500.0, "cycles from the first load of a CTA to its last store, without what follows"),
    "barrier": (200.0, "cycles of a reduction in a CTA"),
    "cluster": (1500.0, "cycles of one in a cluster, for each CTA but one"),
    "cta": (100.0, "cycles between the starts of two CTAs of an SM"),
    "warp": (50.0, "cycles of a CTA for each of its warps"),
    "line": (2.0, "cycles of an SM for a line of 128 bytes that an access touches"),
    "element": (4.0, "instructions of a warp for an element of each thread"),
    "registers": (24.0, "of a thread beside its elements"),
    "row_wait": (0.0, "cycles, more or less than that latency, of rows in registers"),
    "row_barrier": (200.0, "cycles of a reduction of theirs in a CTA"),
    "serial": (4.0, "cycles that a CTA takes for an element of each thread, whoever else is there"),
    "spill": (8.0, "cycles of a CTA for each register of a thread that it has not"),
}
# Of rows alone: the others are of permute's kernels, too, whose choices were measured with them.
FITTED = ("cluster", "row_wait", "row_barrier", "serial", "spill")


def overlapped(*parts):
    return sum(x ** 4 for x in parts) ** 0.25


def predicted(p, x):
    """Microseconds: row_cost() of the library."""
    most = REGISTERS // x["threads"] // x["ctas_per_sm"] if x["ctas_per_sm"] else REGISTERS_MAX
    registers = min(most, max(32, int(p["registers"]) + x["registers"]))
    resident = max(1, min(CTAS, THREADS // x["threads"], REGISTERS // (x["threads"] * registers)))
    warps, of_sm = x["threads"] / 32, x["ctas"] / min(SM_COUNT, x["ctas"])
    wait = p["latency"] + p["row_wait"] + (p["row_barrier"] if x["row_threads"] > 32 else 0) + p["warp"] * warps
    wait += p["cluster"] * (x["cluster"] - 1) + p["serial"] * x["elements"]
    wait = max(0, wait + p["spill"] * max(0, p["registers"] + x["registers"] - REGISTERS_MAX))
    instructions = x["elements"] * p["element"]
    memory = x["bytes"] / p["memory_bytes"]
    issue = of_sm * warps * instructions / 4 / CLOCK
    lines = of_sm * warps * x["lines"] * p["line"] / CLOCK
    starts = of_sm * p["cta"] / CLOCK
    latency = (max(1, of_sm / resident) * wait + instructions) / CLOCK
    return p["launch_us"] + x["us"] + overlapped(memory, latency, issue, lines, starts)


def fields(words):
    return dict(word.split("=", 1) for word in words if "=" in word)


def size(text):
    base, _, power = text.partition("^")
    return int(base) ** int(power or 1)


def features(line, config):
    op, *words = line.split()
    d = {"shape": "256x1024", "rows": "64", "cols": "1024", "dtype": "f32", "direction": "forward", "residual": "0", "affine": "1", **fields(words)}
    c = fields(config.split())
    if op == "softmax":
        *outer, cols = map(size, d["shape"].split("x"))
        rows = math.prod(outer)
    else:
        rows, cols = size(d["rows"]), size(d["cols"])
    s = {k: int(c[k]) for k in ("threads", "row_threads", "cluster", "vec", "steps", "ragged")}
    backward, more = d["direction"] == "backward", int(d["residual"]) # of softmax, of norms
    inputs, outputs = 1 + backward + more, 1 + more
    ctas = -(-rows // (s["threads"] // s["row_threads"])) * s["cluster"]
    element = BYTES[d["dtype"]]
    held = s["vec"] * s["steps"] + s["ragged"]
    packed = math.ceil(held * element / 4)
    vectors = 0 if op == "softmax" else int(d["affine"])
    accesses = (inputs + outputs) * (s["steps"] + s["ragged"]) + vectors * s["steps"]
    lines = 32 * s["vec"] * element / min(128, s["row_threads"] * s["vec"] * element)
    return {**s, "ctas_per_sm": int(c.get("ctas_per_sm", 0)), "ctas": ctas, "lines": lines * accesses, "bytes": rows * cols * element * (inputs + outputs), "elements": held * inputs,
            "registers": held + packed * (inputs - (element == 4)), "us": 0 if op == "softmax" else NORM_US}


def read_sweeps(paths):
    """[(line, [(microseconds, config)])] of rows in registers alone"""
    sweeps = collections.defaultdict(list)
    for path in paths:
        for line, config, us in rows_of(path):
            f = fields(config.split())
            kind = line.split()[0], config.split()[0]
            otherwise = any(f.get(name, "0") != "0" for name in ("stages", "tiled", "shared_weights", "shifted"))
            if kind in ROWS and not otherwise and " axis=" not in line and " mask=" not in line:
                sweeps[path, line].append((us, GONE.sub("", config)))
    return [(line, rows) for (_, line), rows in sorted(sweeps.items())]


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
    p = {name: value for name, (value, _) in START.items()} | read_header()
    best, draw, end = loss(p, data), random.Random(1), time.time() + seconds
    while time.time() < end:
        q = dict(p)
        for name in draw.sample(FITTED, draw.choice((1, 1, 2, 3))):
            q[name] *= math.exp(draw.gauss(0, draw.choice((0.02, 0.1, 0.4))))
            q[name] += draw.gauss(0, 200) if name == "row_wait" else 0 # of either sign
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
        file.write(f"""/* memory_fit.h - coefficients of memory_cost(), written by scripts/fit_rows.py from measurements; never by hand. */
#pragma once

typedef struct memory_fit {{
{body}}} memory_fit;

static const memory_fit fit = {{
{values}}};
""")


def read_header():
    return {name: float(value) for name, value in re.findall(r"\.(\w+) = ([-+.e\d]+),", open(HEADER).read())}


def check(p, ckl, data):
    """`ckl explain` predicts this file's cost of two configs of every sweep."""
    asked = [(line, row) for line, rows in data for row in (rows[0], rows[-1])]
    lines = "".join(f"{line} config='{config}'\n" for line, (_, _, config) in asked)
    answer = subprocess.run([ckl, "explain", "--costs", "--suite", "-", "--device", "emulator:h200"], input=lines,
                            capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^([\d.]+) us", answer, re.M)
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
    data = prepare(read_sweeps(given or [os.path.join(ROOT, "bench", name) for name in MEASURED]))
    if command == "check":
        return check(read_header(), paths[0], data)
    if command == "fit":
        write(fit(data, FIT_SECONDS))
    judge(read_header(), data)


if __name__ == "__main__":
    main()
