"""GPUs: several in one process, threads, fork after import, exit after use. Skipped where there are none, but for a driver without GPUs."""

import os
import pathlib
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


DRIVER = pathlib.Path(os.environ.get("CKL_LIBRARY", "/")).absolute().parent / "fake" / "libcuda.so.1"


@unittest.skipUnless(DRIVER.exists(), "the driver without a GPU comes with the unit tests' build, and CKL_LIBRARY names that")
class DriverWithoutGPU(unittest.TestCase):
    """By tests/fake_cuda.c, whose two GPUs have the host's memory and kernels that do nothing. It knows where each was launched."""

    def program(self, text):
        before = """if True:
            import ctypes, os, sys, threading
            sys.modules["torch"] = None
            import numpy as np, cutekernellib as ckl

            class Tensor:  # of NumPy's memory, said to be a GPU's
                def __init__(self, gpu):
                    self.array, self.gpu = np.ones(64, np.float32), gpu

                def __dlpack_device__(self):
                    return 2, self.gpu

                def __dlpack__(self, **_):
                    capsule, pointer = self.array.__dlpack__(), ctypes.pythonapi.PyCapsule_GetPointer
                    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
                    (ctypes.c_int32 * 2).from_address(pointer(capsule, b"dltensor") + 8)[:] = 2, self.gpu
                    return capsule

            driver = ctypes.CDLL("libcuda.so.1")
            launches_on = driver.fake_cuda_launches_on
            add, x = ckl.operators["add"], [Tensor(0), Tensor(1)]
            """
        environment = os.environ | {"LD_LIBRARY_PATH": str(DRIVER.parent), "CKL_CACHE": "off"}
        done = subprocess.run(
            [sys.executable, "-c", before + text], capture_output=True, text=True, timeout=100, check=False, env=environment
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_each_call_is_where_its_tensors_are(self):
        self.program("""
            for gpu in (0, 1, 1, 0, 1):
                add("n=64", x[gpu], x[gpu], x[gpu])
            assert (launches_on(0), launches_on(1)) == (2, 3)
            plan = add.plan("n=64", device="cuda:1")
            plan(x[1], x[1], x[1])
            assert (launches_on(0), launches_on(1)) == (2, 4)
            assert [ckl.device_info(f"cuda:{gpu}")["id"] for gpu in (0, 1)] == ["cuda:0", "cuda:1"]
            ckl.prepare(["add n=65"], "cuda:1")
            """)

    def test_tensors_of_two(self):
        self.program("""
            for wrong in (x[0], x[1], x[0]), (x[0], x[0], x[1]), (x[0], x[0].array, x[0]):
                try:
                    add("n=64", *wrong)
                except ValueError as error:
                    assert "lies on another device" in str(error), error
                else:
                    raise AssertionError("taken")
            assert launches_on(0) + launches_on(1) == 0
            """)

    def test_failures(self):
        self.program("""
            functions = (ctypes.c_void_p * 3).in_dll(driver, "fake_cuda_functions")
            fail_named = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int)(functions[2])
            for kind, function, result in (MemoryError, b"cuLibraryLoadData", 2), (RuntimeError, b"cuLaunchKernelEx", 719):
                fail_named(function, result)
                try:
                    add("n=64", x[0], x[0], x[0])
                except kind as error:
                    assert f"cuda:0: {function.decode()}: CUDA_ERROR" in str(error), error
                else:
                    raise AssertionError(f"{function} does not fail")
            """)

    def test_threads(self):
        self.program("""
            def work(i):
                for round in range(20):
                    gpu = (i + round) % 2
                    add(f"n={round % 4 + 1}", x[gpu], x[gpu], x[gpu])

            threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
            [t.start() for t in threads], [t.join() for t in threads]
            assert (launches_on(0), launches_on(1)) == (60, 60)
            """)

    def test_fork_after_import(self):
        self.program("""
            child = os.fork()
            add("n=64", x[1], x[1], x[1])
            if child == 0:
                os._exit(launches_on(1) != 1)
            assert os.waitpid(child, 0)[1] == 0 and launches_on(1) == 1
            """)


if __name__ == "__main__":
    unittest.main()
