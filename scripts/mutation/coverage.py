"""coverage.py - which lines each test reaches and how long it takes, measured once with gcov."""
import concurrent.futures
import functools
import json
import os
import shutil
import subprocess
import time

from mutation import sites
from mutation.tests import PARTS, SLOW_UNITS, all_tests, key_of, plain_name, run_test
from mutation.tree import TREE, WORK, add_row, rows_of

COVERED = WORK / 'covered'
LONGER = {'plain': 1, 'sanitized': 4, 'threads': 15}  # than under gcov
LONGER_FULL = 20  # than what make test runs of it
TABLES = {'unit_answers', 'unit_choices', 'unit_configs', 'unit_plans', 'unit_population', 'unit_refusals', 'unit_rejects',
          'unit_sizes'}  # go through lines of problems
EVERYWHERE = 'src/device/emulator/'  # counting its lines makes it slow: all tests may reach it


@functools.cache
def places_of(file):
    """[(file, function, text)] of its lines: so a measurement outlives edits elsewhere"""
    text = (TREE / file).read_text()
    functions = {}
    for begin, end, name in sites.functions_of(text):
        functions.update(dict.fromkeys(range(text.count('\n', 0, begin), text.count('\n', 0, end) + 1), name))
    return [(file, functions.get(number, ''), row.strip()) for number, row in enumerate(text.splitlines())]


def places_in(folder, suffix, least):
    """Those with code that ran so often, by gcov's files in a folder"""
    found = set()
    sources = {p: p.relative_to(folder).as_posix().partition('.dir/')[2].removesuffix(suffix) for p in folder.rglob(f'*{suffix}')}
    files = [str(p) for p, source in sources.items() if source.startswith(('src/', 'tests/')) and (TREE / source).exists()]
    reports = subprocess.run(['gcov', '--json-format', '--stdout', *files], cwd=folder, check=True, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout if files else ''
    for each in (each for report in reports.splitlines() for each in json.loads(report)['files']):
        file = each['file'].lstrip('/')  # from the tree on, as CMakeLists.txt has it
        if file.startswith('src/'):
            places = places_of(file)
            found.update(places[line['line_number'] - 1] for line in each['lines']
                         if line['count'] >= least and line['line_number'] <= len(places))  # of a build of before may be more
    return found


def measure(test, end):
    """Whether it passes before the end, its seconds, and the places that it reaches"""
    counts = WORK / 'counts' / test.name.replace(' ', '_')
    shutil.rmtree(counts, ignore_errors=True)
    counts.mkdir(parents=True)  # a program that ends by _exit() leaves nothing there
    passed, seconds = run_test(test, COVERED / test.program, 6000, lambda: time.monotonic() > end, {'GCOV_PREFIX': str(counts)}.items())
    base = counts / str(COVERED).lstrip('/')
    for data in base.rglob('*.gcda'):
        os.link((COVERED / data.relative_to(base)).with_suffix('.gcno'), data.with_suffix('.gcno'))
    reached = places_in(base, '.gcda', 1)
    shutil.rmtree(counts)
    return passed, seconds, reached


class Coverage:
    """The file has a row of each test, added as it was measured; in it places are counted over all rows of places."""

    def __init__(self, tests):
        self.path, self.numbers, self.rows = WORK / 'coverage.jsonl', {}, {}
        for row in rows_of(self.path):
            self.learn(row)
        names = {plain_name(t) for t in tests}
        self.wanted = [t for t in all_tests(False) if t.build == 'plain' and t.name in names
                       and self.rows.get(t.name, {}).get('key') != key_of(t)]
        self.wanted.sort(key=lambda t: t.program.removeprefix('unit_') not in SLOW_UNITS and t.program != 'ckl')  # the longest first

    def learn(self, row):
        for place in row.get('places', []):
            self.numbers[tuple(place)] = len(self.numbers)
        if 'test' in row:
            self.rows[row['test']] = row

    def write(self, row):
        add_row(self.path, row)
        self.learn(row)

    def measure(self, jobs, end):
        """What is wanted, by the covered build, until the end."""
        print(f'measuring what {len(self.wanted)} tests reach', flush=True)
        self.write({'places': sorted(places_in(COVERED, '.gcno', 0) - self.numbers.keys())})
        with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
            running = {pool.submit(measure, test, end): test for test in self.wanted}
            for done in concurrent.futures.as_completed(running):
                test, (passed, seconds, reached) = running[done], done.result()
                if passed:
                    self.write({'test': test.name, 'key': key_of(test), 'seconds': round(seconds, 2),
                                'reached': sorted(self.numbers[place] for place in reached)})
                else:
                    print(f'{test.name} {"was not measured" if time.monotonic() > end else "fails without a mutation"}', flush=True)

    def index(self):
        """Names of the tests that reach each place, function, file."""
        self.tests = {}
        places = list(self.numbers)
        for place in places:
            self.tests[place], self.tests[place[:2]] = set(), set()
        for name, row in self.rows.items():
            for place in (places[number] for number in row['reached']):
                for key in (place, place[:2], place[0]):
                    self.tests.setdefault(key, set()).add(name)

    def seconds_of(self, test):
        longer = LONGER[test.build] * (LONGER_FULL if test.full and test.build == 'plain' else 1)
        return self.rows[plain_name(test)]['seconds'] * longer / (PARTS if 'verify' in test.words and test.full else 1)

    def limit_of(self, test):
        return 3 + 5 * self.seconds_of(test)

    def of_problems(self, file):
        """
        The tests by lines of problems that reach an operator's folder, or another file: lines that are new, or lines of functions
        that moved, reach what was not reached when they were measured.
        """
        folder = os.path.dirname(file) + '/'
        same = (lambda f: f.startswith(folder)) if folder.startswith('src/operators/') else (lambda f: f == file)
        files = [f for f in self.tests if isinstance(f, str) and same(f)]
        return {name for f in files for name in self.tests[f] if name.startswith('verify ') or name in TABLES}

    def reaching(self, site):
        """Names of the tests that may notice a mutation of the line; None: any may."""
        measured = self.measured_as_reaching(site)
        return measured and (measured | self.of_problems(site.file)) or None  # what none reached any may reach now

    def measured_as_reaching(self, site):
        if site.file.startswith(EVERYWHERE):
            return None
        in_file = self.tests.get(site.file)
        if not site.function or (site.file, site.function) not in self.tests:  # or younger than the measurement
            return in_file
        for place in reversed(places_of(site.file)[:site.line]):
            if place in self.tests:
                return self.tests[place]
            if place[1] != site.function:
                break
        return self.tests[site.file, site.function]
