#!/usr/bin/env bash
# docs.sh BUILD - guides and API reference as one HTML site in BUILD/docs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
scripts/setup.sh docs
mkdir -p "$build/docs"
pages=$(sed -n '/^## More/,$p' README.md | grep -o '[a-zA-Z/-]*\.md' | tr '\n' ' ') # in the order in which it names them
(cat Doxyfile && echo "INPUT = include README.md $pages bench/notes" && echo "OUTPUT_DIRECTORY = $build/docs") |
    doxygen - >"$build/docs/doxygen.log"
echo "Guides and API reference: $build/docs/html/index.html"
