#!/usr/bin/env python3
"""update_performance.py [RESULT.json ...] - brings the measured tables of README.md and docs/performance.md up to date.

Tables are made from bench/results/*.json (or the files given), as `ckl bench --json` wrote them, and stand between
`<!-- performance -->` and `<!-- /performance -->`. README gets one line a suite, docs/performance.md every row, and
docs/images/ratios.svg is the chart of the ratios. A file NAME-ladder.json, by `ckl bench --ladder`, goes to
docs/NAME-ladder.md alone. Samples in bench/results/sample/*.json, by scripts/bench_sample.sh, are summed up in
docs/performance.md between `<!-- samples -->` and `<!-- /samples -->`, their worst problems stand between `<!-- worst -->` and
`<!-- /worst -->`, and what was asked of them beside what they came to between `<!-- targets -->` and `<!-- /targets -->`. All problems of suites and samples where a peer is faster stand between `<!-- slower -->` and
`<!-- /slower -->`. bench/results/tuned/NAME-model.json and NAME-tuned.json, the
same problems with CKL_TUNED=off and with the entries that `ckl tune` found, stand there between `<!-- tuned -->` and `<!-- /tuned -->`.
With --check nothing is written; the exit status says whether the files are up to date.
"""
import argparse
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORST = 5  # problems of a sample that are listed
SLOWER = 0.97  # ratios below are listed where others are faster
SCHEMA, VERSION = "cutekernellib.bench", 1
INTENSITY_MATRIX = 16  # FLOP per byte above which TFLOP/s says more than GB/s
FIRST = ["gemm-f16", "norm"]  # suites whose peers are hardest to beat come first
CHART = ROOT / "docs/images/ratios.svg"


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
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"


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


def machine(header):
    return f"{header['gpu']}, driver {header['driver']}, {header['date'][:10]}"


def place(header):
    return f"{machine(header)}, commit {header['commit'] or 'unknown'}"


def places(headers):
    """The same of several, by machine and day."""
    commits = {}
    for header in headers:
        commits.setdefault(machine(header), set()).add(header["commit"] or "unknown")
    return "; ".join(f"{where}, at {', '.join(sorted(of))}" for where, of in sorted(commits.items()))


def summary_table(results):
    lines = ["| suite | against the peer's best | its first choice | peer | problems | of the physical limit |",
             "|---|---|---|---|---|---|"]
    for result in by_importance(results):
        rows = timed(result)
        if all(row["limit"] == "launch" for row in rows):
            continue
        shares = sorted(row["of_limit"] for row in rows if row["limit"] != "launch")
        peers = ", ".join(sorted({p["name"] for row in rows for p in row["peers"]})) or "-"
        lines.append(f"| {result['name']} | {mean_ratio(rows, 'best')} | {mean_ratio(rows, 'first')} | {peers} "
                     f"| {len(rows)} | {shares[0]:.0%} - {shares[-1]:.0%} |")
    lines += ["", f"Geometric means of the peer's time divided by ours, above 1 we are faster; {places(result['header'] for result in results)}. "
                  "Every row is in [docs/performance.md](docs/performance.md)."]
    return "\n".join(lines)


def by_importance(results):
    return sorted(results, key=lambda r: (FIRST.index(r["name"]) if r["name"] in FIRST else len(FIRST), r["name"]))


