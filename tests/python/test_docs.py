"""The code of README.md and docs/python.md, block after block, as one program each; programs that fork, have threads, or end."""

import contextlib
import importlib.util
import io
import pathlib
import re
import subprocess
import sys
import unittest

BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROOT = pathlib.Path(__file__).parents[2]


class Documents(unittest.TestCase):
    def run_blocks(self, path, count):
        """count: of blocks at least."""
        if not (ROOT / path).exists():
            self.skipTest(f"there is no {path} above these tests")
        names, skipped = {}, 0
        blocks = BLOCKS.findall((ROOT / path).read_text())
        self.assertGreaterEqual(len(blocks), count)
        for block in blocks:
            if re.search(r"import torch|torch\.", block) and not importlib.util.find_spec("torch"):
                skipped += 1
                continue
            said = io.StringIO()
            with contextlib.redirect_stdout(said), self.subTest(block):
                exec(compile(block, path, "exec"), names)
            for wanted in re.findall(r"print\(.*\)  # (\w+: .*)", block):
                self.assertIn(wanted, said.getvalue())
        if skipped:
            self.skipTest(f"{skipped} blocks of {path} want torch")

    def test_readme(self):
        self.run_blocks("README.md", 2)

    def test_guide(self):
        self.run_blocks("docs/python.md", 6)


class Processes(unittest.TestCase):
    """Programs of their own: how they end is the test. They know no torch, whose import takes seconds: test_devices.py has those."""

    def program(self, text):
        before = (
            "import sys\n"
            "sys.modules['torch'] = None\n"
            "import warnings, os, numpy as np, cutekernellib as ckl\n"
            "warnings.simplefilter('ignore')\n"
            "x = np.ones((2, 8), np.float32)\n"
        )
        done = subprocess.run([sys.executable, "-c", before + text], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_exit_after_use(self):
        self.program("y = ckl.softmax(x)")

    def test_exit_of_threads_at_work(self):
        self.program(
            "import threading\n"
            "work = lambda y: [ckl.operators['add']('n=16', x, x, y) for _ in range(10**7)]\n"
            "[threading.Thread(target=work, args=(np.empty_like(x),), daemon=True).start() for _ in range(3)]\n"
            "ckl.softmax(x)"
        )

    def test_fork_after_import(self):
        self.program(
            "child = os.fork()\n"
            "ok = abs(ckl.softmax(x) - 1 / 8).max() < 1e-6\n"
            "if child == 0: os._exit(0 if ok else 1)\n"
            "assert ok and os.waitpid(child, 0)[1] == 0"
        )

    def test_threads_share_a_plan(self):
        self.program(
            "import threading\n"
            "plan, failed = ckl.operators['add'].plan(n=16), []\n"
            "def work(i):\n"
            "    for _ in range(10):\n"
            "        y = np.empty_like(x)\n"
            "        plan(x, x, y, float(i))\n"
            "        if (y != i + 1).any(): failed.append(i)\n"
            "threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]\n"
            "[t.start() for t in threads], [t.join() for t in threads]\n"
            "assert not failed"
        )


if __name__ == "__main__":
    unittest.main()
