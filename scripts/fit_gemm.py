#!/usr/bin/env python3
"""fit_gemm.py - fits the cost of gemm's Hopper kernel to sweeps, picks its tiles, writes src/operators/gemm/gemm_sm90_fit.h.

    scripts/fit_gemm.py fit [--seconds S] [--seed N]   tiles and coefficients, from the header's on, by bench/sweeps/gemm-*.txt
    scripts/fit_gemm.py judge FILE...                  how good the first choice and the first eight are on sweeps
    scripts/fit_gemm.py sample COUNT SEED FOLDER       problem lines and configs for the next sweep: lines.txt, 0.txt, 1.txt ...
    scripts/fit_gemm.py check CKL                      the library's predictions are those of this file

A sweep is what `ckl bench gemm LINE --configs FILE` prints, behind a line "== LINE". The model is that of
gemm_sm90_choice.c; check compares both. Wants numpy. Judge on sweeps of another sample than those that were fitted.
"""
import collections
import glob
import math
import os
import random
import re
import shlex
import subprocess
import sys
import time

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "src/operators/gemm/gemm_sm90_fit.h")
CLUSTERS = {1: 132, 2: 66, 3: 30, 4: 30, 6: 16, 8: 15} # that an H200 holds at once, by CTAs of each
SM_COUNT, SMEM, TILE_K, TILES = 132, 232448, 64, 42

# Where fitting begins, and what each coefficient is.
START = {
    "launch_us": (1.68, "before the first tile and behind the last"),
    "cycles_per_us": (1755.0, "the clock that cycles are counted in; not fitted"),
    "tensor_cores": (1.131, "of the rate that the instructions promise"),
    "idle": (0.36, "of that, what the clock gains where no SM has a CTA; not fitted"),
    "operands": (1.3, "how much reading operands from shared memory bounds narrow tiles; not fitted"),
    "three_consumers": (1.04866, "what three consumers lose"),
    "step": (3.001, "cycles of a K step that nothing overlaps"),
    "step_least": (210.0, "cycles of one where a stage's arrival, products and release follow each other; not fitted"),
    "sm_bytes": (60.24, "a cycle into an SM"),
    "spread": (0.4, "the power of SMs over CTAs by which that grows: L2 serves fewer; not fitted"),
    "crossing_row": (1.6, "cycles of a row that lies in two lines of memory; not fitted"),
    "absent_row": (1.387, "cycles of a row beyond the last one of A: TMA fills it with zeros, slower than it loads"),
    "absent_B": (0.3, "of that, for a row of B beyond the last column of D, where most SMs have a CTA; not fitted"),
    "sm_bytes_one": (70.0, "the same of CTAs with one consumer"),
    "latency": (2000.0, "cycles from asking for a stage to its arrival, when memory is busy"),
    "latency_L2": (1800.0, "and from L2 alone; not fitted"),
    "exchange": (300.0, "cycles of adding the partials of a split"),
    "exchange_bytes": (20.0, "a cycle of what a CTA that finishes gets for it"),
    "column_scale": (1.5, "cycles of a K step for each column that has a scale of its own; not fitted"),
    "partial": (200.0, "cycles of each sum of 64 rows that a consumer scales and adds in f32; not fitted"),
    "cluster": (0.05, "what each more CTA of a cluster adds to a step, unless rows are slow; not fitted"),
    "pair": (0.97, "times a step of a pair of 128x128 in batches, or with scales of blocks; not fitted"),
    "epilogue": (0.1176, "cycles of storing an element, of one consumer; this and the three below are kept"),
    "boxes_of_32": (1.27766, "times that, in boxes of 32 columns"),
    "boxes_of_16": (2.013, "and of 16"),
    "gelu": (3.5, "times the epilogue with GELU: 4096x4096x512 in f16 takes 39.5 instead of 33.3 us; not fitted"),
    "flops_per_us": (6.0e6, "of an SM within the power limit; not fitted"),
    "slice": (0.3, "cycles of storing a sum of a slice of K, in every turn but one; not fitted"),
    "sum_us": (1.55, "a second kernel, which adds slices of K; by 60 sliced rows below 15 us; not fitted"),
    "sum_bytes_per_us": (4.2e6, "of the sums of all slices, to L2 and back; not fitted"),
    "memory_bytes_per_us": (4.3e6, "of HBM, between copying and reading; not fitted"),
    "turn_us": (0.1, "what a turn of tiles costs where memory binds and K is short; not fitted"),
    "memory_bytes_of_sm": (45000.0, "of it, that one SM can ask for, measured from 33 to 56; not fitted"),
}
FITTED = [name for name in START if name not in ("cycles_per_us", "gelu", "epilogue", "boxes_of_32", "boxes_of_16",
                                                 "three_consumers", "absent_B", "idle", "spread", "crossing_row", "step_least", "latency_L2", "slice", "sum_us", "column_scale", "partial",
                                                 "sum_bytes_per_us", "cluster", "pair", "operands", "flops_per_us", "memory_bytes_per_us",
                                                 "turn_us", "memory_bytes_of_sm")]
