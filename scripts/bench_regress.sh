#!/usr/bin/env bash
# bench_regress.sh [CKL] - measures the suites again and compares them with bench/results/: fails where a case is slower.
#
# Its results go to build/regress/. SUITES (all that bench/results has) and SECONDS_A_ROW as for bench_all.sh; TOLERANCE is what a case may be slower by,
# in percent (3). The committed results must be of this machine and method: `ckl compare` says where they are not.
set -euo pipefail
cd "$(dirname "$0")/.."

ckl=${1:-build/ckl}
folder=$(dirname "$ckl")/regress
failed=

"$ckl" run add n=1000 --device cuda >/dev/null # without a GPU it says why
mkdir -p "$folder"
suites=${SUITES:-$(basename -as .json bench/results/*.json | grep -v -- '-ladder$')}
files=$(printf ',bench/suites/%s.txt' $suites)
"$ckl" bench --suite "${files#,}" --seconds "${SECONDS_A_ROW:-0.2}" --json "$folder/" >/dev/null || failed=" a row"
for suite in $suites; do
    echo "== $suite"
    "$ckl" compare "bench/results/$suite.json" "$folder/$suite.json" --tolerance "${TOLERANCE:-3}" || failed="$failed $suite"
done
[[ -z $failed ]] || {
    echo "bench_regress: slower or failed:$failed" >&2
    exit 1
}
