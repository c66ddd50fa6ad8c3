"""tree.py - the copy of the tree that mutations are planted in, its builds, and how their objects are made and linked."""
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WORK = ROOT / 'build-mutate'
TREE = WORK / 'tree'
EVERYTHING = 'everything'  # the library that the sanitizers' unit tests share
BUILDS = {  # what cmake is told; objects of the plain build are compared for equality
    'plain': ['-DCMAKE_BUILD_TYPE=Release'],
    'sanitized': ['-DCMAKE_BUILD_TYPE=Debug', '-DCKL_SANITIZE=ON'],
    'threads': ['-DCMAKE_BUILD_TYPE=Release', '-DCKL_SANITIZE=thread'],
    'covered': ['-DCMAKE_BUILD_TYPE=Release', '-DCMAKE_EXE_LINKER_FLAGS=--coverage',
                '-DCMAKE_C_FLAGS=--coverage -DCKL_COVERED -Wno-error "-fprofile-exclude-files=/emulator/|/lab/|_ref.c"'],
}


def rows_of(path):
    """The rows of a file of JSON lines; the last one may have been cut off, and is taken away."""
    text = path.read_text() if path.exists() else ''
    whole = text[:text.rfind('\n') + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


def add_row(path, row):
    with path.open('a') as out:
        out.write(json.dumps(row, separators=(',', ':')) + '\n')


def names_of_files():
    """What git would commit now; of a tree without git all but builds."""
    if (ROOT / '.git').exists():
        return subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '-z'], cwd=ROOT, check=True, text=True,
                              stdout=subprocess.PIPE).stdout.split('\0')
    files = [p.relative_to(ROOT) for p in ROOT.rglob('*')]
    return [str(p) for p in files if not p.parts[0].startswith('build') and '__pycache__' not in p.parts]


def copy_tree():
    """Changed files only, so that builds stay incremental."""
    wanted = {n for n in names_of_files() if n and (ROOT / n).is_file()}
    for name in wanted:
        target = TREE / name
        if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    for path in [p for p in TREE.rglob('*') if p.is_file() and '.git' not in p.parts]:
        if str(path.relative_to(TREE)) not in wanted:
            path.unlink()


def start_build(name, programs, jobs):
    """The process that configures and builds them, by make, for its link.txt"""
    launcher = ['-DCMAKE_C_COMPILER_LAUNCHER=ccache'] if shutil.which('ccache') else []
    configure = ['cmake', '-G', 'Unix Makefiles', '-S', str(TREE), '-B', str(WORK / name), *BUILDS[name], *launcher]
    compile_all = ['make', '-s', '-C', str(WORK / name), '-f', 'CMakeFiles/Makefile2', f'-j{jobs}',  # the front Makefile takes goals in turn
                   *(f'CMakeFiles/{program}.dir/all' for program in sorted(programs))]
    return subprocess.Popen(f'{shlex.join(configure)} && {shlex.join(compile_all)}', shell=True, stdout=subprocess.DEVNULL,
                            start_new_session=True, env={**os.environ, 'CCACHE_BASEDIR': str(TREE)})


class Builds:
    """The builds that tests want; each begins when it is first asked for."""

    def __init__(self, tests, jobs):
        self.jobs, self.programs, self.processes, self.built = jobs, {}, {}, {}
        for test in tests:
            self.programs.setdefault(test.build, set()).add(test.program)

    def ready(self, name):
        """Its Objects; None while they are being made"""
        if name not in self.processes:
            self.processes[name] = start_build(name, self.programs[name], self.jobs)
        if name not in self.built and self.processes[name].poll() is not None:
            assert not self.processes[name].returncode, f'the {name} build failed'
            self.built[name] = Objects(name)
            for program in self.programs[name]:  # away from what the build left beside it, as a mutant's programs are
                link = self.apart(name, program)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                os.link(WORK / name / program, link)
        return self.built.get(name)

    def wait(self, *names):
        while not all([self.ready(name) for name in names]):
            time.sleep(0.1)

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    @staticmethod
    def apart(name, program):
        return WORK / 'apart' / name / program


class Objects:
    """How the objects of a build are compiled, which headers they include, and how programs are linked."""

    def __init__(self, name):
        self.folder = WORK / name
        self.commands, self.users = {}, {}
        for each in json.loads((self.folder / 'compile_commands.json').read_text()):
            source = str(Path(each['file']).relative_to(TREE))
            words = [w for w in shlex.split(each['command']) if not w.endswith('ccache')]
            self.commands.setdefault(source, []).append((words, words[words.index('-o') + 1]))
        for source, compiled in self.commands.items():
            for _, output in compiled:
                depends = self.folder / (output + '.d')
                if not depends.exists():  # of a program that was not built
                    continue
                for header in re.findall(r'(?:^|\s)\S*?/tree/((?:src|include)/\S+)', depends.read_text()):
                    self.users.setdefault(header, set()).add(source)

    def link(self, program, changed, target):
        """A program with some objects replaced: { output of the build: path }. They may be in the library that it uses."""
        text = (self.folder / 'CMakeFiles' / f'{program}.dir' / 'link.txt').read_text()
        words = [str(changed.get(w, w)) for w in shlex.split(text)]
        if program != EVERYTHING and f'lib{EVERYTHING}.so' in words:
            library = target.parent / f'lib{EVERYTHING}.so'
            if not library.exists():
                self.link(EVERYTHING, changed, library)
            words = [str(library) if w == library.name else w.replace(f'-rpath,{self.folder}', f'-rpath,{library.parent}')
                     for w in words]
        words[words.index('-o') + 1] = str(target)
        quick = ['-fuse-ld=lld'] if shutil.which('ld.lld') else []
        subprocess.run(words + quick, cwd=self.folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
