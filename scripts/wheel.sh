#!/usr/bin/env bash
# wheel.sh [PYTHON] - builds the Python package into dist/: one wheel for every Python 3 of Linux with this C library or a later one.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}
bytes_max=$((5 * 1024 * 1024 / 2))
rm -rf dist/*.whl
"$python" -m pip -q wheel . --no-deps -w dist
wheel=$(echo dist/*.whl)

# The tag names the C library whose symbols it wants; nothing else may be needed.
library=$(mktemp)
trap 'rm -f "$library"' EXIT
unpack='import sys, zipfile; sys.stdout.buffer.write(zipfile.ZipFile(sys.argv[1]).read(sys.argv[2]))'
"$python" -c "$unpack" "$wheel" cutekernellib/libcutekernellib.so >"$library"
needed=$(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|ld-linux-.*)\.so\.[0-9]+$' || true)
[[ -z $needed ]] || {
    echo "the wheel's library wants $needed" >&2
    exit 1
}
glibc=$(objdump -T "$library" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
tag=manylinux_${glibc#GLIBC_}_$(uname -m)
named=${wheel%-linux_*}-${tag//2./2_}.whl
"$python" - "$wheel" "$named" "$(basename "${named%.whl}" | cut -d- -f3-)" <<'END'
"""Writes the wheel under its new tag: in the name, in WHEEL, and with it the digest in RECORD."""
import base64, hashlib, os, sys, zipfile

old, new, tag = sys.argv[1:]
with zipfile.ZipFile(old) as source:
    content = {i: source.read(i) for i in source.infolist()}
marker = next(i for i in content if i.filename.endswith(".dist-info/WHEEL"))
lines = [l for l in content[marker].decode().splitlines() if not l.startswith("Tag:")]
content[marker] = "\n".join([*lines, f"Tag: {tag}", ""]).encode()
digest = base64.urlsafe_b64encode(hashlib.sha256(content[marker]).digest()).rstrip(b"=").decode()
record = next(i for i in content if i.filename.endswith(".dist-info/RECORD"))
rows = [r for r in content[record].decode().splitlines() if not r.startswith(marker.filename)]
content[record] = "\n".join([*rows, f"{marker.filename},sha256={digest},{len(content[marker])}", ""]).encode()
with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as target:
    for info, data in content.items():
        target.writestr(info, data, zipfile.ZIP_DEFLATED)
os.remove(old)
END
[[ $(stat -c %s "$named") -le $bytes_max ]] || {
    echo "$named has more than $bytes_max bytes" >&2
    exit 1
}
echo "$named"
