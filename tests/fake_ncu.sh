#!/bin/sh
# fake_ncu.sh - stands for ncu: notes its arguments and prints a file.
echo "$@" >"$FAKE_NCU_SAID"
cat "$FAKE_NCU_PRINTS"
