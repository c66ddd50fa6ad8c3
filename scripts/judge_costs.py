#!/usr/bin/env python3
"""judge_costs.py - how far predicted costs are from measured times, by implementation.

    scripts/judge_costs.py CKL [--worst N] [--most X] [FILE...]   FILEs are of `ckl bench --json`, races, sweeps behind lines "== LINE",
                                                                  or of `ckl tune`; none: bench/results/*.json and bench/results/sample/*.json
    scripts/judge_costs.py CKL --picks [--across] [--worst N] [FILE...]   none: all below bench/results, and bench/sweeps

Asks CKL what it predicts for each config that was measured, of the rows whose config is taken today. Of every implementation: rows,
how many are refused, the geometric mean of predicted / measured, the 5th and 95th percentile. --worst shows the N farthest of each;
with --most a mean of eight rows or more beyond X or below 1/X is a failure. --picks: of lines that were measured with several
configs of an implementation in one file, the time of the cheapest by prediction over the fastest: mean and worst; --across: of all
implementations of an operator together, whose rows are those that the chooser compares.
"""
import collections
import glob
import json
import math
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = ROOT + "/bench/results"
GONE = {"permute": " threads=256", "transpose": " threads=256"}  # fields that configs had, with what all have instead


def rows_of(path):
    """(line, config, microseconds) of each row that was measured"""
    if path.endswith(".json"):
        with open(path) as file:
            result = json.load(file)
        for row in result["rows"] if result["schema"] == "cutekernellib.bench" else []:
            if row.get("config") and not row["fault"]:
                yield without_choice(row["line"]), row["config"].split(" ", 1)[1], row["median_us"]
        return
    if path.endswith(".jsonl"):
        yield from trials_of(path)
        return
    line = None
    for text in open(path):
        if race := re.match(r"\s*([\d.]+) .*share.* MB +[\d.]+ (.*?) impl=(\w+)(?: config='([^']*)')? \|", text):
            yield race[2], f"{race[3]} {race[4] or ''}".strip(), float(race[1]) # what was forced alone: other configs are cut
        elif text.startswith("== "):
            line = without_choice(text[3:].strip())
            line = "gemm " + line if "=" in line.split()[0] else line
        elif line and (found := re.match(r"\s*([\d.]+)\s+[\d.]+\s+[\d.]+\s+\[.*?\]\s+(\w+ \w+=.*)", text)):
            yield line, found[2].strip(), float(found[1])


def trials_of(path):
    """Of a search; clocks change while it runs, so times are in those of the plan's choice, which was timed beside each."""
    with open(path) as file:
        trials = [trial for trial in map(json.loads, file) if trial.get("median_us")]
    middle = percentile([trial["choice_us"] for trial in trials], .5)
    for trial in trials:
        yield without_choice(trial["line"]), trial["config"], trial["median_us"] / trial["choice_us"] * middle


def without_choice(line):
    return re.sub(r"\s(impl=\S+|config=('[^']*'|\S+))", "", line)


def predictions(ckl, rows):
    """Of each row microseconds, or why there are none."""
    lines = "".join(f"{line} config='{config.replace(GONE.get(line.split()[0], '?'), '')}'\n" for line, config, _ in rows)
    answer = subprocess.run([ckl, "explain", "--costs", "--suite", "-", "--device", "emulator:h200"], input=lines,
                            capture_output=True, text=True, check=True).stdout
    found = answer.splitlines()
    if len(found) != len(rows):
        sys.exit(f"{ckl} answers {len(found)} of {len(rows)} lines")
    return [float(text.split()[0]) if text[0].isdigit() else text for text in found]


def implementation(line, config):
    return f"{line.split()[0]} {config.split()[0]}"


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def errors(ckl, paths, worst, most):
    rows = sorted({row for path in paths for row in rows_of(path)})
    good, refused, failed = collections.defaultdict(list), collections.Counter(), False
    for (line, config, us), cost in zip(rows, predictions(ckl, rows)):
        name = implementation(line, config)
        good[name] += [(cost / us, us, f"{line}: {config}")] if isinstance(cost, float) else []
        refused[name] += isinstance(cost, str)
    print(f"{'implementation':30s}   rows  refused   mean   5th  95th")
    for name, all_of in sorted(good.items()):
        ratios = [ratio for ratio, _, _ in all_of] or [1]
        far = bool(most) and len(all_of) >= 8 and abs(math.log(mean(ratios))) > math.log(most)
        failed |= far
        print(f"{name:30s} {len(all_of):6d} {refused[name]:8d} {mean(ratios):6.2f} {percentile(ratios, .05):5.2f} "
              f"{percentile(ratios, .95):5.2f}{'  too far' if far else ''}")
        for ratio, us, text in sorted(all_of, key=lambda row: -abs(math.log(row[0])))[:worst]:
            print(f"    {ratio:5.2f} of {us:9.2f} us  {text}")
    return failed


def picks(ckl, paths, worst, across):
    measured = sorted({(path, *row) for path in paths for row in rows_of(path)})
    of_line = collections.defaultdict(list)
    for (path, line, config, us), cost in zip(measured, predictions(ckl, [row[1:] for row in measured])):
        if isinstance(cost, float):
            name = line.split()[0] if across else implementation(line, config)
            of_line[name, path, line].append((cost, us, config))
    losses = collections.defaultdict(list)
    for (name, _, line), tried in of_line.items():
        if len({config for _, _, config in tried}) > 1:
            losses[name].append((min(tried)[1] / min(us for _, us, _ in tried), len(tried), f"{line}: {min(tried)[2]}"))
    print(f"{'implementation':30s}  lines  configs   mean  worst")
    for name, lost in sorted(losses.items()):
        print(f"{name:30s} {len(lost):6d} {sum(count for _, count, _ in lost):8d} {mean([x for x, _, _ in lost]):6.3f} {max(lost)[0]:6.3f}")
        for loss, _, text in sorted(lost, reverse=True)[:worst]:
            print(f"    {loss:6.3f}  {text}")


def option(arguments, name):
    if name not in arguments:
        return 0
    at = arguments.index(name)
    del arguments[at]
    return float(arguments.pop(at))


def main():
    arguments = sys.argv[1:]
    worst, most = int(option(arguments, "--worst")), option(arguments, "--most")
    ckl, *paths = [a for a in arguments if a not in ("--picks", "--across")] or sys.exit(__doc__)
    if "--picks" in arguments:
        texts = glob.glob(RESULTS + "/steps/*.txt") + glob.glob(ROOT + "/bench/sweeps/*.txt")
        picks(ckl, paths or glob.glob(RESULTS + "/**/*.json", recursive=True) + texts, worst, "--across" in arguments)
    elif errors(ckl, paths or glob.glob(RESULTS + "/*.json") + glob.glob(RESULTS + "/sample/*.json"), worst, most):
        sys.exit(1)


if __name__ == "__main__":
    main()
