"""tests.py - the tests of make test and make test-full, one run of one of them, and which lines each reaches."""
import concurrent.futures
import hashlib
import json
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections import namedtuple
from pathlib import Path

from mutation import sites
from mutation.tree import ROOT, TREE, WORK, build

SLOW_UNITS = set(re.search(r"^long='(.*)'$", (ROOT / 'scripts/test.sh').read_text(), re.M)[1].split('|'))  # not run with sanitizers
MEMORY_MAX = 6 << 30  # bytes of a test that are really there
TABLES = {'unit_answers', 'unit_choices', 'unit_configs', 'unit_plans', 'unit_population', 'unit_refusals', 'unit_rejects', 'unit_sizes'}  # go through lines of problems
PARTS = 4  # of an operator's full cases: what one run has no time for another one takes up
EVERYWHERE = 'src/device/emulator/'  # counting lines makes it slow: all tests may reach it

# program is a target of cmake; words are its arguments; a script gets the program's path behind them.
Test = namedtuple('Test', 'name build program words script full')


def all_tests(full):
    units = sorted(p.stem for p in (TREE / 'tests').glob('unit_*.c'))
    operators = re.findall(r'^    X\((\w+)\)', (TREE / 'src/operators/operators.h').read_text(), re.M)
    smoke = ['verify', '--suite', str(TREE / 'bench/suites/smoke.txt'), '--device']
    tests = [Test(u, 'plain', u, [], '', False) for u in units]
    tests += [Test(f'verify {o}', 'plain', 'ckl', ['verify', o, '--device', 'emulator:h200'], '', False) for o in operators]
    tests += [Test('verify l4', 'plain', 'ckl', [*smoke, 'emulator:l4'], '', False),
              Test('pure CuTe', 'plain', 'ckl', [], str(TREE / 'scripts/verify_cute_implementation.sh'), False),
              Test('predicted rows', 'plain', 'ckl', ['check'], str(TREE / 'scripts/fit_rows.py'), False),
              Test('predicted gemm', 'plain', 'ckl', ['check'], str(TREE / 'scripts/fit_gemm.py'), False)]
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


def round_of(test):
    """
    All mutations go through the tests of round 0, what is left through those of the sanitizers, then those of --full: the longer
    unit tests, an operator's cases part by part, the rest. So all get some of each before one gets all.
    """
    if not test.full:
        return 1 if test.build != 'plain' or test.name in ('soak', 'fuzz') else 0
    part = re.search(rf' (\d+)/{PARTS}$', test.name)
    return 2 + int(part[1]) if part else 2 if test.program.startswith('unit_') and test.build == 'plain' else 3 + PARTS


def plain_name(test):
    """The test that reaches the same lines, whose coverage is known."""
    name = re.sub(r'^((full|sanitized|threads) )+| \d+/\d+$', '', test.name)
    return 'verify l4' if name == 'smoke' else name


