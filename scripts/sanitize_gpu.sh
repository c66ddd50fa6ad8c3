#!/usr/bin/env bash
# sanitize_gpu.sh [CKL] - small problems through every kernel under NVIDIA's compute-sanitizer, all four tools; needs a GPU.
#
# Each tool runs `ckl verify` over bench/suites/smoke.txt and smoke-kinds.txt, or the suite SUITE; before them it runs alone, which
# compiles what can be kept, so that the first tool need not. Each names its slowest runs. The last line is "N passed, N failed"; a
# failed tool's words stand above it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
ckl=${1:-build/ckl}
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
log=$(mktemp)
trap 'rm -f "$log" "$log".*' EXIT
suite=${SUITE:-$log.suite}
cat bench/suites/smoke.txt bench/suites/smoke-kinds.txt >"$log.suite"
passed=0
failed=0

[[ -x $sanitizer ]] || {
    echo "sanitize_gpu: no compute-sanitizer: install the CUDA toolkit" >&2
    exit 3
}
for tool in alone memcheck racecheck synccheck initcheck; do
    begin=$SECONDS
    under=("$sanitizer" --tool "$tool" --error-exitcode 9)
    [[ $tool != alone ]] || under=()
    if "${under[@]}" "$ckl" verify --suite "$suite" --device cuda --seeds 1 --slowest 3 >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        grep -vE '^cuda:0: [0-9]+ of' "$log" | tail -n 60
    fi
    grep -E '^ *[0-9.]+ s: ' "$log"
    echo "$tool: $(grep -E '^========= (ERROR|RACECHECK) SUMMARY' "$log" | tail -1 | cut -c11-), $((SECONDS - begin)) s"
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
