#!/usr/bin/env bash
# ship_tuned.sh FILE... - makes the lines of tuned stores, which `ckl tune --store FILE` has written, those that are built in.
set -euo pipefail
table=$(dirname "$0")/../src/plan/tuned_shipped.c
[[ $# -gt 0 ]] || { echo "usage: scripts/ship_tuned.sh FILE..." >&2; exit 2; }
lines=$(cat -- "$@" | grep -vE '^[[:space:]]*(#|$)' | sed 's/[\\"]/\\&/g; s/.*/    "&",/')
{
    sed '/^const char/q' "$table"
    echo "$lines"
    echo '    NULL'
    echo '};'
} >"$table.new"
mv "$table.new" "$table"
