"""run.py [--jobs N] [NAME...] - the tests beside this file, or those of these files, classes and methods (test_torch.Accelerate).

--jobs: by a process for each class, so many at once. What fails is said at once, what takes long at the end; what did not run is said,
and the last line counts.
"""

import argparse
import concurrent.futures
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
    for seconds, name in sorted(((s, name) for name, s in Result.seconds.items()), reverse=True)[:8]:
        print(f"{seconds:6.1f} s {name}")
    for reason in sorted({reason for _, reason in result.skipped}):
        print(f"skipped: {sum(why == reason for _, why in result.skipped)} tests of Python: {reason}")
    return result.passed, len(result.failures) + len(result.errors)


def classes(suite):
    if isinstance(suite, unittest.TestSuite):
        return set().union(*map(classes, suite))
    return {f"{type(suite).__module__}.{type(suite).__qualname__}"}


def run_apart(suite, jobs):
    """The same, each class in a process of its own."""
    passed = failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = pool.map(
            lambda name: subprocess.run([sys.executable, __file__, name], stdout=subprocess.PIPE, text=True, check=False),
            sorted(classes(suite)),
        )
        for done in running:
            said, _, counts = done.stdout.rstrip().rpartition("\n")
            print(said, flush=True)
            found = re.fullmatch(r"(\d+) passed, (\d+) failed", counts)
            passed += int(found[1]) if found else 0
            failed += int(found[2]) if found else 1  # it crashed
    return passed, failed


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
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
