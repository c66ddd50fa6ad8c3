#!/usr/bin/env bash
# docs.sh BUILD - the API reference as HTML in BUILD/docs.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
scripts/setup.sh docs
mkdir -p "$build/docs"
(cat Doxyfile && echo "OUTPUT_DIRECTORY = $build/docs") | doxygen - >"$build/docs/doxygen.log"
echo "API reference: $build/docs/html/index.html"
