#!/usr/bin/env python3
"""fit_gemm.py - fits the cost of gemm's Hopper kernel to sweeps, picks its tiles, writes src/operators/gemm/gemm_sm90_fit.h.

    scripts/fit_gemm.py fit [--seconds S] [--seed N]   coefficients from bench/sweeps/gemm-*.txt, then tiles, then the header
    scripts/fit_gemm.py tiles                          the tiles anew with the header's coefficients
    scripts/fit_gemm.py judge FILE...                  how good the first choice and the first eight are on sweeps
    scripts/fit_gemm.py sample COUNT SEED FOLDER       problem lines and configs for the next sweep: lines.txt, 0.txt, 1.txt ...
    scripts/fit_gemm.py check CKL                      the library's predictions are those of this file

A sweep is what `ckl bench gemm LINE --configs FILE` prints, behind a line "== LINE". The model is that of
gemm_sm90_choice.c; check compares both. Judge on sweeps of another sample than those that were fitted.
"""
import glob
import math
import os
import random
import re
import shlex
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADER = os.path.join(ROOT, "src/operators/gemm/gemm_sm90_fit.h")
SM_COUNT, SMEM, TILE_K, TILES = 132, 232448, 64, 16

# Where fitting begins, and what each coefficient is.
START = {
    "launch_us": (1.68, "before the first tile and behind the last"),
    "cycles_per_us": (1755.0, "the clock that cycles are counted in; not fitted"),
    "tensor_cores": (1.131, "of the rate that the instructions promise"),
    "operands": (0.4977, "how much reading operands from shared memory bounds narrow tiles"),
    "three_consumers": (1.059, "what three consumers lose"),
    "step": (3.001, "cycles of a K step that nothing overlaps"),
    "sm_bytes": (60.24, "a cycle into an SM"),
    "sm_bytes_alone": (147.9, "the same where at most every second SM has a CTA"),
    "slow_row": (2.069, "cycles of a row that starts inside a 32-byte sector"),
    "absent_row": (1.387, "cycles of a row beyond the last one of A: TMA fills it with zeros, slower than it loads"),
    "l2_bytes": (27430.0, "a cycle out of L2"),
    "cluster": (0.08107, "what each more CTA of a cluster adds to a step"),
    "epilogue": (0.1158, "cycles of storing an element, of one consumer"),
    "boxes_of_32": (1.263, "times that, in boxes of 32 columns"),
    "boxes_of_16": (2.971, "and of 16"),
    "gelu": (3.5, "times the epilogue with GELU: 4096x4096x512 in f16 takes 39.5 instead of 33.3 us; not fitted"),
    "flops_per_us": (20990000.0, "of an SM within the power limit"),
    "memory_bytes_per_us": (3596000.0, "of HBM"),
}
FITTED = [name for name in START if name not in ("cycles_per_us", "gelu")]
FIELDS = ("tile_m", "tile_n", "consumers", "pingpong", "cluster_m", "cluster_n")


