#!/usr/bin/env python3
"""fit_costs.py - fits coefficients of a cost model to measured times, by building ckl with others and asking it again.

    scripts/fit_costs.py BUILD HEADER NAMES IMPLEMENTATIONS FILE...
    scripts/fit_costs.py build src/skeletons/memory_fit.h cluster,serial,spill 'softmax row,rmsnorm forward' bench/sweeps/rows-first.txt

Changes `.name = value` of HEADER by smaller and smaller factors, one of NAMES at a time, and keeps what is better for the rows of FILEs (those
of judge_costs.py) that are of IMPLEMENTATIONS: squared logarithms of predicted / measured, near the fastest config of a line most, and
what the cheapest by prediction loses to that. Some minutes; HEADER has the best so far whenever it ends.
"""
import collections
import math
import re
import subprocess
import sys

from judge_costs import implementation, predictions, rows_of

FACTORS = (1.4, 1.15, 1.05, 1.02)


def read(header):
    with open(header) as file:
        return file.read()


def write(header, text):
    with open(header, "w") as file:
        file.write(text)


def scaled(text, name, factor):
    return re.sub(rf"(?<=\.{name} = )[-+.e\d]+", lambda value: f"{float(value[0]) * factor:.6g}", text)


def loss(build, measured):
    subprocess.run(["cmake", "--build", build, "--target", "ckl"], check=True, stdout=subprocess.DEVNULL)
    of_line = collections.defaultdict(list)
    for (path, line, config, us), cost in zip(measured, predictions(f"{build}/ckl", [row[1:] for row in measured])):
        if isinstance(cost, float):
            of_line[path, line, implementation(line, config)].append((cost, us))
    total = weights = 0
    for tried in of_line.values():
        fastest = min(us for _, us in tried)
        total += 2 * (min(tried)[1] / fastest - 1)
        for cost, us in tried:
            weights += (fastest / us) ** 0.5
            total += (fastest / us) ** 0.5 * math.log(cost / us) ** 2
    return total / weights


def fit(build, header, names, measured):
    best = loss(build, measured)
    print(f"{best:.5f} of {len(measured)} rows", flush=True)
    for factor in FACTORS:
        for name in names:
            for change in (factor, 1 / factor):
                while True: # on, as long as it helps
                    before = read(header)
                    write(header, scaled(before, name, change))
                    now = loss(build, measured)
                    if now >= best:
                        write(header, before)
                        break
                    best = now
                    print(f"{best:.5f} {name} * {change:.3f}", flush=True)
    loss(build, measured) # ckl as the header is


def main():
    if len(sys.argv) < 6:
        sys.exit(__doc__)
    build, header, names, wanted, *paths = sys.argv[1:]
    names, wanted, text = names.split(","), wanted.split(","), read(header)
    if missing := [name for name in names if scaled(text, name, 2) == text]:
        sys.exit(f"{header}: there is no .{missing[0]} = NUMBER")
    rows = sorted({(path, *row) for path in paths for row in rows_of(path)})
    fit(build, header, names, [row for row in rows if implementation(row[1], row[2]) in wanted])


if __name__ == "__main__":
    main()
