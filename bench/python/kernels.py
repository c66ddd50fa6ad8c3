"""kernels.py - where a call's time goes: the GPU's kernels by name, and the caller's thread, by torch.profiler."""

import collections
import time

import torch
from torch.profiler import ProfilerActivity, profile


def clocked(run):
    """Milliseconds of the caller's thread, and until the GPU is done."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    run()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return (returned - began) * 1e3, (time.perf_counter() - began) * 1e3


def kernels_of(run):
    """[(name, how many, microseconds)], the longest first."""
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize()
    found = collections.defaultdict(list)
    for event in profiled.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name].append(event.device_time)
    return sorted(((name, len(times), sum(times)) for name, times in found.items()), key=lambda row: -row[2])


def write(path, title, run, rounds=7, rows=25):
    """Adds a call's kernels to a file."""
    thread, whole = (sorted(times)[rounds // 2] for times in zip(*(clocked(run) for _ in range(rounds))))
    kernels = kernels_of(run)
    count, busy = (sum(row[i] for row in kernels) for i in (1, 2))
    with open(path, "a") as file:
        print(f"{title}: {whole:.2f} ms, the caller's thread {thread:.2f}, {count} kernels {busy / 1e3:.2f}", file=file)
        for name, times, microseconds in kernels[:rows]:
            print(f"{microseconds:10.0f} us {times:5}  {name[:100]}", file=file)