def chart(results):
    """An SVG: a line of dots a suite, the peer's best time divided by ours of each problem, and their geometric mean."""
    low, high, left, width, line = 0.5, 16, 120, 560, 26
    def x(ratio):
        return left + width * math.log(min(max(ratio, low), high) / low) / math.log(high / low)
    suites = [(r["name"], [p["ratio"] for p in (peer(row, "best") for row in timed(r)) if p]) for r in by_importance(results)]
    suites = [(name, ratios) for name, ratios in suites if ratios]
    height = line * len(suites) + 62
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {height}" font-family="sans-serif" '
           'font-size="13">', f'<rect width="100%" height="{height}" fill="#ffffff"/>',
           f'<text x="{left}" y="18" fill="#333333">time of the best peer divided by ours, every problem of the suites: '
           'right of 1 we are faster</text>']
    for tick in (0.5, 1, 2, 4, 8, 16):
        strong = "#333333" if tick == 1 else "#dddddd"
        out.append(f'<line x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="28" y2="{height - 26}" stroke="{strong}"/>')
        out.append(f'<text x="{x(tick):.1f}" y="{height - 10}" text-anchor="middle" fill="#666666">{tick:g}</text>')
    for i, (name, ratios) in enumerate(suites):
        y = 44 + line * i
        mean = geometric_mean(ratios)
        out.append(f'<text x="{left - 10}" y="{y + 4}" text-anchor="end" fill="#333333">{name}</text>')
        out += [f'<circle cx="{x(ratio):.1f}" cy="{y}" r="3.5" fill="#4477aa" fill-opacity="0.45"/>' for ratio in ratios]
        out.append(f'<line x1="{x(mean):.1f}" x2="{x(mean):.1f}" y1="{y - 9}" y2="{y + 9}" stroke="#cc3311" stroke-width="3"/>')
        out.append(f'<text x="{left + width + 12}" y="{y + 4}" fill="#cc3311">{mean:.2f}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def share(row):
    """Of the limit; which one is said where it is not the usual one of memory or matrix units."""
    text = f"{row['of_limit']:.1%}"
    if row["limit"] == "launch":
        text += " of a launch"
    return text + (" (beyond it)" if row["beyond_limit"] else "") + (" (the GPU was shared)" if row.get("shared") else "")


def label(p):
    variant = p["config"].split()[-1]
    return p["name"] + (f" {variant}" if variant in ("compile", "liger") else "")


def chain_ratio(row, best):
    return f"{best['chain_us'] / row['chain_us']:.3f}" if best and best.get("chain_us") and row.get("chain_us") else "-"


def full_row(row):
    best, first = peer(row, "best"), peer(row, "first")
    cells = [f"`{row['line']}`", f"{row['median_us']:.2f}", f"{row['p20_us']:.2f} - {row['p80_us']:.2f}", rate(row),
             share(row), f"{best['median_us']:.2f} {label(best)}" if best else "-", f"{best['ratio']:.3f}" if best else "-",
             f"{first['ratio']:.3f}" if first else "-", chain_ratio(row, best)]
    return "| " + " | ".join(cells) + " |"


def full_tables(results):
    parts = [f"{protocol}.\n" for protocol in sorted({result["header"]["protocol"] for result in results})]
    for result in results:
        header = result["header"]
        parts += [f"### {result['name']}", "", f"{place(header)}. Limits measured in that run: {limits(header)}.", "",
                  "| problem | median us | p20 - p80 | rate | of limit | peer's best, us | ratio | to its first | in a chain |",
                  "|---|---|---|---|---|---|---|---|---|"]
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
        parts += ["", f"`{line}`", "", "| step | median us | p20 - p80 | rate | of the limit | x before | x first |",
                  "|---|---|---|---|---|---|---|"]
        parts += [ladder_row(row, rows[max(i - 1, 0)], rows[0]) for i, row in enumerate(rows)]
    return "\n".join(parts)


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def percentile(values, percent):
    """Linear between neighbours.

    >>> percentile([4, 1, 2, 3, 5], 5), percentile([7], 5)
    (1.2, 7.0)
    """
    place = percent / 100 * (len(values) - 1)
    below, above = sorted(values)[math.floor(place)], sorted(values)[math.ceil(place)]
    return below + (place - math.floor(place)) * (above - below)


def spread(values, form):
    """Geometric mean and 5th percentile as two cells.

    >>> spread([0.5, 2], ".3f"), spread([], ".1%")
    ('1.000 | 0.575', '- | -')
    """
    return f"{geometric_mean(values):{form}} | {percentile(values, 5):{form}}" if values else "- | -"


def ratio(row):
    best = peer(row, "best")
    return best["ratio"] if best else None


def sample_summary(sample):
    rows = timed(sample)
    ratios = [ratio(row) for row in rows if ratio(row)]
    return (f"| {sample['name']} | {len(rows)} of {len(sample['rows'])} | {spread(ratios, '.3f')} | {len(ratios)} "
            f"| {spread([row['of_limit'] for row in rows], '.1%')} |")


def sample_row(row):
    best = peer(row, "best")
    against = f"{best['median_us']:.2f} {label(best)} | {best['ratio']:.3f}" if best else "- | -"
    return f"| `{row['line']}` | {row['median_us']:.2f} | {share(row)} | {against} |"


def worst_rows(sample):
    """The worst by ratio, then those by share of the limit."""
    rows = timed(sample)
    by_ratio = sorted((row for row in rows if ratio(row)), key=ratio)[:WORST]
    by_share = sorted(rows, key=lambda row: row["of_limit"])[:WORST]
    lines = ["", f"### Sample of {sample['name']}", "", "| problem | median us | of limit | peer's best, us | ratio |", "|---|---|---|---|---|"]
    lines += [sample_row(row) for row in by_ratio + [row for row in by_share if row not in by_ratio]]
    return lines + ["", *(f"Not timed: `{row['line']}`: {row['fault']}" for row in sample["rows"] if row["median_us"] <= 0)]


def sample_tables(samples):
    if not samples:
        return "No sample has been measured yet."
    lines = ["| operator | timed | ratio | 5th percentile | with a peer | of limit | 5th percentile |",
             "|---|---|---|---|---|---|---|", *map(sample_summary, samples)]
    return "\n".join(lines + ["", f"{places(sample['header'] for sample in samples)}."])


def worst_tables(samples):
    return "\n".join(line for sample in samples for line in worst_rows(sample)).strip()


def slower_table(results):
    """Every problem, but for kernels taken by name, where the best peer is faster by more than 3 percent: by operator, the worst first."""
    rows = {row["line"]: row for result in results for row in timed(result) if (ratio(row) or 1) < SLOWER and "impl=" not in row["line"]}
    lines = ["| problem | median us | of limit | peer's best, us | ratio |", "|---|---|---|---|---|"]
    return "\n".join(lines + [sample_row(row) for row in sorted(rows.values(), key=lambda row: (row["op"], ratio(row)))])


def keys_of(row):
    return dict(word.split("=", 1) for word in row["line"].split()[1:] if "=" in word)


def is_16_bit_nt(row):
    keys = keys_of(row)
    return (row["op"] == "gemm" and keys.get("a", "f16") in ("f16", "bf16") and keys.get("layout", "nt") == "nt"
            and all(int(keys.get(size, 1024)) % 8 == 0 for size in "mnk"))


def of_large(*operators, backward=None):
    def test(row):
        wanted = backward is None or ("direction=backward" in row["line"]) == backward
        return row["op"] in operators and row["bytes"] > LARGE and wanted
    return test


LARGE, SMALL = 64e6, 1e6  # bytes
LINES = ("softmax", "layernorm", "rmsnorm", "groupnorm", "crossentropy")
TARGETS = [  # a class of problems; mean and 5th percentile of the limit that were asked, and of the ratio; None: nothing was
    ("gemm of 16 bits, nt, sizes that are multiples of 8", is_16_bit_nt, (None, None), (1.02, 0.93)),
    ("row operators over 64 MB", of_large(*LINES, backward=False), (0.88, 0.75), (1.15, 0.97)),
    ("their gradients", of_large(*LINES, backward=True), (0.82, 0.65), (1.5, None)),
    ("reduce over 64 MB", of_large("reduce"), (0.92, 0.75), (None, None)),
    ("transpose and permute over 64 MB", of_large("transpose", "permute"), (0.85, 0.65), (None, 1.0)),
    ("element-wise over 64 MB", of_large("elementwise"), (0.92, 0.70), (None, None)),
    ("tensors under 1 MB", lambda row: row["bytes"] < SMALL, (None, None), (1.5, 1.1)),
]


def beside(measured, asked, form):
    """Geometric mean and 5th percentile, each with what was asked.

    >>> beside([0.5, 2], (1.5, None), ".2f"), beside([], (1.5, None), ".2f")
    ('1.00 (1.50) | 0.57', '- (1.50) | -')
    """
    found = (geometric_mean(measured), percentile(measured, 5)) if measured else (None, None)
    cells = [(f"{a:{form}}" if a is not None else "-") + (f" ({b:{form}})" if b is not None else "") for a, b in zip(found, asked)]
    return " | ".join(cells)


def target_table(samples):
    rows = [row for sample in samples for row in timed(sample)]
    lines = ["| problems of the samples | how many | of the limit | 5th percentile | ratio | 5th percentile |", "|---|---|---|---|---|---|"]
    for words, test, limit, against in TARGETS:
        chosen = [row for row in rows if test(row)]
        lines.append(f"| {words} | {len(chosen)} | {beside([row['of_limit'] for row in chosen], limit, '.1%')} "
                     f"| {beside([ratio(row) for row in chosen if ratio(row)], against, '.3f')} |")
    return "\n".join(lines)


def tuned_rows(model, tuned):
    """Pairs of rows of the same problem: as the plan chooses, and as the tuned store says."""
    entries = {row["line"]: row for row in timed(tuned)}
    return [(row, entries[row["line"]]) for row in timed(model) if row["line"] in entries]


def tuned_row(model, tuned):
    gain = 1 - tuned["median_us"] / model["median_us"]
    noise = model["half_width"] + tuned["half_width"]
    verdict = "the same kernel" if model["config"] == tuned["config"] else "within noise" if abs(gain) <= noise else ""
    return f"| `{model['line']}` | {model['median_us']:.2f} | {tuned['median_us']:.2f} | {gain:.1%} | {verdict} |"


def tuned_table(results):
    pairs = [pair for model in results if model["name"].endswith("-model")
             for tuned in results if tuned["name"] == model["name"].replace("-model", "-tuned")
             for pair in tuned_rows(model, tuned)]
    if not pairs:
        return "None has been measured."
    mean = geometric_mean([model["median_us"] / tuned["median_us"] for model, tuned in pairs])
    lines = ["| problem | by rules and model, us | by the entry, us | gain | |", "|---|---|---|---|---|", *(tuned_row(*pair) for pair in pairs)]
    places = "; ".join(sorted({place(result["header"]) for result in results}))
    return "\n".join(lines + ["", f"{mean:.3f} times as fast in geometric mean; {places}."])


def write(path, new, check):
    """True if the file was up to date."""
    current = path.exists() and path.read_text() == new
    if not current and not check:
        path.write_text(new)
    return current


def replace(path, tables, check):
    """Puts tables between the markers of a file, by the markers' names; true if the file was up to date."""
    new = path.read_text()
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
        if begin not in new or end not in new:
            sys.exit(f"{path}: no line {begin} and {end}")
        new = re.sub(f"{begin}.*?{end}", lambda _: f"{begin}\n{table}\n{end}", new, flags=re.S)
    return write(path, new, check)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="*", type=pathlib.Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = [read(path) for path in options.results or sorted((ROOT / "bench/results").glob("*.json"))]
    if not results:
        sys.exit("no results: ckl bench --suite bench/suites/gemm-f16.txt --json bench/results/gemm-f16.json")
    ladders, results = [r for r in results if is_ladder(r)], [r for r in results if not is_ladder(r)]
    samples = [read(path) for path in sorted((ROOT / "bench/results/sample").glob("*.json"))]
    current = [replace(ROOT / f"docs/{ladder['name']}.md", {"performance": ladder_tables(ladder)}, options.check)
               for ladder in ladders]
    tuned = [read(path) for path in sorted((ROOT / "bench/results/tuned").glob("*.json"))]
    tables = {"samples": sample_tables(samples), "worst": worst_tables(samples), "targets": target_table(samples), "slower": slower_table(results + samples),
              "tuned": tuned_table(tuned), "performance": full_tables(results)}
    current += [replace(ROOT / "docs/performance.md", tables, options.check),
               replace(ROOT / "README.md", {"performance": summary_table(results)}, options.check),
               write(CHART, chart(results), options.check)]
    sys.exit(1 if options.check and not all(current) else 0)


if __name__ == "__main__":
    main()
