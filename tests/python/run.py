"""run.py [--jobs N] [NAME...] - the tests beside this file, or those of these files, classes and methods (test_torch.Functions).

--jobs: by so many processes at once, each of some tests of a class. Beside a GPU there are 8 of them if nothing is said: what the
tests wait for there is the driver, which compiles their kernels. What fails is said at once, what takes long at the end; what did
not run is said, and the last line counts.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest

FOLDER = str(pathlib.Path(__file__).parent)


class Result(unittest.TextTestResult):
    """Says at once what failed, for a run may be cut off before its end; counts what passed, and the seconds of each test."""

    seconds, began, passed = {}, None, 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        if self.began:  # not every Python starts what is skipped
            self.seconds[test.id()] = time.monotonic() - self.began
        self.began = None

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(f"\n{test}\n{self.errors[-1][1]}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(f"\n{test}\n{self.failures[-1][1]}")


def run(suite):
    """Numbers of those that passed and failed."""
    result = unittest.TextTestRunner(sys.stdout, verbosity=1, resultclass=Result).run(suite)
    for seconds, name in sorted(((s, name) for name, s in Result.seconds.items() if s >= 0.1), reverse=True)[:8]:
        print(f"{seconds:6.1f} s {name}")
    for reason in sorted({reason for _, reason in result.skipped}):
        print(f"skipped: {sum(why == reason for _, why in result.skipped)} tests of Python: {reason}")
    return result.passed, len(result.failures) + len(result.errors)


def tests_of(suite):
    """Its tests, by the names of their classes."""
    if not isinstance(suite, unittest.TestSuite):
        return {f"{type(suite).__module__}.{type(suite).__qualname__}": [suite.id()]}
    tests = {}
    for part in suite:
        for name, ids in tests_of(part).items():
            tests.setdefault(name, []).extend(ids)
    return tests


def run_part(name, ids):
    """In a process of its own, whose lines are printed as they come; numbers of tests that passed and failed."""
    counts = None
    with subprocess.Popen([sys.executable, "-u", __file__, "--jobs", "1", *ids], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            counts = re.fullmatch(r"(\d+) passed, (\d+) failed", line.strip())
            if not counts and line.strip():
                print(f"{name}: {line}", end="", flush=True)
    return (int(counts[1]), int(counts[2])) if counts else (0, 1)  # it crashed


def run_apart(suite, jobs):
    """The same, at most 4 tests in a process, those of large classes first."""
    parts = []
    for name, ids in sorted(tests_of(suite).items(), key=lambda item: -len(item[1])):
        count = (len(ids) + 3) // 4
        parts += [(name, ids[i::count]) for i in range(count)]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        passed, failed = zip(*pool.map(lambda part: run_part(*part), parts))
    return sum(passed), sum(failed)


def main():
    parser = argparse.ArgumentParser()
    gpu = os.path.exists("/dev/nvidiactl")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count()) if gpu else 1)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sys.path.insert(0, FOLDER)
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(options.names) if options.names else loader.discover(FOLDER)
    passed, failed = run(suite) if options.jobs == 1 else run_apart(suite, options.jobs)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
