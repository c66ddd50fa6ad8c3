#!/usr/bin/env bash
# check_docs.sh - what the documentation quotes is there: a fenced block after a line <!-- path/of/file --> stands in that
# file, word by word but for the indentation; links between pages lead to files and headings; README.md names every page.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/checks.sh

lines_of() { sed -e 's/^[[:space:]]*//' -e 's/[[:space:]]*$//' "$1"; }

stands_in() { # stands_in BLOCK FILE
    [[ -f $2 && $'\n'$(lines_of "$2")$'\n' == *$'\n'"$1"$'\n'* ]]
}

check_quotes() { # check_quotes PAGE
    local line source='' block='' state=text number=0 first
    while IFS= read -r line; do
        number=$((number + 1))
        if [[ $state == text && $line =~ ^'<!-- '([a-z_0-9./]+\.[a-z]+)' -->'$ ]]; then
            source=${BASH_REMATCH[1]} state=named
        elif [[ $state == named && $line == '```'* ]]; then
            state=block block='' first=$number
        elif [[ $state == named && $line ]]; then
            state=text
        elif [[ $state == block && $line == '```' ]]; then
            check "$1:$first: $source does not contain this block" stands_in "${block%$'\n'}" "$source"
            state=text
        elif [[ $state == block ]]; then
            block+=$line$'\n'
        fi
    done < <(lines_of "$1")
}

has_heading() { # has_heading PAGE NAME
    [[ $(scripts/docs_page.py "$1") == *"-$2}"* ]]
}

check_links() { # check_links PAGE
    local link target
    while read -r link; do
        target=$(dirname "$1")/${link%%#*}
        check "$1 links to $link" test -e "$target"
        if [[ $link == *.md#* ]]; then
            check "$1 links to the heading $link" has_heading "$target" "${link#*#}"
        fi
    done < <(grep -o '](\([^)]*\))' "$1" | sed -e 's/^](//' -e 's/)$//' | grep -v '^[a-z]*://' | grep -v '^#' || true)
}

for page in ./*.md docs/*.md; do
    check_quotes "$page"
    check_links "$page"
done
for page in docs/*.md; do # whose order there is that of the site
    check "README.md names $page" grep -q "]($page)" README.md
done
report
