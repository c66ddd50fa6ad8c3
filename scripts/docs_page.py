#!/usr/bin/env python3
"""docs_page.py PAGE - a guide as Doxygen takes it: headings have names to link to, and links to files that the site lacks are text."""

import pathlib
import re
import sys

LINK = re.compile(r"\[([^]\n]*)\]\((?!\w+:)([^)#\s]*)(?:#([^)\s]*))?\)")


def slug(heading):
    """GitHub's name of a heading."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()).replace(" ", "-")


def name(page, anchor):
    return f"{page.stem.lower()}-{anchor}"


def link(page, text, path, anchor):
    target = (page.parent / path).resolve() if path else page
    if anchor and target.suffix == ".md":
        return f"[{text}](#{name(target, anchor)})"
    return f"[{text}]({path})" if target.suffix in (".md", ".svg", ".png") else text


def lines_of(page):
    is_code, known = False, set()
    for line in page.read_text().splitlines():
        is_code ^= line.startswith("```")
        heading = re.fullmatch(r"##+ (.*)", line)
        if not is_code:
            line = LINK.sub(lambda m: link(page, *m.groups()), line)
        if not is_code and heading and slug(heading[1]) not in known:
            known.add(slug(heading[1]))
            line += f" {{#{name(page, slug(heading[1]))}}}"
        yield line


print("\n".join(lines_of(pathlib.Path(sys.argv[1]).resolve())))
