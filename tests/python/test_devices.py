"""GPUs: several in one process, threads, fork after import, exit after use. Skipped where there are none."""

import subprocess
import sys
import threading
import unittest

try:
    import torch

    import cutekernellib.torch as ckl

    gpus = torch.cuda.device_count()
except ImportError:
    gpus = 0


def differs(device):
    """The largest difference of a few operators, with gradients, from torch's."""
    torch.manual_seed(1)
    x, w = torch.randn(64, 128, device=device).requires_grad_(), torch.randn(128, device=device).requires_grad_()
    results = []
    for softmax, norm in ((ckl.softmax, ckl.rms_norm), (torch.softmax, torch.nn.functional.rms_norm)):
        y = softmax(norm(x, (128,), w, 1e-5), -1)
        results.append((y.detach(), *torch.autograd.grad(y.square().sum(), (x, w))))
    return max((a - b).abs().max().item() for a, b in zip(*results))


@unittest.skipIf(gpus < 2, "there are no two GPUs")
class SeveralGPUs(unittest.TestCase):
    def test_in_turn(self):
        for index in (0, 1, 0, 1):
            self.assertLess(differs(f"cuda:{index}"), 1e-5)

    def test_the_current_one_does_not_matter(self):
        with torch.cuda.device(1):
            self.assertLess(differs("cuda:0"), 1e-5)
        self.assertEqual(torch.cuda.current_device(), 0)

    def test_threads(self):
        errors = []
        work = [
            threading.Thread(target=lambda i=i: errors.append(max(differs(f"cuda:{i % 2}") for _ in range(20))))
            for i in range(6)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        self.assertEqual(len(errors), 6)
        self.assertLess(max(errors), 1e-5)

    def test_tensors_of_two(self):
        with self.assertRaises(ValueError):
            ckl.add_rms_norm(*(torch.randn(4, 8, device=f"cuda:{i}") for i in (0, 1)), torch.randn(8, device="cuda:0"))


@unittest.skipIf(gpus < 1, "there is no GPU")
class Processes(unittest.TestCase):
    def program(self, text):
        before = (
            "import warnings\n"
            "warnings.simplefilter('ignore')\n"  # Python's of fork() where NumPy has threads
            "import os, torch, cutekernellib.torch as ckl\n"
        )
        done = subprocess.run([sys.executable, "-c", before + text], capture_output=True, text=True, timeout=100, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_exit_after_use(self):
        self.program("y = ckl.softmax(torch.randn(4, 64, device='cuda'), -1)")

    def test_exit_of_a_thread_at_work(self):
        self.program(
            "import threading\n"
            "x = torch.randn(64, 512, device='cuda')\n"
            "threading.Thread(target=lambda: [ckl.softmax(x, -1) for _ in range(10**7)], daemon=True).start()\n"
            "ckl.softmax(x, -1).sum().item()"
        )

    def test_fork_after_import(self):
        self.program(
            "child = os.fork()\n"
            "y = ckl.softmax(torch.ones(4, 8, device='cuda'), -1)\n"
            "ok = (y - 1 / 8).abs().max().item() < 1e-6\n"
            "if child == 0: os._exit(0 if ok else 1)\n"
            "assert ok and os.waitpid(child, 0)[1] == 0"
        )


if __name__ == "__main__":
    unittest.main()
