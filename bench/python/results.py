"""results.py - files of results: where and when they were made, and rows that runs add to."""

import contextlib
import faulthandler
import fcntl
import json
import math
import os
import subprocess
import time

import torch

import cutekernellib


def header(protocol):
    """What a file says of where and when it was made. CKL_COMMIT names the commit: the package does not know it."""
    gpu = torch.cuda.get_device_properties(0) if torch.cuda.is_available() else None
    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return {
        "gpu": gpu.name if gpu else "none",
        "driver": subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split("\n")[0] if gpu else "none",
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "ckl_version": cutekernellib.__version__,
        "commit": os.environ.get("CKL_COMMIT", "unknown"),
        "torch": torch.__version__,
        "cpus": len(os.sched_getaffinity(0)),
        "protocol": protocol,
    }


def read(path):
    with open(path) as file:
        return json.load(file)["rows"]


def merged(old, rows, key):
    """Rows of the same key are one."""
    by_key = {row[key]: row for row in old}
    for row in rows:
        kept = by_key.setdefault(row[key], {})
        for name, value in row.items():
            kept[name] = kept.get(name, {}) | value if isinstance(value, dict) else value
    return list(by_key.values())


def save(path, protocol, rows, key):
    """Adds rows to a file. Several processes may."""
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        rows = merged(json.loads(text)["rows"] if text else [], rows, key)
        file.truncate(0)
        json.dump({"schema": "cutekernellib.python", "version": 1, "header": header(protocol), "rows": rows}, file, indent=1)


def markdown(rows):
    """Rows of cells, the first one the heading, as a table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(rows[0]), *lines[1:]])


def put(path, mark, text):
    """Puts text between the marks of that name in a document."""
    with open(path) as file:
        head, begin, rest = file.read().partition(f"<!-- {mark} -->\n")
    with open(path, "w") as file:
        file.write(f"{head}{begin}\n{text}\n\n" + rest[rest.index(f"<!-- /{mark} -->") :])


class Turn:
    """Processes that were started together go by stages: all prepare side by side, then each times alone, then the next stage begins.

    stages: with commas, each of two files and a time (together.py): the first is locked, shared, for this process until it has prepared,
    the second until it has timed. The others wait for it, so where it is not ready 5 seconds after that monotonic time it says where
    it stands, and ends. Without stages the process is alone anyway.
    """

    def __init__(self, stages=""):
        fields = [stage.split(":") for stage in stages.split(",") if stage]
        self.stages = [(os.fdopen(int(prepared), "w"), os.fdopen(int(timed), "w"), float(t)) for prepared, timed, t in fields]
        self._watch()

    @property
    def deadline(self):
        """Until when this stage prepares."""
        return self.stages[0][2] if self.stages else math.inf

    def _watch(self):
        if self.stages:
            faulthandler.dump_traceback_later(max(self.deadline - time.monotonic(), 0) + 5, exit=True)

    @contextlib.contextmanager
    def alone(self):
        """Begins when all have prepared; where it ends all have timed."""
        if not self.stages:
            yield
            return
        faulthandler.cancel_dump_traceback_later()
        prepared, timed, _ = self.stages.pop(0)
        fcntl.flock(prepared, fcntl.LOCK_EX)  # gives up what it held as one that prepares
        try:
            yield
        finally:
            fcntl.flock(prepared, fcntl.LOCK_UN)
        fcntl.flock(timed, fcntl.LOCK_EX)
        fcntl.flock(timed, fcntl.LOCK_UN)
        self._watch()


def add_turn(parser):
    parser.add_argument("--turn", type=Turn, default=Turn(), help="by which together.py lets one process time at once")
