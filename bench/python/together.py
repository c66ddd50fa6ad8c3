#!/usr/bin/env python3
"""together.py FOLDER [--seconds 60] - models.py for every model and function, and decode.py, all at once; results go into FOLDER.

Preparing takes longest, torch.compile above all: so they prepare side by side. Each times alone when none prepares any more.
What is not ready after --seconds is left out, and said; 30 seconds later everything ends.
"""

import argparse
import fcntl
import itertools
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
WAYS = "eager,accelerated,graphs,accelerated graphs,compiled"  # what takes longest to prepare is last
FEW_THREADS = {"TORCHINDUCTOR_COMPILE_THREADS": "4", "OMP_NUM_THREADS": "2"}  # there are nine processes


def commands(folder, models, deadline):
    """Losses are taken by the process of the training step."""
    for model, function in itertools.product(models, ("step", "forward")):
        what = ["--models", model, "--functions", function, "--losses", "4" if function == "step" else "0"]
        yield ["models.py", *what, "--ways", WAYS, "--deadline", str(deadline), "--json", f"{folder}/models.json"]
    yield ["decode.py", "--json", f"{folder}/decode.json"]


def start(command, file, options):
    """A process that counts as one that prepares from now on (results.Turn)."""
    turn = os.open(file, os.O_WRONLY)
    fcntl.flock(turn, fcntl.LOCK_SH)
    given = [sys.executable, HERE / command[0], *command[1:], "--turn", str(turn), *options]
    process = subprocess.Popen(given, env=os.environ | FEW_THREADS, pass_fds=[turn])
    os.close(turn)
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
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--models", default="0123", help="which of the four, by number")
    parser.add_argument("--small", action="store_true", help="for a try")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    deadline = began + options.seconds
    with tempfile.NamedTemporaryFile() as file:
        given = ["--small"] * options.small
        started = [(start(c, file.name, given), c) for c in commands(options.folder, options.models, deadline)]
        done = [finish(process, command, deadline + 30 - time.monotonic()) for process, command in started]
    print(f"{time.monotonic() - began:.0f} s, {done.count(False)} of {len(done)} failed")
    sys.exit(not all(done))


if __name__ == "__main__":
    main()