FIELDS = ("tile_m", "tile_n", "consumers", "pingpong", "cluster_m", "cluster_n", "split", "swap")


def ceil_div(x, y):
    return -(-x // y)


# Always there: what an earlier fit picked over a population of problems, none of few tiles. Another fit must not change what large
# problems get, where ping-pong is the best more often than the model sees (bench/notes/gemm.md).
SEEDS = ((192, 192, 3, 0, 2, 1, 1, 0), (256, 128, 2, 0, 1, 2, 1, 0), (128, 224, 2, 0, 1, 1, 1, 0), (128, 192, 2, 1, 1, 1, 1, 0),
         (192, 128, 3, 0, 1, 2, 1, 0), (128, 160, 2, 1, 1, 1, 1, 0), (128, 160, 2, 0, 1, 1, 1, 0), (128, 128, 2, 1, 1, 1, 1, 0), (128, 128, 2, 1, 1, 2, 1, 0),
         (64, 192, 1, 0, 1, 1, 1, 0), (64, 128, 2, 1, 1, 1, 1, 0),
         (64, 96, 1, 0, 1, 1, 1, 0), (64, 64, 1, 0, 1, 2, 1, 0), (64, 32, 1, 0, 1, 1, 1, 0), (64, 64, 2, 1, 1, 1, 1, 0),
         (64, 48, 1, 0, 1, 1, 8, 0), (128, 128, 2, 0, 1, 2, 1, 0), (128, 208, 2, 0, 2, 1, 1, 0), (128, 0, 2, 0, 1, 1, 1, 1), (128, 176, 2, 1, 1, 1, 1, 0), (128, 192, 2, 1, 2, 1, 1, 0),
         (128, 224, 2, 0, 2, 1, 1, 0), (128, 96, 2, 0, 2, 1, 1, 0), (64, 192, 2, 1, 1, 2, 1, 0), (64, 16, 1, 0, 1, 1, 1, 0),
         (128, 64, 2, 0, 2, 1, 1, 0), (64, 128, 1, 0, 1, 1, 2, 0))


# What the listed suite (bench/results/gemm-f16.json) is fast with. Another choice counts as 8 % slower.
PING_PONG = {(1024, 1024, 1024): (64, 128), (2048, 2048, 2048): (128, 128), (4096, 4096, 4096): (128, 128),
             (4096, 4096, 512): (128, 128), (8192, 8192, 8192): (128, 192), (16384, 8192, 4096): (128, 192),
             (8192, 28672, 8192): (128, 192)}


def columns_of(c, m):
    """Of a tile: with swap=1 all rows of D, or as even parts of them as can be."""
    columns = ceil_div(m, ceil_div(m, 256))
    return ceil_div(columns, 16) * 16 if c["swap"] and not c["tile_n"] else c["tile_n"]


def finished_columns(c, tile_n):
    """Of a tile, by one CTA of a split."""
    finishers = c["split"]
    while finishers > 1 and tile_n % (16 * finishers):
        finishers -= 1
    return tile_n // finishers


# What the model looks at, of a problem and a config: numbers, or columns of them.
STEPS_MANY = 32  # of K: turns of tiles cost nothing then
FEATURES = ("tile_m tile_n pingpong consumers sharers split turns ctas steps stages crossing absent absent_B columns narrow "
            "flops operands results slices sums swap wideness").split()


def crossing_of(k):
    """The share of rows of k elements of 16 bits, one behind the other, that lie in two lines of 128 bytes."""
    return 1 - math.gcd(2 * k, 128) / 128


def features(shape, c):
    m, n, k = shape
    tile_m, tile_n, cluster_m, cluster_n = c["tile_m"], columns_of(c, m), c["cluster_m"], c["cluster_n"]
    swap, split, sharers = c["swap"], c["split"], cluster_m * cluster_n
    rows, cols = (n, m) if swap else (m, n)
    cluster, slices = sharers * split, c.get("slices", 1)
    tiles = ceil_div(rows, tile_m * cluster_m) * ceil_div(cols, tile_n * cluster_n) * cluster * slices
    slots, steps = CLUSTERS[cluster] * cluster, ceil_div(ceil_div(k, TILE_K), split * slices)
    depth = k if slices == 1 else steps * TILE_K * slices
    shared_m, shared_n = tile_m / cluster_n, tile_n / cluster_m
    columns, turns = finished_columns(c, tile_n), ceil_div(tiles, slots)
    absent = -m % tile_n if swap else -m % tile_m / cluster_n
    beyond = 0 if crossing_of(k) >= 0.8 else (tile_m if ceil_div(rows, tile_m) % cluster_m else 0) + (tile_n if ceil_div(cols, tile_n) % cluster_n else 0)
    return (tile_m, tile_n, c["pingpong"], c["consumers"], sharers, split,
            turns, min(tiles, slots), steps,
            c["stages"] * (c.get("ctas", 1) if 2 * min(tiles, slots) > SM_COUNT else 1), crossing_of(k) * (shared_m + shared_n), absent + beyond / (2 * turns),
            -n % tile_n / (cluster_m * turns) if not swap and n > tile_n and 2 * min(tiles, slots) > SM_COUNT else 0,
            columns, 0 if swap or columns % 64 == 0 else 1 if columns % 32 == 0 else 2,
            2.0 * tiles * tile_m * tile_n * steps * TILE_K,
            2.0 * (m + n) * depth, (2 if slices == 1 else 4 * slices) * m * n,
            slices, 4.0 * slices * m * ceil_div(n, 8) * 8, swap,
            min(2, ceil_div(cols, tile_n * cluster_n) * tile_n * cluster_n / cols) if ceil_div(k, TILE_K) < STEPS_MANY else 0)


def overlapped(*parts):
    return sum(x ** 8 for x in parts) ** 0.125


def predicted(p, x):
    """Microseconds of bf16 problems: gemm_sm90_cost() of the library."""
    x = dict(zip(FEATURES, x))
    instruction = np.maximum(x["tile_n"] / 2, (16 + x["tile_n"] / 4) * p["operands"])
    working = x["ctas"] / SM_COUNT
    tensor_cores = x["tile_m"] / 64 * 4 * instruction * (p["tensor_cores"] - p["idle"] * (1 - working))
    tensor_cores = np.where(x["consumers"] == 3, tensor_cores * p["three_consumers"], tensor_cores)
    tensor_cores = np.maximum(tensor_cores, p["step_least"])
    rate = np.where(x["consumers"] == 1, p["sm_bytes_one"], p["sm_bytes"]) * working ** -p["spread"]
    loads = (x["tile_m"] + x["tile_n"]) * 128 / rate
    sm = loads + p["crossing_row"] * x["crossing"] + p["absent_row"] * (x["absent"] + p["absent_B"] * x["absent_B"])
    memory = np.minimum(p["memory_bytes_per_us"], x["ctas"] * p["memory_bytes_of_sm"])
    loop_us = x["turns"] * x["steps"] * np.maximum(tensor_cores, loads) / p["cycles_per_us"]
    latency = p["latency_L2"] + (p["latency"] - p["latency_L2"]) * np.minimum(1, x["operands"] / memory / loop_us)
    sharing = 1 + np.where((x["crossing"] > 0) | (x["swap"] > 0), 0, p["cluster"]) * (x["sharers"] - 1)
    sharing = np.where((x["slices"] > 1) & (x["consumers"] == 2) & (x["tile_n"] == 128), 1, sharing)
    step = overlapped(tensor_cores, sm, latency / x["stages"]) * sharing + p["step"]
    narrow = np.where(x["narrow"] == 0, 1, np.where(x["narrow"] == 1, p["boxes_of_32"], p["boxes_of_16"]))
    epilogue = x["tile_m"] * x["columns"] * p["epilogue"] * narrow
    epilogue = epilogue / np.where(x["pingpong"] == 1, 1, x["consumers"])
    exchange = p["exchange"] + 4.0 * x["tile_m"] * x["columns"] * (x["split"] - 1) / p["exchange_bytes"]
    epilogue = epilogue + np.where(x["split"] > 1, exchange, 0)
    tile = step * x["steps"]
    both = tile + epilogue
    turn = np.where(x["pingpong"] == 1, np.maximum(tile, both / 2), both)
    sums = np.where(x["slices"] > 1, p["slice"] * x["tile_m"] * x["tile_n"] * (x["turns"] - 1), 0)
    tiles_us = p["launch_us"] + (x["turns"] * turn + both - turn + sums) / p["cycles_per_us"]
    power_us = p["launch_us"] + x["flops"] / (p["flops_per_us"] * SM_COUNT)
    memory_us = p["launch_us"] + (x["operands"] + x["results"]) / memory + epilogue / p["cycles_per_us"] + x["turns"] * x["wideness"] * p["turn_us"]
    sum_us = np.where(x["slices"] > 1, p["sum_us"] + x["sums"] / p["sum_bytes_per_us"], 0)
    return overlapped(tiles_us, power_us, memory_us) + sum_us


def cost(p, shape, c):
    return float(predicted(p, [np.float64(x) for x in features(shape, c)]))


def costs_of(p, shape, some):
    """Of one problem in many configs."""
    return predicted(p, np.array([features(shape, c) for c in some], dtype=float).T)


def configs(m=1):
    """The legal configs worth a thought for m rows, one CTA an SM; with swap=1 a tile has as many columns as D has rows, or half."""
    shapes = [(64, n, 1, 0) for n in (32, 48, 64, 80, 96, 112, 128, 160, 192, 256)]
    shapes += [(64, n, 2, 1) for n in (64, 96, 128, 160, 192, 256)]
    shapes += [(128, n, 2, 1) for n in (96, 112, 128, 144, 160, 176, 192)]
    shapes += [(128, n, 2, 0) for n in (96, 128, 144, 160, 176, 192, 208, 224, 240, 256)]
    shapes += [(256, n, 2, 0) for n in (96, 128, 160, 192)]
    shapes += [(192, n, 3, 0) for n in (128, 144, 160, 176, 192)]
    clusters = ((1, 1), (2, 1), (1, 2))
    found = [(*tile, *cluster, 1, 0) for tile in shapes for cluster in clusters]
    shapes = [(64, n, 1, 0) for n in (32, 48, 64, 96, 128, 192)] + [(128, n, 2, 0) for n in (64, 96, 128, 192)]
    found += [(*tile, *cluster, split, 0) for tile in shapes for cluster in clusters for split in (2, 3, 4, 8)
              if cluster[0] * cluster[1] * split <= 8]
    found += [(*role, *cluster, split, 1) for role in ((64, 0, 1, 0), (64, 0, 2, 1), (128, 0, 2, 0)) for cluster in clusters[:2]
              for split in (1, 2, 4, 8) if cluster[0] * split <= 8]
    return [dict(zip(FIELDS, c)) for c in found if c[1] % (8 * c[4]) == 0 and c[0] % (8 * c[5]) == 0 and (m <= 512 or not c[7])]


def staged(c, m):
    """The config for m rows with stages and buffers, as the library fits them into shared memory."""
    tile_n, stages, buffers = columns_of(c, m), 0, 0
    columns = finished_columns(c, tile_n)
    for buffers in (2, 1):
        if c["swap"]:
            box = next(rows for rows in (64, 48, 32, 16) if columns % rows == 0) * 64
        else:
            box = 64 * next(cols for cols in (64, 32, 16) if columns % cols == 0)
        parts = 4 * c["tile_m"] * (c["consumers"] if c["pingpong"] else 1) * columns * (c["split"] - 1)
        fixed = buffers * c["consumers"] * box * 2 + parts + (16 * c["consumers"] if c["split"] > 1 else 0)
        stages = min(12, (SMEM - fixed) // ((c["tile_m"] + tile_n) * 128 + 16))
        if stages >= 4:
            break
    return dict(c, tile_n=tile_n, stages=max(stages, 2), buffers=buffers, ctas=1, group=8)


def is_small(shape):
    """Few rows, or few tiles: shapes that the sweeps of splits have, and the like."""
    return shape[0] <= 128 or shape[0] * shape[1] <= 2 ** 20


def key_of(c):
    return tuple(0 if c["swap"] and f == "tile_n" else c[f] for f in FIELDS)


def size(draw, low, high):
    """Log-uniform; a third each multiples of 1024, of 128 and of 8."""
    value = math.exp(draw.uniform(math.log(low), math.log(high)))
    unit = draw.choice((1024, 128, 8))
    unit = unit if value >= unit else 8
    return max(unit, round(value / unit) * unit)


def population(seed, count, flops_max=4e12):
    draw, found = random.Random(seed), []
    while len(found) < count:
        m = size(draw, 64, 16384) if draw.random() < 0.85 else draw.choice((1, 7, 16, 33, 64, 100))
        shape = (m, size(draw, 256, 16384), size(draw, 256, 16384))
        if 2.0 * shape[0] * shape[1] * shape[2] <= flops_max:
            found.append(shape)
    return found


def read_sweeps(paths):
    """[(shape, [(microseconds, config)], best peer or 0)]"""
    found = []
    for path in paths:
        for line in open(path):
            if header := re.match(r"== m=(\d+) n=(\d+) k=(\d+)", line):
                found.append([tuple(map(int, header.groups())), [], 0])
            elif row := re.match(r"\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+\[.*?\]\s+(best: )?(.*)", line):
                if row[2] or row[3].startswith("cublaslt"):
                    found[-1][2] = min(float(row[1]), found[-1][2] or math.inf)
                elif "tile_m" in row[3]:
                    c = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row[3])}
                    if c.pop("ctas", 1) == 1:
                        found[-1][1].append((float(row[1]), {"split": 1, "swap": 0, **c}))
    return [sweep for sweep in found if sweep[1]]


