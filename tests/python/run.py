"""run.py - the tests beside this file; what did not run is said, and the last line counts."""

import pathlib
import sys
import unittest

suite = unittest.defaultTestLoader.discover(str(pathlib.Path(__file__).parent))
result = unittest.TextTestRunner(sys.stdout, verbosity=1).run(suite)
failed = len(result.failures) + len(result.errors)
for reason in sorted({reason for _, reason in result.skipped}):
    print(f"skipped: {sum(why == reason for _, why in result.skipped)} tests of Python: {reason}")
print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
sys.exit(failed > 0)
