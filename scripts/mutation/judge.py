"""judge.py - threads that share out mutations and tests until each mutation is killed or has passed all, or the time is over."""
import concurrent.futures
import hashlib
import re
import subprocess
import threading
import time
from collections import Counter

from mutation.mutant import Mutant
from mutation.tests import is_first, plain_name, run_test, version_of
from mutation.tree import TREE, WORK, add_row, rows_of

START = 0.5  # seconds to link and start a test


def line_of(text, offset):
    begin = text.rfind('\n', 0, offset) + 1
    end = text.find('\n', offset)
    return text[begin:end].strip()


def changed_line(site):
    """The line before and after, as in tests/mutants.txt."""
    text = (TREE / site.file).read_text()
    after = text[:site.offset] + site.after + text[site.offset + len(site.before):]
    return line_of(text, site.offset), line_of(after, site.offset)


def identity(site):
    return hashlib.sha256(repr((site.file, site.function, site.before, site.after, changed_line(site), site.line)).encode()).hexdigest()[:16]


def listed_equivalents():
    """tests/mutants.txt: { (file and function, line before, line after): reason }"""
    found = {}
    path = TREE / 'tests/mutants.txt'
    for block in re.split(r'\n\s*\n', path.read_text()) if path.exists() else []:
        lines = [l for l in block.splitlines() if not l.startswith('#')]
        if len(lines) == 4:
            place, before, after, reason = lines
            found[place, before.lstrip('- '), after.lstrip('+ ')] = reason
    return found


class Report:
    """A row for each test that a mutation passed, and for each mutation that was settled."""

    def __init__(self, path):
        self.path, self.settled, self.passed = path, {}, {}
        for row in rows_of(path):
            self.learn(row)

    def learn(self, row):
        if 'passed' in row:
            self.passed.setdefault(row['id'], {})[row['passed']] = row['version']
        else:
            self.settled[row['id']] = row['outcome'], row['by']

    def write(self, **row):
        add_row(self.path, row)
        self.learn(row)


class Judge:
    """
    The next test is one of the mutation that has had the least time. All mutations go through the first tests, a few at once and in
    the order drawn, before one goes on to the others.
    """

    def __init__(self, options, drawn, tests, coverage, builds, end):
        self.drawn, self.count, self.jobs, self.tests, self.coverage, self.builds = drawn, options.count, options.jobs, tests, coverage, builds
        self.over = lambda: time.monotonic() > end
        self.report = Report(WORK / f'report-{options.seed}.jsonl')
        self.kills = Counter(row['by'] for path in WORK.glob('report-*.jsonl') for row in rows_of(path) if row.get('outcome') == 'killed')
        self.versions, self.listed = {t.name: version_of(t) for t in tests}, listed_equivalents()
        self.compilers = concurrent.futures.ThreadPoolExecutor(self.jobs)
        self.changed = threading.Condition()
        self.open, self.settled = [], []  # mutants; (site, outcome, by)
        self.checks, self.passing = {t.name: threading.Lock() for t in tests}, {}  # without a mutation

    def weight(self, test):
        """What it takes for a kill, by what was killed before; sanitizers seldom see what no other test does."""
        plain = test.build == 'plain'
        kills = self.kills[test.name] or plain and self.kills[plain_name(test)]
        return (START + self.coverage.seconds_of(test)) / (kills + (0.5 if plain else 0.1))

    def open_next(self):
        """The next one drawn, unless it is settled already."""
        site = next(self.drawn, None)
        if site is None:
            self.count = 0
            return
        name, (before, after), place = identity(site), changed_line(site), f'{site.file} {site.function}'.strip()
        reason = self.listed.get((place, before, after)) or self.listed.get((place, before, '*'))
        outcome, by = ('equivalent', reason) if reason else self.report.settled.get(name, ('', ''))
        if outcome:
            self.settled.append((site, outcome, by))
            return
        reaching, passed = self.coverage.reaching(site), self.report.passed.get(name, {})
        left = [t for t in self.tests if (reaching is None or plain_name(t) in reaching) and self.passing.get(t.name, True)
                and passed.get(t.name) != self.versions[t.name]]
        self.open.append(Mutant(site, name, sorted(left, key=lambda t: (not is_first(t), self.weight(t)))))

    def next_step(self):
        """What to do for which mutant and test; None at the end"""
        with self.changed:
            while not self.over():
                counted = len(self.open) + sum(outcome == 'killed' for _, outcome, _ in self.settled)
                if counted < self.count and sum(bool(m.left and is_first(m.left[0])) for m in self.open) < self.jobs:
                    self.open_next()
                    continue
                ready = [(m, next((t for t in m.left if self.builds.ready(t.build)), None)) for m in self.open if not m.compiling]
                ready = [(m, test) for m, test in ready if test]
                if ready:
                    return self.begin(*min(ready, key=lambda each: (not is_first(each[1]), each[0].seconds)))
                if not any(m.left or m.running for m in self.open):
                    return None
                self.changed.wait(1)

    def begin(self, mutant, test):
        mutant.running += 1
        if test.build not in mutant.objects:
            mutant.compiling = True
            return self.compile, mutant, test
        mutant.left.remove(test)
        mutant.seconds += START + self.coverage.seconds_of(test)
        return self.run, mutant, test

    def work(self):
        while step := self.next_step():
            act, mutant, test = step
            outcome, by = act(mutant, test, self.builds.ready(test.build))
            with self.changed:
                mutant.compiling &= act != self.compile
                self.end(mutant, test, outcome, by)
                self.changed.notify_all()

    def compile(self, mutant, test, objects):
        return mutant.compile(test.build, objects, self.compilers), ''

    def run(self, mutant, test, objects):
        limit, over = self.coverage.limit_of(test), lambda: mutant.settled or self.over()
        try:
            program = mutant.program(test, objects)
        except subprocess.CalledProcessError:
            return 'refused', 'it does not link'
        if run_test(test, program, limit, over)[0]:
            return 'passed', ''
        return ('', '') if over() or not self.passes(test, limit) else ('killed', test.name)

    def passes(self, test, limit):
        """Without a mutation, too? Tried when it kills for the first time."""
        with self.checks[test.name]:
            if test.name not in self.passing:
                passed = run_test(test, self.builds.apart(test.build, test.program), limit, self.over)[0]
                if self.over():
                    return False
                self.passing[test.name] = passed
            return self.passing[test.name]

    def end(self, mutant, test, outcome, by):
        mutant.running -= 1
        site = mutant.site
        if outcome == 'passed':
            self.report.write(id=mutant.name, passed=test.name, version=self.versions[test.name])
        elif outcome and not mutant.settled:
            mutant.settled = True
            self.open.remove(mutant)
            self.settled.append((site, outcome, by))
            self.kills[by] += outcome == 'killed'
            self.report.write(id=mutant.name, outcome=outcome, by=by, **site._asdict())
            print(f'{outcome:10} {site.file}:{site.line} {site.kind} {by}', flush=True)
        elif self.over():
            mutant.left.append(test)
        if not mutant.running and (mutant.settled or not mutant.left):
            mutant.remove()

    def judge(self):
        """[(site, outcome, by)], where outcome is killed, survived, equivalent, refused"""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            for done in [pool.submit(self.work) for _ in range(self.jobs)]:
                done.result()
        survivors = [(m.site, 'survived', f'no time was left for {len(m.left)} tests' if m.left else '') for m in self.open]
        return self.settled + survivors
