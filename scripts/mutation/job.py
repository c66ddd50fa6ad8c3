"""job.py - one mutation at a time, built and tested in a folder of its own."""
import random
import re
import shutil
import subprocess
import time

from mutation.tests import run_test
from mutation.tree import TREE, WORK

NO_TIME = 'no time was left'
START = 0.5  # seconds to link and start a test
SOME_USERS = 24  # of a header's code, tried first: what they betray need not be built into all; the sanitizers see no others


class Job:
    """A folder with a tree of its own, in which one mutation at a time is built and tested."""

    def __init__(self, number, objects, coverage, tests, seconds, kills, deadline):
        self.tree = WORK / f'job{number}' / 'tree'
        self.out = WORK / f'job{number}' / 'out'
        self.objects, self.coverage, self.tests = objects, coverage, tests
        self.seconds, self.kills, self.deadline = seconds, kills, deadline
        for folder in ('src', 'include', 'lab', 'cli', 'bench', 'tests'):
            shutil.copytree(TREE / folder, self.tree / folder, dirs_exist_ok=True)

    def compile(self, build_name, sources):
        """{ output: path } of the objects that changed; None if one does not compile."""
        objects, changed = self.objects[build_name], {}
        own_tree = '../tree' if shutil.which('ccache') else str(self.tree)  # the paths in the build's objects: ccache's
        for source in sources:
            for words, output in objects.commands[source]:
                target = self.out / f'{len(changed)}.o'
                words = [w.replace(str(TREE), own_tree) for w in words]
                words[words.index('-o') + 1] = str(target)
                if subprocess.run(words, cwd=self.out, stderr=subprocess.DEVNULL).returncode:
                    return None
                if build_name != 'plain' or target.read_bytes() != (objects.folder / output).read_bytes():
                    changed[output] = target.rename(self.out / f'{build_name}{len(changed)}.o')
        return changed

    def order(self, site):
        """The tests that reach the line: those that kill most in a second first, the sanitizers and the full runs last."""
        names = self.coverage.reaching(site)

        def plain_name(test):
            name = re.sub('^(full|sanitized) ', '', test.name)
            return 'verify l4' if name == 'smoke' else name

        chosen = [t for t in self.tests if names is None or plain_name(t) in names]
        known = [(t, self.seconds.get(t.name) or 20 * self.seconds.get(plain_name(t), 1)) for t in chosen]
        return sorted(known, key=lambda x: (x[0].full, x[0].build != 'plain', (START + x[1]) / (0.5 + self.kills[x[0].name])))

    def judge_built(self, site, sources, few, quick):
        """(outcome, test that killed it) of the mutation built into these sources, and into a few for the sanitizers."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        changed = self.compile('plain', sources)
        if changed is None:
            return 'refused', ''
        if not changed:
            return 'equivalent', 'same object code'
        killer = self.first_failing(site, few, changed, quick)
        if time.monotonic() > self.deadline:
            return 'survived', NO_TIME
        return ('killed', killer) if killer else ('survived', '')

    def first_failing(self, site, few, changed, quick):
        linked, objects = set(), {'plain': changed}
        for test, seconds in self.order(site):
            if quick and test.build != 'plain':
                break
            if test.build not in objects:
                objects[test.build] = self.compile(test.build, few)
                if objects[test.build] is None:
                    return f'{test.build} build'
            program = self.out / test.build / test.program  # a test may look for its own name
            program.parent.mkdir(exist_ok=True)
            if program not in linked:
                self.objects[test.build].link(test.program, objects[test.build], program)
                linked.add(program)
            if not run_test(test, program, 3 + 5 * seconds, self.deadline)[0]:
                return test.name
        return None

    def judge(self, site):
        """(outcome, test that killed it)"""
        path, original = self.tree / site.file, (TREE / site.file).read_text()
        path.write_text(original[:site.offset] + site.after + original[site.offset + len(site.before):])
        users = sorted(self.objects['plain'].users.get(site.file, ())) if site.file.endswith('.h') else [site.file]
        few = users
        if len(users) > SOME_USERS and (site.function or in_macro(original, site.line)):
            few = random.Random(site.line).sample(users, SOME_USERS)
        try:
            if few != users:
                outcome = self.judge_built(site, few, few, True)
                if outcome[0] == 'killed':
                    return outcome
            return self.judge_built(site, users, few, False)
        finally:
            path.write_text(original)


def in_macro(text, line):
    rows = text.splitlines()
    return rows[line - 1].startswith('#define') or line > 1 and rows[line - 2].endswith('\\')