def ceil_div(x, y):
    return -(-x // y)


# Always there: ping-pong, which is the best of large problems more often than the model sees, and the best for rows that start
# inside a sector (bench/notes/gemm.md).
SEEDS = ((128, 128, 2, 1, 1, 1), (128, 160, 2, 1, 1, 1), (128, 192, 2, 1, 1, 1), (192, 192, 3, 0, 2, 1))


def overlapped(*parts):
    return sum(x ** 8 for x in parts) ** 0.125


def cost(p, shape, c):
    """Microseconds of a bf16 problem (m, n, k) in a config: gemm_sm90_cost() of the library."""
    m, n, k = shape
    tile_m, tile_n, cluster_m, cluster_n = c["tile_m"], c["tile_n"], c["cluster_m"], c["cluster_n"]
    cluster = cluster_m * cluster_n
    tiles = ceil_div(m, tile_m * cluster_m) * ceil_div(n, tile_n * cluster_n) * cluster
    slots = max(SM_COUNT // cluster * cluster, cluster)
    turns, ctas, steps = ceil_div(tiles, slots), min(tiles, slots), ceil_div(k, TILE_K)
    shared_m, shared_n = tile_m / cluster_n, tile_n / cluster_m
    instruction = max(tile_n / 2, (16 + tile_n / 4) * p["operands"])
    tensor_cores = tile_m / 64 * 4 * instruction * p["tensor_cores"]
    if c["consumers"] == 3:
        tensor_cores *= p["three_consumers"]
    sm = (tile_m + tile_n) * 128 / (p["sm_bytes_alone"] if 2 * ctas <= SM_COUNT else p["sm_bytes"])
    if k * 2 % 32:
        sm += p["slow_row"] * (shared_m + shared_n)
    sm += p["absent_row"] * (-m % tile_m) / cluster_n
    l2 = ctas * (shared_m + shared_n) * 128 / p["l2_bytes"]
    step = overlapped(tensor_cores, sm, l2) * (1 + p["cluster"] * (cluster - 1)) + p["step"]
    narrow = 1 if tile_n % 64 == 0 else p["boxes_of_32"] if tile_n % 32 == 0 else p["boxes_of_16"]
    epilogue = tile_m * tile_n * p["epilogue"] * narrow / (1 if c["pingpong"] else c["consumers"])
    tile = step * steps
    both = tile + epilogue
    turn = max(tile, both / 2) if c["pingpong"] else both
    flops = 2.0 * tiles * tile_m * tile_n * steps * TILE_K
    tiles_us = p["launch_us"] + (turns * turn + both - turn) / p["cycles_per_us"]
    power_us = p["launch_us"] + flops / (p["flops_per_us"] * SM_COUNT)
    memory_us = p["launch_us"] + 2.0 * (m * k + n * k + m * n) / p["memory_bytes_per_us"]
    return overlapped(tiles_us, power_us, memory_us)


def configs():
    """The legal configs worth a thought, one CTA an SM."""
    shapes = [(64, n, 1, 0) for n in (32, 48, 64, 80, 96, 112, 128, 160, 192, 256)]
    shapes += [(64, n, 2, 1) for n in (64, 96, 128, 160, 192, 256)]
    shapes += [(128, n, 2, 1) for n in (96, 112, 128, 144, 160, 176, 192)]
    shapes += [(128, n, 2, 0) for n in (96, 128, 144, 160, 176, 192, 208, 224, 240, 256)]
    shapes += [(256, n, 2, 0) for n in (96, 128, 160, 192)]
    shapes += [(192, n, 3, 0) for n in (128, 144, 160, 176, 192)]
    found = []
    for tile_m, tile_n, consumers, pingpong in shapes:
        for cluster_m, cluster_n in ((1, 1), (2, 1), (1, 2)):
            if tile_n % (8 * cluster_m) == 0 and tile_m % (8 * cluster_n) == 0:
                found.append(dict(zip(FIELDS, (tile_m, tile_n, consumers, pingpong, cluster_m, cluster_n))))
    return found


def staged(c):
    """The config with stages and buffers, as the library fits them into shared memory."""
    stages = buffers = 0
    for buffers in (2, 1):
        columns = 64 if c["tile_n"] % 64 == 0 else 32 if c["tile_n"] % 32 == 0 else 16
        left = SMEM - buffers * c["consumers"] * 64 * columns * 2 - 16 * 8
        stages = min(8, left // ((c["tile_m"] + c["tile_n"]) * 128))
        if stages >= 4:
            break
    return dict(c, stages=stages, buffers=buffers, ctas=1, group=8)


def never_good(sweeps):
    """Those that were measured on three problems or more and never came within 5 % of the best."""
    found = {}
    for _, trials, _ in sweeps:
        best = min(us for us, _ in trials)
        for us, c in trials:
            found.setdefault(tuple(c[f] for f in FIELDS), []).append(us / best)
    return {key for key, ratios in found.items() if len(ratios) >= 3 and min(ratios) > 1.05}


def accumulators(c):
    rows = c["tile_m"] if c["pingpong"] else c["tile_m"] // c["consumers"]
    return rows * c["tile_n"] // 128


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
            elif row := re.match(r"\s+([\d.]+)\s+[\d.]+\s+[\d.]+\s+\[.*?\]\s+(best:)?(.*)", line):
                if row[2]:
                    found[-1][2] = float(row[1])
                elif "tile_m" in row[3]:
                    c = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", row[3])}
                    if c.pop("ctas", 1) == 1:
                        found[-1][1].append((float(row[1]), c))
    return [sweep for sweep in found if sweep[1]]


def loss(p, sweeps):
    """Mean regret of the choice, its worst tenth, and how far predictions are off."""
    regrets, errors = [], []
    for shape, trials, _ in sweeps:
        best = min(us for us, _ in trials)
        predicted = [(cost(p, shape, c), us) for us, c in trials]
        least = min(x for x, _ in predicted)
        weights = [math.exp(-math.log(x / least) / 0.01) for x, _ in predicted] # near ties count, too
        regrets.append(sum(w * math.log(us / best) for w, (_, us) in zip(weights, predicted)) / sum(weights))
        regrets += regrets[-1:] if min(shape) >= 2048 else [] # where most time is spent
        near = [min(abs(math.log(x / us)), 0.4) ** 2 for x, us in predicted if us < 1.4 * best]
        errors.append(sum(near) / len(near))
    worst = sorted(regrets)[-max(1, len(regrets) // 10):]
    return sum(regrets) / len(regrets) + 0.3 * sum(worst) / len(worst) + 0.25 * math.sqrt(sum(errors) / len(errors))


def fit(sweeps, seconds, seed):
    """Simulated annealing from START."""
    draw, begin = random.Random(seed), time.time()
    p = {name: value for name, (value, _) in START.items()}
    now = loss(p, sweeps)
    best, least = dict(p), now
    while (spent := (time.time() - begin) / seconds) < 1:
        q = dict(p)
        for name in draw.sample(FITTED, draw.choice((1, 1, 2, 3))):
            q[name] *= math.exp(draw.gauss(0, 0.15))
        value = loss(q, sweeps)
        if value < now or draw.random() < math.exp((now - value) * 3 / (0.01 * (1 - spent) + 1e-5)):
            p, now = q, value
        if value < least:
            best, least = dict(q), value
    return best


def pick_tiles(p, sweeps):
    """Greedily those configs that leave the least regret over the population, a quarter of it with rows that start inside a
    sector, all of it once more with an epilogue that wants registers. The tile that suits the smallest problems comes last: its reason is given where none can compute."""
    shapes, every = population(7, 300) + [(m, n, k // 16 * 16 + 8) for m, n, k in population(8, 100)], configs()
    poor = never_good(sweeps)
    every = [c for c in every if tuple(c[f] for f in FIELDS) not in poor]
    easy = [c for c in every if accumulators(c) <= 128]
    costs = [(lambda allowed: [cost(p, shape, c) if c in allowed else math.inf for c in every])(pool)
             for pool in (every, easy) for shape in shapes]
    bests = [min(row) for row in costs]
    chosen = [every.index(dict(zip(FIELDS, seed))) for seed in SEEDS]
    least = [min(row[i] for i in chosen) for row in costs]
    while len(chosen) < TILES:
        def regret(i):
            logs = [math.log(min(min(have, row[i]) / best, 10)) for have, row, best in zip(least, costs, bests)]
            return sum(x + 5 * x * x for x in logs) # a large one counts for more
        take = min((i for i in range(len(every)) if i not in chosen), key=regret)
        chosen.append(take)
        least = [min(have, row[take]) for have, row in zip(least, costs)]
        print("%2d  regret %.4f  %s" % (len(chosen), regret(take) / len(costs), every[take]))
    return sorted((every[i] for i in chosen), key=lambda c: -c["tile_m"] * c["tile_n"])


def write_header(p, tiles):
    rows = ["/* gemm_sm90_fit.h - coefficients and tiles, written by scripts/fit_gemm.py from bench/sweeps; never by hand. */",
            "#ifndef CKL_GEMM_SM90_FIT_H", "#define CKL_GEMM_SM90_FIT_H", "", "typedef struct gemm_fit {"]
    rows += ["    double %s; // %s" % (name, text) for name, (_, text) in START.items()]
    rows += ["} gemm_fit;", "", "static const gemm_fit fit = {"]
    rows += ["    .%s = %.6g," % (name, p[name]) for name in START]
    rows += ["};", "", "typedef struct fitted_tile { // in any order; where none can compute, the last one says why",
             "    int %s;" % ", ".join(FIELDS), "} fitted_tile;", "",
             "static const fitted_tile fitted_tiles[] = {"]
    rows += ["    { %s }," % ", ".join(str(c[f]) for f in FIELDS) for c in tiles]
    rows += ["};", "", "#endif", ""]
    with open(HEADER, "w") as out:
        out.write("\n".join(rows))
    subprocess.run(["clang-format", "-i", HEADER], check=False)


def read_header():
    text = open(HEADER).read()
    p = {name: float(re.search(r"\.%s = ([-+.e\d]+)" % name, text)[1]) for name in START}
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
          "peer / first choice %.3f, 5th percentile %.3f"
          % (len(sweeps), 100 * mean(firsts), 100 * min(firsts), 100 * mean(eights), mean(ratios),
             sorted(ratios)[len(ratios) // 20]))


def sample(p, count, seed, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lines.txt"), "w") as lines:
        for i, shape in enumerate(population(seed, count)):
            ranked = sorted(configs(), key=lambda c: cost(p, shape, c))
            some = ranked[:16] + random.Random(i).sample(ranked[16:60], 8)
            with open(os.path.join(folder, "%d.txt" % i), "w") as out:
                out.writelines("sm90 %s\n" % " ".join("%s=%d" % pair for pair in staged(c).items()) for c in some)
            lines.write("m=%d n=%d k=%d\n" % shape)


def check(p, ckl):
    """Every candidate that `ckl explain` shows has this file's cost."""
    compared = 0
    for shape in population(11, 12):
        line = "gemm m=%d n=%d k=%d a=bf16" % shape
        answer = subprocess.run([ckl, "explain", *shlex.split(line), "--device", "emulator:h200"], capture_output=True,
                                text=True, check=True).stdout
        for us, text in re.findall(r"([\d.]+) us, bound by [\w ]+?\s+(ab=.*)", answer):
            c = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", text)}
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
        data = [s for s in read_sweeps(sweeps) if s[0][0] > 1]
        p = fit(data, option("--seconds", 200.0), option("--seed", 1))
        judge(p, data)
        write_header(p, pick_tiles(p, data))
    elif command == "tiles":
        p, _ = read_header()
        write_header(p, pick_tiles(p, read_sweeps(sweeps)))
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
