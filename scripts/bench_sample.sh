#!/usr/bin/env bash
# bench_sample.sh [options] [OPERATOR ...] - measures a random sample of what users have, of every operator if none is named.
#
#   --count N       problems of an operator (200)
#   --seed S        of the draw (1); `ckl sample` prints the lines
#   --seconds T     for all operators together (3600): each gets an even share of what is left, and is stopped then
#   --bytes B       the largest problem (2^30)
#   --results DIR   for a file OPERATOR.json each (bench/results/sample), written after every problem: whatever stops the run, what
#                   was measured stays, and lines are in random order, so that part of a sample is one
#   --ckl PATH      build/ckl
#
# SECONDS_A_ROW (0.1) is the time of sampling a problem. CKL_TORCH_COMPILE=0 leaves torch.compile out, which takes seconds a
# problem. Afterwards scripts/update_performance.py makes the tables. A failed problem fails at the end, after the others.
set -uo pipefail
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
[[ ${#operators[@]} -gt 0 ]] || exit 1

mkdir -p "$results"
end=$((SECONDS + seconds))
failed=
left=${#operators[@]}
for operator in "${operators[@]}"; do
    share=$(((end - SECONDS) / left--))
    if [[ $share -le 0 ]]; then
        failed+=" $operator (no time left)"
        continue
    fi
    echo "== $operator, $share s"
    lines=$("$ckl" sample "$operator" --count "$count" --seed "$seed" --bytes "$bytes") || exit 1
    timeout -k 10 "$share" "$ckl" bench --suite - --seconds "${SECONDS_A_ROW:-0.1}" --json "$results/$operator.json" <<<"$lines"
    status=$?
    if [[ $status -eq 124 || $status -eq 137 ]]; then
        echo "bench_sample: $operator was stopped after $share s"
    elif [[ $status -ne 0 ]]; then
        failed+=" $operator"
    fi
done
[[ -z $failed ]] || {
    echo "bench_sample: failed:$failed" >&2
    exit 1
}
