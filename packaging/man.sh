#!/usr/bin/env bash
# man.sh CKL - the man page of ckl, of what `ckl --help` and `ckl help COMMAND` say.
set -euo pipefail
ckl=${1:?usage: man.sh CKL}

escaped() { # text that roff leaves as it is
    sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"
}

verbatim() {
    printf '.nf\n'
    escaped
    printf '.fi\n'
}

date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%F)
printf '.TH CKL 1 "%s" "CuTeKernelLib %s"\n' "$date" "$("$ckl" --version | awk '{print $2}')"
printf '.SH NAME\nckl \\- checks, measures and explains GPU kernels\n.SH SYNOPSIS\n.B ckl\nCOMMAND ...\n.SH DESCRIPTION\n'
"$ckl" --help | tail -n +5 | verbatim
printf '.SH COMMANDS\n'
while read -r command; do
    printf '.SS %s\n' "$command"
    "$ckl" help "$command" | grep -v '^Exit status:' | verbatim
done < <("$ckl" --help | awk '/^  [a-z]/ {print $1}')
