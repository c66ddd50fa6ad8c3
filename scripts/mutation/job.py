"""job.py - one mutation at a time, built and tested in a folder of its own."""
import hashlib
import json
import random
import shutil
import subprocess
import time

from mutation.tests import plain_name, run_test
from mutation.tree import TREE, WORK

NO_TIME = 'no time was left'
START = 0.5  # seconds to link and start a test
SOME_USERS = 24  # of a header's code, tried first: what they betray need not be built into all; the sanitizers see no others


class Job:
    """A folder with a tree of its own, in which one mutation at a time is built and tested."""

    def __init__(self, number, objects, coverage, baseline, kills, deadline):
        self.tree = WORK / f'job{number}' / 'tree'
        self.out = WORK / f'job{number}' / 'out'
        self.objects, self.coverage, self.baseline = objects, coverage, baseline
        self.kills, self.deadline = kills, deadline
        for folder in ('src', 'include', 'lab', 'cli', 'bench', 'tests'):
            shutil.copytree(TREE / folder, self.tree / folder, dirs_exist_ok=True)

    def compile(self, build_name, sources):
        """{ output: path } of the objects that changed; None if one does not compile. A later round finds what one compiled."""
        objects, changed = self.objects[build_name], {}
        key = hashlib.sha256(repr((self.site, build_name, sources)).encode()).hexdigest()[:16]
        kept = WORK / 'mutants' / key
        if (kept / 'objects.json').exists():
            return {output: kept / name for output, name in json.loads((kept / 'objects.json').read_text()).items()}
        kept.mkdir(parents=True, exist_ok=True)
        own_tree = '../tree' if shutil.which('ccache') else str(self.tree)  # the paths in the build's objects: ccache's
        for source in sources:
            for words, output in objects.commands[source]:
                target = self.out / f'{len(changed)}.o'
                words = [w.replace(str(TREE), own_tree) for w in words]
                words[words.index('-o') + 1] = str(target)
                if subprocess.run(words, cwd=self.out, stderr=subprocess.DEVNULL).returncode:
                    return None
                if build_name != 'plain' or target.read_bytes() != (objects.folder / output).read_bytes():
                    changed[output] = target.rename(kept / f'{len(changed)}.o')
        (kept / 'objects.json').write_text(json.dumps({output: path.name for output, path in changed.items()}))
        return changed

    def order(self, site, tests):
        """Those that reach the line, the ones first that kill most in a second."""
        names = self.coverage.reaching(site)
        reaching = [t for t in tests if names is None or plain_name(t) in names]
        kills = lambda t: self.kills[t.name] or self.kills[plain_name(t)]
        return sorted(reaching, key=lambda t: (START + self.baseline.seconds_of(t)) / (0.5 + kills(t)))

    def judge_built(self, site, sources, few, tests):
        """(outcome, test that killed it, tests that passed) of the mutation built into these sources, for the sanitizers a few."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        changed = self.compile('plain', sources)
        if changed is None:
            return 'refused', '', []
        if not changed:
            return 'equivalent', 'same object code', []
        passed = []
        killer = self.first_failing(self.order(site, tests), few, changed, passed)
        if time.monotonic() > self.deadline:
            return 'survived', NO_TIME, passed
        return ('killed', killer, passed) if killer else ('survived', '', passed)

    def first_failing(self, tests, few, changed, passed):
        linked, objects = set(), {'plain': changed}
        for test in tests:
            if test.build not in objects:
                objects[test.build] = self.compile(test.build, few)
                if objects[test.build] is None:
                    return f'{test.build} build'
            program = self.out / test.build / test.program  # a test may look for its own name
            program.parent.mkdir(exist_ok=True)
            if program not in linked:
                self.objects[test.build].link(test.program, objects[test.build], program)
                linked.add(program)
            if run_test(test, program, self.baseline.limit_of(test), self.deadline)[0]:
                passed.append(test)
            elif time.monotonic() > self.deadline or self.baseline.passes(test):
                return test.name
        return None

    def judge(self, site, tests, quick):
        """(outcome, test that killed it, tests that passed); quick: what a few users of a header betray needs no others"""
        self.site = site
        path, original = self.tree / site.file, (TREE / site.file).read_text()
        path.write_text(original[:site.offset] + site.after + original[site.offset + len(site.before):])
        users = sorted(self.objects['plain'].users.get(site.file, ())) if site.file.endswith('.h') else [site.file]
        few = users
        if len(users) > SOME_USERS and (site.function or in_macro(original, site.line)):
            few = random.Random(site.line).sample(users, SOME_USERS)
        try:
            if quick and few != users:
                outcome = self.judge_built(site, few, few, tests)
                if outcome[0] == 'killed':
                    return outcome
            return self.judge_built(site, users, few, tests)
        finally:
            path.write_text(original)


def in_macro(text, line):
    rows = text.splitlines()
    return rows[line - 1].startswith('#define') or line > 1 and rows[line - 2].endswith('\\')
