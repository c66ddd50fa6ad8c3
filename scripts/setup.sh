#!/usr/bin/env bash
# setup.sh - installs the system packages that building and testing need, or prints the command that does.
# Usage: scripts/setup.sh [docs]    With docs, also what the API reference needs. Quick when nothing is missing.
set -euo pipefail

missing=()

need() { # need PACKAGE TEST...: the package is missing if the test fails
    local package=$1
    shift
    "$@" >/dev/null 2>&1 || missing+=("$package")
}

header() { # a C header is on the include path
    echo "#include <$1>" | cc -E -
}

need gcc command -v cc
need make command -v make
need cmake command -v cmake
need pkg-config command -v pkg-config
need libc6-dev header stdio.h
need libjansson-dev pkg-config --exists jansson
need libcmocka-dev pkg-config --exists cmocka
if [[ ${1:-} == docs ]]; then
    need doxygen command -v doxygen
fi

[[ ${#missing[@]} -eq 0 ]] && exit 0

install=(apt-get install -y --no-install-recommends "${missing[@]}")
if ! command -v apt-get >/dev/null; then
    echo "Missing: ${missing[*]} (Debian names). Install them with this system's package manager." >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
if [[ $(id -u) -eq 0 ]]; then
    root=()
elif sudo -n true 2>/dev/null; then
    root=(sudo -n --preserve-env=DEBIAN_FRONTEND)
else
    echo "Missing: ${missing[*]}. Install them with:" >&2
    echo "    sudo ${install[*]}" >&2
    exit 1
fi
echo "Installing ${missing[*]}"
"${root[@]}" "${install[@]}" >/dev/null 2>&1 || {
    "${root[@]}" apt-get update -qq
    "${root[@]}" "${install[@]}"
}
