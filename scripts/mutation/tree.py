"""tree.py - the copy of the tree that mutations are planted in, its builds, and how their objects are made and linked."""
import json
import os
import re
import shlex
import shutil
import subprocess
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
                '-DCMAKE_C_FLAGS=--coverage -Wno-error "-fprofile-exclude-files=/emulator/|/lab/|_ref.c"'],
}


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


def build(name, programs, jobs):
    folder = WORK / name
    launcher = ['-DCMAKE_C_COMPILER_LAUNCHER=ccache'] if shutil.which('ccache') else []
    quiet = {'check': True, 'stdout': subprocess.DEVNULL}
    subprocess.run(['cmake', '-G', 'Unix Makefiles', '-S', TREE, '-B', folder, *BUILDS[name], *launcher], **quiet)  # for its link.txt
    subprocess.run(['cmake', '--build', folder, f'-j{jobs}', '--target', *sorted(programs)], **quiet,
                   env={**os.environ, 'CCACHE_BASEDIR': str(TREE)})


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
