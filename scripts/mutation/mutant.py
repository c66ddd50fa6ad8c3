"""mutant.py - one mutation, and the programs that it is built into."""
import functools
import random
import re
import shutil
import subprocess
import threading

from mutation import sites
from mutation.tree import TREE, WORK

SOME_USERS = 24  # of a header's function or macro: into more it is not built


class Mutant:
    """A folder with links to the tree around the one file that differs, and what was built of it."""

    def __init__(self, site, name, tests):
        self.site, self.name, self.left = site, name, tests  # those to come, the next one first
        self.folder, self.tree = WORK / 'mutants' / name, WORK / 'mutants' / name / 'tree'
        self.objects, self.seconds, self.running, self.compiling, self.settled = {}, 0, 0, False, False
        self.linking = threading.Lock()

    def plant(self):
        shutil.rmtree(self.folder, ignore_errors=True)
        parts = self.site.file.split('/')
        for depth in range(len(parts)):
            original = TREE.joinpath(*parts[:depth])
            copy = self.tree.joinpath(*parts[:depth])
            copy.mkdir(parents=True, exist_ok=True)
            for path in original.iterdir():
                if path.name != parts[depth]:
                    (copy / path.name).symlink_to(path)
        text = (TREE / self.site.file).read_text()
        (self.tree / self.site.file).write_text(text[:self.site.offset] + self.site.after + text[self.site.offset + len(self.site.before):])

    def compile(self, build, objects, pool):
        """'' if it differs from the original; 'refused', or 'equivalent' where the object code is the same"""
        if not self.tree.exists():
            self.plant()
        (self.folder / build).mkdir()
        everyone = users(self.site, objects)
        few = some_users(self.site, everyone)
        for sources in [few] if few == everyone or build != 'plain' else [few, everyone]:
            made = list(pool.map(lambda each: self.compile_one(build, objects, *each),
                                 enumerate(command for source in sources for command in objects.commands[source])))
            if None in made:
                return 'refused'
            self.objects[build] = {output: target for output, target in made if target}
            if self.objects[build] or build != 'plain':
                return ''
        return 'equivalent'

    def compile_one(self, build, objects, number, command):
        """(output of the build, path of what replaces it, None if it is the same); None if the compiler refuses"""
        words, output = command
        target = self.folder / build / f'{number}.o'
        words = [w.replace(str(TREE), str(self.tree)) for w in words]
        words[words.index('-o') + 1] = str(target)
        if subprocess.run(words, cwd=self.folder, stderr=subprocess.DEVNULL).returncode:
            return None
        same = build == 'plain' and target.read_bytes() == (objects.folder / output).read_bytes()
        return output, None if same else target

    def program(self, test, objects):
        with self.linking:
            path = self.folder / test.build / test.program  # a test may look for its own name
            if not path.exists():
                objects.link(test.program, self.objects[test.build], path)
            return path

    def remove(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def users(site, objects):
    """The sources that a mutation is built into"""
    return sorted(objects.users.get(site.file, ())) if site.file.endswith('.h') else [site.file]


def some_users(site, everyone):
    """Of a header's function or macro those that mention it, and not too many; tests that do are the first to tell."""
    name = site.function or macro_of(site)
    if len(everyone) <= SOME_USERS or not name:
        return everyone
    names = {name}
    while more := {n for n, words in words_of_headers() if n not in names and words & names}:
        names |= more
    mentioning = [s for s in everyone if words_of(s) & names] or everyone
    drawn = random.Random(site.line).sample(mentioning, len(mentioning))
    return sorted(drawn, key=lambda source: not source.startswith('tests/'))[:SOME_USERS]


@functools.cache
def words_of(file):
    return frozenset(re.findall(r'\w+', (TREE / file).read_text()))


@functools.cache
def words_of_headers():
    """[(function or macro, words of its body)]"""
    found = []
    for path in [*TREE.glob('src/**/*.h'), *TREE.glob('include/**/*.h')]:
        text = path.read_text()
        bodies = [(name, text[begin:end]) for begin, end, name in sites.functions_of(text)]
        bodies += re.findall(r'^#define (\w+)((?:[^\n]*\\\n)*[^\n]*)', text, re.M)
        found += [(name, frozenset(re.findall(r'\w+', body))) for name, body in bodies]
    return found


def macro_of(site):
    """The name of the macro that the line belongs to, or ''"""
    rows = (TREE / site.file).read_text().splitlines()
    first = site.line - 1
    while first > 0 and rows[first - 1].endswith('\\'):
        first -= 1
    found = re.match(r'#\s*define (\w+)', rows[first])
    return found[1] if found else ''