def measured(sweeps):
    """All trials as columns of features and times, and where each problem's begin and end."""
    columns = np.array([features(shape, c) for shape, trials, _ in sweeps for _, c in trials], dtype=float).T
    times = np.array([us for _, trials, _ in sweeps for us, _ in trials])
    ends = np.cumsum([len(trials) for _, trials, _ in sweeps])
    def weight(shape, trials): # most time is spent on large ones; and few sweeps show slices
        return 8 if min(shape) >= 2048 else 4 if min(shape) >= 1536 or any(c.get("slices") for _, c in trials) else 1
    weights = np.array([weight(shape, trials) for shape, trials, _ in sweeps])
    return columns, times, list(zip([0, *ends[:-1]], ends)), weights


def loss(p, data):
    """Mean regret of the choice, its worst tenth, and how far predictions are off."""
    columns, times, problems, counts = data
    guesses, regrets, errors = predicted(p, columns), [], []
    for begin, end in problems:
        guess, us = guesses[begin:end], times[begin:end]
        best = us.min()
        weights = np.exp(-np.log(guess / guess.min()) / 0.01) # near ties count, too
        regrets.append(float((weights * np.log(us / best)).sum() / weights.sum()))
        near = np.minimum(np.abs(np.log(guess / us)), 0.4)[us < 1.4 * best] ** 2
        errors.append(near.mean())
    regrets = np.repeat(regrets, counts)
    worst = np.sort(regrets)[-max(1, len(regrets) // 10):]
    return regrets.mean() + 0.3 * worst.mean() + 0.25 * math.sqrt(np.repeat(errors, counts).mean())


def sliced_tiles():
    """Those that gemm_splitk_plan.c considers."""
    table = open(os.path.join(os.path.dirname(HEADER), "gemm_splitk_plan.c")).read().split("tiles[] = ")[1].split(";")[0]
    return {tuple(map(int, row.split(","))) for row in re.findall(r"\{ ([\d, ]+) \}", table)}


def among(tiles, sweeps):
    """The sweeps with trials of these tiles alone: the choice is among them."""
    keys, sliced = {key_of(c) for c in tiles}, sliced_tiles()

    def is_considered(c):
        return key_of(c)[:3] + key_of(c)[4:6] in sliced if c.get("slices") else key_of(c) in keys
    found = [[shape, [trial for trial in trials if is_considered(trial[1])], peer] for shape, trials, peer in sweeps]
    return [sweep for sweep in found if len(sweep[1]) > 1]


def kept(tiles):
    """The suite as sweeps of the tiles that suit its size."""
    found = []
    for shape, tile in PING_PONG.items():
        best = 2.0 * math.prod(shape) / 7e8
        trials = [(best if key_of(c) == (*tile, 2, 1, 1, 1, 1, 0) else 1.08 * best, staged(c, shape[0])) for c in tiles
                  if not c["swap"]]
        found.append([shape, trials, 0])
    return found


def fit(start, sweeps, seconds, seed):
    """Simulated annealing."""
    draw, begin = random.Random(seed), time.time()
    p, data = dict(start), measured(sweeps)
    now = loss(p, data)
    best, least = dict(p), now
    while (spent := (time.time() - begin) / seconds) < 1:
        q = dict(p)
        for name in draw.sample(FITTED, draw.choice((1, 1, 2, 3))):
            q[name] *= math.exp(draw.gauss(0, 0.15))
        value = loss(q, data)
        if value < now or draw.random() < math.exp((now - value) * 3 / (0.01 * (1 - spent) + 1e-5)):
            p, now = q, value
        if value < least:
            best, least = dict(q), value
    return best


def pick_tiles(sweeps):
    """The seeds, and greedily those measured configs that leave the least regret where rows or tiles are few. The tile that suits
    the smallest problems comes last: its reason is given where none can compute."""
    alone = [[shape, [(us, c) for us, c in trials if not c.get("slices")]] for shape, trials, _ in sweeps if is_small(shape)]
    measured = [{key_of(c): us for us, c in trials} for shape, trials in alone if trials]
    chosen = list(SEEDS)
    while len(chosen) < TILES:
        def regret(key):
            have = [min([times[k] for k in (*chosen, key) if k in times], default=math.inf) / min(times.values())
                    for times in measured]
            logs = [math.log(min(x, 3)) for x in have]
            return sum(x + 5 * x * x for x in logs) # a large one counts for more
        chosen.append(min(sorted({key for times in measured for key in times} - set(chosen)), key=regret))
        print("%2d  regret %.4f  %s" % (len(chosen), regret(chosen[-1]) / len(measured), chosen[-1]))
    tiles = [dict(zip(FIELDS, key)) for key in chosen]
    return sorted(tiles, key=lambda c: (c["swap"] == 0, c["tile_n"] != 16, -c["split"], -c["tile_m"] * c["tile_n"], -c["pingpong"]))


def write_header(p, tiles):
    rows = ["/* gemm_sm90_fit.h - coefficients and tiles, written by scripts/fit_gemm.py from bench/sweeps; never by hand. */",
            "#pragma once", "", "typedef struct gemm_fit {"]
    rows += ["    double %s; // %s" % (name, text) for name, (_, text) in START.items()]
    rows += ["} gemm_fit;", "", "static const gemm_fit fit = {"]
    rows += ["    .%s = %.6g," % (name, p[name]) for name in START]
    rows += ["};", "", "typedef struct fitted_tile { // in any order; where none can compute, the last one says why",
             *("    %s %s;" % ("bool" if name in ("pingpong", "swap") else "int", name) for name in FIELDS), "} fitted_tile;", "",
             "static const fitted_tile fitted_tiles[] = {"]
    rows += ["    { %s }," % ", ".join(str(c[f]) for f in FIELDS) for c in tiles]
    rows += ["};", ""]
    with open(HEADER, "w") as out:
        out.write("\n".join(rows))
    subprocess.run(["clang-format", "-i", HEADER], check=False)


def read_header():
    text = open(HEADER).read()
    p = {name: value for name, (value, _) in START.items()}
    p.update((name, float(value)) for name, value in re.findall(r"\.(\w+) = ([-+.e\d]+)", text) if name in p)
    tiles = re.findall(r"\{ (\d+(?:, \d+)+) \}", text)
    return p, [dict(zip(FIELDS, map(int, row.split(", ")))) for row in tiles]


def judge(p, sweeps):
    firsts, eights, ratios = [], [], []
    for shape, trials, peer in sweeps:
        best = min(us for us, _ in trials)
        order = sorted(trials, key=lambda trial: cost(p, shape, trial[1]))
        firsts.append(best / order[0][0])
        eights.append(best / min(us for us, _ in order[:8]))
        ratios += [peer / order[0][0]] if peer else []
    def mean(values):
        return math.exp(sum(map(math.log, values)) / len(values))
    print("%d problems: the first choice has %.1f %% of the best speed, at worst %.1f %%; the best of eight %.2f %%; "
          "%s" % (len(sweeps), 100 * mean(firsts), 100 * min(firsts), 100 * mean(eights),
                  "peer / first choice %.3f, 5th percentile %.3f" % (mean(ratios), sorted(ratios)[len(ratios) // 20])
                  if ratios else "no peer took part"))


def sample(p, count, seed, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lines.txt"), "w") as lines:
        for i, shape in enumerate(population(seed, count)):
            every = [staged(c, shape[0]) for c in configs(shape[0])]
            ranked = [every[j] for j in costs_of(p, shape, every).argsort()]
            some = ranked[:16] + random.Random(i).sample(ranked[16:60], 8)
            with open(os.path.join(folder, "%d.txt" % i), "w") as out:
                out.writelines("sm90 %s\n" % " ".join("%s=%d" % pair for pair in c.items()) for c in some)
            lines.write("m=%d n=%d k=%d\n" % shape)


def check(p, ckl):
    """Every candidate that `ckl explain` shows has this file's cost."""
    compared = 0
    for shape in population(11, 12):
        line = "gemm m=%d n=%d k=%d a=bf16" % shape
        answer = subprocess.run([ckl, "explain", *shlex.split(line), "--device", "emulator:h200"], capture_output=True,
                                text=True, check=True).stdout
        for us, text in re.findall(r"([\d.]+) us, bound by [\w ]+?\s+(ab=.*)", answer):
            c = collections.defaultdict(int)  # what is off is not shown
            c.update((k, int(v)) for k, v in re.findall(r"(\w+)=(\d+)", text))
            if abs(cost(p, shape, c) - float(us)) > 0.006:
                sys.exit("%s: the library says %s us, this file %.2f: %s" % (line, us, cost(p, shape, c), text))
            compared += 1
    if compared == 0:
        sys.exit("ckl explain shows no predictions")
    print("%d predictions agree" % compared)


def option(name, default):
    return type(default)(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    sweeps = glob.glob(os.path.join(ROOT, "bench/sweeps/gemm-*.txt"))
    if command == "fit":
        data = read_sweeps(sweeps)
        tiles = pick_tiles(data)
        data = among(tiles, data) + kept(tiles)
        p = fit(read_header()[0], data, option("--seconds", 100.0), option("--seed", 1))
        judge(p, data)
        write_header(p, tiles)
    elif command == "judge":
        judge(read_header()[0], read_sweeps(sys.argv[2:] or sweeps))
    elif command == "sample" and len(sys.argv) == 5:
        sample(read_header()[0], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    elif command == "check" and len(sys.argv) == 3:
        check(read_header()[0], sys.argv[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