def kill(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def watch(pid, end, ended):
    """Kills a test that waits for ever, which costs no time of the processor, or takes too much memory."""
    while not ended.wait(0.1):
        try:
            resident = int(Path(f'/proc/{pid}/statm').read_text().split()[1]) * resource.getpagesize()
        except OSError:  # it ended just now
            return
        if resident > MEMORY_MAX or time.monotonic() > end:
            return kill(pid)


def set_limits(seconds):
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run_test(test, program, seconds, deadline=math.inf, env=()):
    """
    Whether it passes, and its seconds of a processor. It ends at the first failure that it prints, when it has used so
    many seconds, or at the deadline of the monotonic clock.
    """
    words = [test.script, *test.words, str(program)] if test.script else [str(program), *test.words]
    env = {**os.environ, 'OMP_NUM_THREADS': '1', **({'CKL_TEST_FULL': '1'} if test.full else {}), **dict(env)}
    child = subprocess.Popen(words, cwd=TREE, env=env, text=True, errors='replace', start_new_session=True,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             preexec_fn=lambda: set_limits(int(seconds) + 1))
    ended = threading.Event()
    watcher = threading.Thread(target=watch, args=(child.pid, min(time.monotonic() + 10 * seconds + 30, deadline), ended))
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


def set_apart(tests):
    """Links to the programs, away from what their builds left beside them: so they run in a job."""
    for build_name, program in {(t.build, t.program) for t in tests}:
        link = WORK / 'apart' / build_name / program
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        os.link(WORK / build_name / program, link)


class Baseline:
    """What tests do without a mutation: their seconds, and whether they pass."""

    def __init__(self, tests, jobs, again):
        set_apart(tests)
        self.locks, self.passing = {t.name: threading.Lock() for t in tests}, {}
        cache, names = WORK / 'seconds.json', {plain_name(t) if t.full else t.name for t in tests}
        self.known = json.loads(cache.read_text()) if cache.exists() and not again else {}
        wanted = [t for t in all_tests(True) if not t.full and t.name in names and self.known.get(t.name, {}).get('key') != key_of(t)]
        if wanted:
            print(f'measuring how long {len(wanted)} tests take', flush=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for test, (passed, seconds) in zip(wanted, pool.map(lambda t: self.run(t, 600), wanted)):
                self.known[test.name] = {'key': key_of(test), 'passed': passed, 'seconds': seconds}
                cache.write_text(json.dumps(self.known))
        self.left_out = [t.name for t in tests if not self.measured(t)['passed']]

    def measured(self, test):
        return self.known[plain_name(test) if test.full else test.name]

    def run(self, test, seconds):
        return run_test(test, WORK / 'apart' / test.build / test.program, seconds)

    def seconds_of(self, test):
        longer = 1 if not test.full else 20 / PARTS if 'verify' in test.words else 20
        return self.measured(test)['seconds'] * longer

    def limit_of(self, test):
        return 3 + 5 * self.seconds_of(test)

    def passes(self, test):
        """Tried when it kills for the first time: what is known may be of another machine."""
        with self.locks[test.name]:
            if test.name not in self.passing:
                self.passing[test.name] = self.run(test, self.limit_of(test))[0]
                if not self.passing[test.name]:
                    self.left_out.append(test.name)
            return self.passing[test.name]


def digest(paths):
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(str(path.relative_to(TREE)).encode() + path.read_bytes())
    return found.hexdigest()[:16]


def by_function(file, numbers):
    """{ function: texts of its lines }"""
    text = (TREE / file).read_text()
    rows, found = text.splitlines(), {}
    bodies = [(text.count('\n', 0, begin), text.count('\n', 0, end), name) for begin, end, name in sites.functions_of(text)]
    for number in numbers:
        function = next((name for first, last, name in bodies if first <= number <= last), '')
        found.setdefault(function, set()).add(rows[number - 1].strip())
    return {function: sorted(texts) for function, texts in found.items()}


class Coverage:
    """Which tests reach which lines."""

    def __init__(self, tests, jobs, again):
        cache = WORK / 'coverage'  # a file for each test: together they are large
        cache.mkdir(exist_ok=True)
        self.data = {} if again else {p.stem: json.loads(p.read_text()) for p in cache.glob('*.json')}
        plain = [t for t in tests if t.build == 'plain' and not t.full]
        wanted = [t for t in plain if self.data.get(t.name, {}).get('key') != key_of(t)]
        if wanted:
            print(f'measuring what {len(wanted)} tests reach', flush=True)
            build('covered', {t.program for t in wanted}, jobs)
            with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
                for done in concurrent.futures.as_completed([pool.submit(self.measure, t) for t in wanted]):
                    name, found = done.result()
                    self.data[name] = found
                    (cache / f'{name}.json').write_text(json.dumps(found))
        self.tests = {t.name for t in plain} | set(self.data)
        self.known = {}
        for each in self.data.values():
            for file, functions in each['known'].items():
                for function, texts in functions.items():
                    self.known.setdefault((file, function), set()).update(texts)

    def measure(self, test):
        counts = WORK / 'counts' / test.name.replace(' ', '_')
        shutil.rmtree(counts, ignore_errors=True)
        counts.mkdir(parents=True) # a program that ends by _exit() leaves nothing there
        run_test(test, WORK / 'covered' / test.program, 6000, env={'GCOV_PREFIX': str(counts)}.items())
        lines, known = {}, {}
        base = counts / str(WORK / 'covered').lstrip('/')
        for data in base.rglob('*.gcda'):
            shutil.copy((WORK / 'covered' / data.relative_to(base)).with_suffix('.gcno'), data.with_suffix('.gcno'))
        every = [str(p) for p in base.rglob('*.gcda') if '/src/' in str(p.relative_to(base))]
        reports = subprocess.run(['gcov', '--json-format', '--stdout', *every], cwd=counts, check=True, text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout if every else ''
        for each in (each for report in reports.splitlines() for each in json.loads(report)['files']):
            file = os.path.relpath(each['file'], TREE) if each['file'].startswith(str(TREE)) else each['file']
            file = re.sub(r'^(?:.*/tree/|/)', '', file)
            known.setdefault(file, set()).update(l['line_number'] for l in each['lines'])
            lines.setdefault(file, set()).update(l['line_number'] for l in each['lines'] if l['count'])
        shutil.rmtree(counts)
        mine = [f for f in known if (TREE / f).is_file() and f.startswith('src/')]
        return test.name, {'key': key_of(test),
                           'lines': {f: by_function(f, lines[f]) for f in mine if lines[f]},
                           'known': {f: by_function(f, known[f]) for f in mine}}

    def of_tests(self, reached):
        return {name for name in self.tests if reached(self.data[name]['lines'])}

    def of_problems(self, file):
        """
        The tests by lines of problems that reach an operator's folder, or another file: lines that are new, or lines of functions
        that moved, reach what was not reached when they were measured.
        """
        folder = os.path.dirname(file) + '/'
        reached = folder if folder.startswith('src/operators/') else file
        return self.of_tests(lambda lines: any(f.startswith(reached) for f in lines)) & {
            name for name in self.tests if name.startswith('verify ') or name in TABLES}

    def reaching(self, site):
        """Names of the tests that may notice a mutation of the line; None: any may."""
        measured = self.measured_as_reaching(site)
        return measured and (measured | self.of_problems(site.file)) or None  # what none reached any may reach now

    def measured_as_reaching(self, site):
        file, function = site.file, site.function
        if file.startswith(EVERYWHERE):
            return None
        if not function:
            return self.of_tests(lambda lines: file in lines) or None
        known = self.known.get((file, function))
        if known is None:  # the function, or its file, is younger than the measurement
            return self.of_tests(lambda lines: file in lines) or None
        rows = (TREE / file).read_text().splitlines()
        for number in range(site.line, 0, -1):
            text = rows[number - 1].strip()
            if text in known:
                return self.of_tests(lambda lines: text in lines.get(file, {}).get(function, ()))
            if text == '{' and rows[number - 1] == '{':
                break
        return self.of_tests(lambda lines: function in lines.get(file, {}))
