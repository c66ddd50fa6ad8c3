#!/usr/bin/env python3
"""together.py FOLDER [--seconds 40 150] - models.py for every model and function, and decode.py, all at once; results go into FOLDER.

Preparing takes longest, torch.compile above all: so they prepare side by side. Each times alone when none prepares any more. There are
two stages, so that torch.compile can spoil its own alone. What is not ready after so many --seconds is left out of its stage, and
said; 20 seconds after the last everything ends. What was timed is in FOLDER at once.
"""

import argparse
import contextlib
import fcntl
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
STAGES = ["eager,accelerated,graphs,accelerated graphs", "eager,accelerated,compiled"]
FEW_THREADS = {"TORCHINDUCTOR_COMPILE_THREADS": "4", "OMP_NUM_THREADS": "2"}  # there are nine processes


def commands(folder, models):
    """Losses are taken by the process of the training step."""
    for model, function in itertools.product(models, ("step", "forward")):
        what = ["--models", model, "--functions", function, "--losses", "4" if function == "step" else "0"]
        yield ["models.py", *what, "--ways", *STAGES, "--json", f"{folder}/models.json"]
    yield ["decode.py", "--json", f"{folder}/decode.json"]


def start(command, files, deadlines, options):
    """A process that counts as one that prepares, and times, from now on (results.Turn)."""
    locked = [os.open(file.name, os.O_WRONLY) for file in files]
    for fd in locked:
        fcntl.flock(fd, fcntl.LOCK_SH)
    turn = ",".join(f"{prepared}:{timed}:{t}" for prepared, timed, t in zip(locked[::2], locked[1::2], deadlines))
    given = [sys.executable, HERE / command[0], *command[1:], "--turn", turn, *options]
    process = subprocess.Popen(given, env=os.environ | FEW_THREADS, pass_fds=locked)
    for fd in locked:
        os.close(fd)
    return process


def finish(process, command, seconds):
    """Did it end well, in so many seconds?"""
    try:
        status = process.wait(max(seconds, 0))
    except subprocess.TimeoutExpired:
        process.kill()
        status = "not done in time"
    if status:
        print(f"{' '.join(command[:5])}: {status}", flush=True)
    return not status


def main():
    began = time.monotonic()
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seconds", type=float, nargs=len(STAGES), default=[40, 150], help="until when each stage prepares")
    parser.add_argument("--models", default="0123", help="which of the four, by number")
    parser.add_argument("--small", action="store_true", help="for a try")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    deadlines = [began + seconds for seconds in options.seconds]
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.NamedTemporaryFile()) for _ in range(2 * len(STAGES))]
        given = ["--small"] * options.small
        started = [(start(c, files, deadlines, given), c) for c in commands(options.folder, options.models)]
        done = [finish(process, command, deadlines[-1] + 20 - time.monotonic()) for process, command in started]
    print(f"{time.monotonic() - began:.0f} s, {done.count(False)} of {len(done)} failed")
    sys.exit(not all(done))


if __name__ == "__main__":
    main()
