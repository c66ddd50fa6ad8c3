#!/usr/bin/env bash
# bench_sample.sh [options] [OPERATOR ...] - measures a random sample of what users have, of every operator if none is named.
#
#   --count N       problems of an operator (200)
#   --seed S        of the draw (1); `ckl sample` prints the lines
#   --seconds T     for all operators together (3600): no problem begins later
#   --bytes B       the largest problem (2^30)
#   --results DIR   for a file OPERATOR.json each (bench/results/sample), written every few seconds: whatever stops the run, what
#                   was measured stays, and as much of each operator: their problems are taken in turn, lines are in random order
#   --ckl PATH      build/ckl
#
# SECONDS_A_ROW (0.05) is the time of sampling a problem. CKL_TORCH_COMPILE=0 leaves torch.compile out, which takes seconds a
# problem. Afterwards scripts/update_performance.py makes the tables. A failed problem fails at the end, after the others.
set -euo pipefail
cd "$(dirname "$0")/.."

count=200 seed=1 seconds=3600 bytes=2^30 results=bench/results/sample ckl=build/ckl
while [[ ${1:-} == --* ]]; do
    case $1 in
    --count | --seed | --seconds | --bytes | --results | --ckl) declare "${1#--}=${2:?bench_sample: $1 needs a value}" ;;
    *)
        echo "bench_sample: unknown option $1" >&2
        exit 2
        ;;
    esac
    shift 2
done
operators=("$@")
[[ $# -gt 0 ]] || mapfile -t operators < <("$ckl" sample --count 1 | cut -d' ' -f1)

lines=$(mktemp -d)
trap 'rm -r "$lines"' EXIT
suites=
for operator in "${operators[@]}"; do
    "$ckl" sample "$operator" --count "$count" --seed "$seed" --bytes "$bytes" >"$lines/$operator.txt"
    suites+=${suites:+,}$lines/$operator.txt
done
mkdir -p "$results"
export OMP_WAIT_POLICY=passive # threads that wait take no core from those that work
"$ckl" bench --suite "$suites" --seconds "${SECONDS_A_ROW:-0.05}" --within "$seconds" --json "$results/"
