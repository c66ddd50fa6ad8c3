#!/usr/bin/env python3
"""update_performance.py [RESULT.json ...] - brings the measured tables of README.md and docs/performance.md up to date.

Tables are made from bench/results/*.json (or the files given), as `ckl bench --json` wrote them, and stand between
`<!-- performance -->` and `<!-- /performance -->`. README gets one line a suite, docs/performance.md every row. A file
NAME-ladder.json, by `ckl bench --ladder`, goes to docs/NAME-ladder.md alone.
With --check nothing is written; the exit status says whether the files are up to date.
"""
import argparse
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- performance -->", "<!-- /performance -->"
SCHEMA, VERSION = "cutekernellib.bench", 1
INTENSITY_MATRIX = 16  # FLOP per byte above which TFLOP/s says more than GB/s


def read(path):
    result = json.loads(path.read_text())
    if result.get("schema") != SCHEMA or result.get("version") != VERSION:
        sys.exit(f"{path}: not a result of ckl bench, version {VERSION}")
    result["name"] = path.stem
    return result


def timed(result):
    return [row for row in result["rows"] if row["median_us"] > 0]


def peer(row, role):
    found = [p for p in row["peers"] if p["role"] == role and p["median_us"] > 0 and not p["fault"]]
    return min(found, key=lambda p: p["median_us"], default=None)


def mean_ratio(rows, role):
    ratios = [p["ratio"] for p in (peer(row, role) for row in rows) if p]
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}" if ratios else "-"


def rate(row):
    if row["flops"] > INTENSITY_MATRIX * row["bytes"]:
        return f"{row['tflops']:.1f} TFLOP/s"
    return f"{row['gbs']:.0f} GB/s"


def limits(header):
    text = f"copy {header['copy_gbs']:.0f} GB/s"
    for what in ("read", "write"):
        if header.get(f"{what}_gbs"):
            text += f", {what} {header[f'{what}_gbs']:.0f}"
    if header.get("launch_us"):
        text += f", an empty kernel {header['launch_us']:.2f} us"
    if header["matrix_tflops"]:
        text += f", matrix {header['matrix_tflops']:.0f} TFLOP/s"
    return text


def place(header):
    return f"{header['gpu']}, driver {header['driver']}, {header['date'][:10]}, commit {header['commit'] or 'unknown'}"


def summary_table(results):
    lines = ["| suite | problems | of the physical limit | peer | against its best | against its first choice |",
             "|---|---|---|---|---|---|"]
    for result in results:
        rows = timed(result)
        if all(row["limit"] == "launch" for row in rows):
            continue
        shares = sorted(row["of_limit"] for row in rows if row["limit"] != "launch")
        peers = ", ".join(sorted({p["name"] for row in rows for p in row["peers"]})) or "-"
        lines.append(f"| {result['name']} | {len(rows)} | {shares[0]:.0%} - {shares[-1]:.0%} | {peers} "
                     f"| {mean_ratio(rows, 'best')} | {mean_ratio(rows, 'first')} |")
    lines += ["", f"Geometric means of the peer's time divided by ours, above 1 we are faster; {'; '.join(sorted({place(result['header']) for result in results}))}. "
                  "Every row is in [docs/performance.md](docs/performance.md)."]
    return "\n".join(lines)


def share(row):
    """Of the limit; which one is said where it is not the usual one of memory or matrix units."""
    text = f"{row['of_limit']:.1%}"
    if row["limit"] == "launch":
        text += " of a launch"
    return text + (" (not credible)" if row["beyond_limit"] else "")


def label(p):
    return p["name"] + (" compile" if p["config"].endswith(" compile") else "")


def full_row(row):
    best, first = peer(row, "best"), peer(row, "first")
    cells = [f"`{row['line']}`", f"{row['median_us']:.2f}", f"{row['p20_us']:.2f} - {row['p80_us']:.2f}", rate(row),
             share(row), f"{best['median_us']:.2f} {label(best)}" if best else "-", f"{best['ratio']:.3f}" if best else "-",
             f"{first['ratio']:.3f}" if first else "-", f"{row['clock_mhz']:.0f}", f"{row['power_w']:.0f}"]
    return "| " + " | ".join(cells) + " |"


def full_tables(results):
    parts = []
    for result in results:
        header = result["header"]
        parts += [f"## {result['name']}", "",
                  f"{place(header)}. {header['protocol']}. Limits measured in that run: {limits(header)}.", "",
                  "| problem | median us | p20 - p80 | rate | of limit | peer's best, us | ratio | to its first "
                  "| SM MHz | W |", "|---|---|---|---|---|---|---|---|---|---|"]
        parts += [full_row(row) for row in timed(result)]
        failed = [row for row in result["rows"] if row["median_us"] <= 0]
        parts += ["", *(f"Not timed: `{row['line']}`: {row['fault']}" for row in failed)]
    return "\n".join(parts).rstrip()


def is_ladder(result):
    return result["name"].endswith("-ladder")


def ladder_row(row, before, first):
    return (f"| `{row['config'].split()[1]}` | {row['median_us']:.2f} | {row['p20_us']:.2f} - {row['p80_us']:.2f} "
            f"| {rate(row)} | {row['of_limit']:.1%} | {before['median_us'] / row['median_us']:.2f} "
            f"| {first['median_us'] / row['median_us']:.2f} |")


def ladder_tables(result):
    problems = {}
    for row in result["rows"]:
        problems.setdefault(re.sub(r" impl=\S+", "", row["line"]), []).append(row)
    parts = [f"{place(result['header'])}. {result['header']['protocol']}. {limits(result['header'])}, measured in that run."]
    for line, rows in problems.items():
        parts += ["", f"`{line}`", "", "| step | median us | p20 - p80 | rate | of copying | x before | x first |",
                  "|---|---|---|---|---|---|---|"]
        parts += [ladder_row(row, rows[max(i - 1, 0)], rows[0]) for i, row in enumerate(rows)]
    return "\n".join(parts)


def replace(path, table, check):
    """Puts a table between the markers of a file; true if the file was up to date."""
    old = path.read_text()
    if BEGIN not in old or END not in old:
        sys.exit(f"{path}: no line {BEGIN} and {END}")
    new = re.sub(f"{BEGIN}.*?{END}", lambda _: f"{BEGIN}\n{table}\n{END}", old, flags=re.S)
    if new != old and not check:
        path.write_text(new)
    return new == old


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = [read(path) for path in options.results or sorted((ROOT / "bench/results").glob("*.json"))]
    if not results:
        sys.exit("no results: ckl bench --suite bench/suites/gemm-f16.txt --json bench/results/gemm-f16.json")
    ladders, results = [r for r in results if is_ladder(r)], [r for r in results if not is_ladder(r)]
    current = [replace(ROOT / f"docs/{ladder['name']}.md", ladder_tables(ladder), options.check) for ladder in ladders]
    current += [replace(ROOT / "docs/performance.md", full_tables(results), options.check),
               replace(ROOT / "README.md", summary_table(results), options.check)]
    sys.exit(1 if options.check and not all(current) else 0)


if __name__ == "__main__":
    main()
