"""tests.py - the tests of make test and make test-full, and one run of one of them."""
import hashlib
import os
import re
import resource
import signal
import subprocess
import threading
import time
from collections import namedtuple
from pathlib import Path

from mutation.tree import ROOT, TREE

SLOW_UNITS = set(re.search(r"^long='(.*)'$", (ROOT / 'scripts/test.sh').read_text(), re.M)[1].split('|'))  # not run with sanitizers
MEMORY_MAX = 6 << 30  # bytes of a test that are really there
PARTS = 4  # of an operator's full cases: what one run has no time for another one takes up

# program is a target of cmake; words are its arguments; a script gets the program's path behind them.
Test = namedtuple('Test', 'name build program words script full')


def all_tests(full):
    units = sorted(p.stem for p in (TREE / 'tests').glob('unit_*.c'))
    operators = re.findall(r'^    X\((\w+)\)', (TREE / 'src/operators/operators.h').read_text(), re.M)
    smoke = ['verify', '--suite', str(TREE / 'bench/suites/smoke.txt'), '--device']
    waiting = f'verify --suite {TREE}/tests/data/waiting.txt --device emulator:h200'
    tests = [Test(u, 'plain', u, [], '', False) for u in units]
    tests += [Test(f'verify {o}', 'plain', 'ckl', ['verify', o, '--device', 'emulator:h200'], '', False) for o in operators]
    tests += [Test('verify l4', 'plain', 'ckl', [*smoke, 'emulator:l4'], '', False),
              *(Test(f'verify {order}', 'plain', 'ckl', ['-c', f'CKL_EMULATOR={order} exec "$0" {waiting}'], '/bin/sh', False)
                for order in ('resident=1', 'schedule=random')),
              Test('pure CuTe', 'plain', 'ckl', [], str(TREE / 'scripts/verify_cute_implementation.sh'), False),
              Test('predicted costs', 'plain', 'ckl', ['--most', '1.7'], str(TREE / 'scripts/judge_costs.py'), False)]
    tests += [Test(f'sanitized {u}', 'sanitized', u, [], '', False) for u in units if not is_slow(u)]
    tests += [Test('sanitized smoke', 'sanitized', 'ckl', [*smoke, 'emulator:h200'], '', False)]
    tests += [Test('soak', 'plain', 'ckl', ['soak', '--device', 'emulator:h200', '--minutes', '0.06'], '', False),
              Test('fuzz', 'plain', 'ckl', ['fuzz', '--count', '1000', '--seed', '1'], '', False)]
    if full:
        tests += [Test(f'full {u}', 'plain', u, [], '', True) for u in units if is_longer(u)]
        tests += [Test(f'full verify {o} {i}/{PARTS}', 'plain', 'ckl',
                       ['verify', '--full', '--shard', f'{i}/{PARTS}', o, '--device', 'emulator:h200'], '', True)
                  for i in range(1, PARTS + 1) for o in operators]
        tests += [Test(f'full sanitized {u}', 'sanitized', u, [], '', True) for u in units if is_slow(u)]
        tests += [Test(f'full threads {u}', 'threads', u, [], '', True) for u in ('unit_threads', 'unit_warm', 'unit_cubin_cache')]
        tests += [Test('full fuzz', 'plain', 'ckl', ['fuzz', '--count', '40000', '--seed', '1'], '', True)]
    return tests


def is_slow(unit):
    return unit.removeprefix('unit_') in SLOW_UNITS


def is_longer(unit):
    """Does make test-full run more of it than make test?"""
    own = [TREE / 'tests' / f'{unit}.c']
    own += [TREE / 'tests' / name for name in re.findall(r'#include "(\w+\.h)"', own[0].read_text())]
    return any('CKL_TEST_FULL' in p.read_text() for p in own if p.exists())


def is_first(test):
    """All mutations go through these; what is left also through those of sanitizers and of --full."""
    return not test.full and test.build == 'plain' and test.name not in ('soak', 'fuzz')


def plain_name(test):
    """The test that reaches the same lines, whose coverage is known."""
    name = re.sub(r'^((full|sanitized|threads) )+| \d+/\d+$', '', test.name)
    return 'verify l4' if name == 'smoke' else name


def kill(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def watch(pid, end, over, ended):
    """Kills a test that waits for ever, which costs no time of the processor, takes too much memory, or is not wanted any more."""
    while not ended.wait(0.1):
        try:
            resident = int(Path(f'/proc/{pid}/statm').read_text().split()[1]) * resource.getpagesize()
        except OSError:  # it ended just now
            return
        if resident > MEMORY_MAX or time.monotonic() > end or over():
            return kill(pid)


def set_limits(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_test(test, program, seconds, over=lambda: False, env=()):
    """
    Whether it passes, and its seconds of a processor. It ends at the first failure that it prints, when it has used so
    many seconds, or when over() says so.
    """
    words = [test.script, *test.words, str(program)] if test.script else [str(program), *test.words]
    env = {**os.environ, 'OMP_NUM_THREADS': '1', **({'CKL_TEST_FULL': '1'} if test.full else {}), **dict(env)}
    child = subprocess.Popen(words, cwd=TREE, env=env, text=True, errors='replace', start_new_session=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             preexec_fn=lambda: set_limits(int(seconds) + 1))
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(child.pid, time.monotonic() + 10 * seconds + 30, over, ended))
    watcher.start()
    failed = any(line.startswith(('[  FAILED  ]', 'FAILED')) for line in child.stdout)
    if failed:
        kill(child.pid)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    child.stdout.close()
    return child.returncode == 0 and not failed, usage.ru_utime + usage.ru_stime


def key_of(test):
    """Of the test's own source and headers."""
    own = list((TREE / 'tests').glob(f'{test.program}.c'))
    included = {name for path in own for name in re.findall(r'#include "(\w+\.h)"', path.read_text())}
    return digest([*own, *(p for p in (TREE / 'tests').glob('*.h') if p.name in included)])


def version_of(test):
    """Of what it tests: its own source, or the cases of its operator. Who has passed another version has not passed this one."""
    operator = re.match(r'(?:full )?verify (\w+)', test.name)
    return key_of(test) + digest((TREE / 'src/operators' / operator[1]).glob('*_test.c') if operator else [])


def digest(paths):
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(str(path.relative_to(TREE)).encode() + path.read_bytes())
    return found.hexdigest()[:16]
