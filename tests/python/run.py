"""run.py - the tests beside this file; what did not run is said, and the last line counts."""

import pathlib
import sys
import unittest


class Result(unittest.TextTestResult):
    """Says at once what failed: a run may be cut off before its end."""

    def addError(self, test, err):
        super().addError(test, err)
        self.stream.writeln(f"\n{test}\n{self.errors[-1][1]}")

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.stream.writeln(f"\n{test}\n{self.failures[-1][1]}")


suite = unittest.defaultTestLoader.discover(str(pathlib.Path(__file__).parent))
result = unittest.TextTestRunner(sys.stdout, verbosity=1, resultclass=Result).run(suite)
failed = len(result.failures) + len(result.errors)
for reason in sorted({reason for _, reason in result.skipped}):
    print(f"skipped: {sum(why == reason for _, why in result.skipped)} tests of Python: {reason}")
print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
sys.exit(failed > 0)
