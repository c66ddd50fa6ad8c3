"""run.py [NAME...] - the tests beside this file, or those of these files, classes and methods (test_torch.Accelerate).

What fails is said at once, what takes long at the end; what did not run is said, and the last line counts.
"""

import pathlib
import sys
import time
import unittest


class Result(unittest.TextTestResult):
    """Says at once what failed, for a run may be cut off before its end; counts what passed, and the seconds of each test."""

    seconds, began, passed = {}, 0.0, 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        super().stopTest(test)
        self.seconds[test.id()] = time.monotonic() - self.began

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(f"\n{test}\n{self.errors[-1][1]}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(f"\n{test}\n{self.failures[-1][1]}")


folder = str(pathlib.Path(__file__).parent)
loader = unittest.defaultTestLoader
sys.path.insert(0, folder)
suite = loader.loadTestsFromNames(sys.argv[1:]) if sys.argv[1:] else loader.discover(folder)
result = unittest.TextTestRunner(sys.stdout, verbosity=1, resultclass=Result).run(suite)
failed = len(result.failures) + len(result.errors)
for seconds, name in sorted(((s, name) for name, s in Result.seconds.items()), reverse=True)[:8]:
    print(f"{seconds:6.1f} s {name}")
for reason in sorted({reason for _, reason in result.skipped}):
    print(f"skipped: {sum(why == reason for _, why in result.skipped)} tests of Python: {reason}")
print(f"{result.passed} passed, {failed} failed")
sys.exit(failed > 0)
