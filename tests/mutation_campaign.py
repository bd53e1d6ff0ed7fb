"""What tests/oracle/mutate.py and tests/fake_cuda/mutate.py share: a copy of the tree that known
mistakes are made in, one at a time. An edit is (file, old text, new text); the old text must stand in
its file exactly once."""

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command, patience=None):
    """(exit status, what it printed); the status is None when it took longer than `patience` s."""
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              check=False, timeout=patience)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode()


def misfits(root, edits):
    """Why edits do not fit a tree, a line each."""
    return [f"{file}: this must stand there once, but does {count} times:\n{old}"
            for file, old, _ in edits if (count := (root / file).read_text().count(old)) != 1]


def check_edits(mutations):
    """Whether {name: edits} fit this tree: prints what does not, and returns the exit status."""
    wrong = [f"{name}: {why}" for name, edits in mutations.items() for why in misfits(ROOT, edits)]
    print("\n".join(wrong) if wrong else f"{len(mutations)} mutations fit the tree")
    return 1 if wrong else 0


class MutatedTree:
    """A copy of the tree in `folder`, and its build in there as anywhere: so ccache, told of the
    folder, knows what builds of the tree itself have compiled."""

    def __init__(self, folder, *cmake_options):
        self.source = folder.resolve()
        self.build = self.source / "build/mutated"
        if self.source.exists():
            for entry in self.source.iterdir():
                if entry.name != "build":
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        # Files get the time of their copy: what an earlier run has built of other texts is out of
        # date.
        shutil.copytree(ROOT, self.source, copy_function=shutil.copy, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("build*", "out", ".git", "__pycache__"))
        launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        os.environ["CCACHE_BASEDIR"] = str(self.source)
        os.environ["CCACHE_NOHASHDIR"] = "1"
        status, text = run("cmake", "-G", "Ninja", "-S", self.source, "-B", self.build,
                           *cmake_options, *launcher)
        if status != 0:
            sys.exit(text)

    def compile(self, target):
        status, text = run("cmake", "--build", self.build, "--target", target)
        if status != 0:
            sys.exit(f"{target} does not compile:\n{text[-3000:]}")

    @contextlib.contextmanager
    def mistake(self, edits):
        """The tree has the edits while the context lasts."""
        if wrong := misfits(self.source, edits):
            sys.exit("\n".join(wrong))
        before = {file: (self.source / file).read_text() for file, _, _ in edits}
        for file, old, new in edits:
            path = self.source / file
            path.write_text(path.read_text().replace(old, new))
        try:
            yield
        finally:
            for file, text in before.items():
                (self.source / file).write_text(text)
