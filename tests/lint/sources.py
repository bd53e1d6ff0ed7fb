"""The files that the lint checks read."""

import re
from pathlib import Path

FOLDERS = ("plans", "kernels", "planner", "simulator", "runtime", "tools", "tests")
CODE = (".h", ".cpp", ".cu", ".cuh")
_BUILT = re.compile(r"^(build.*|out|\.git)$")


def files(root: Path):
    """Every file of the tree, as a path relative to its root, without what a build makes."""
    todo = [root]
    while todo:
        folder = todo.pop()
        for entry in sorted(folder.iterdir()):
            if entry.name == "__pycache__" or (folder == root and _BUILT.match(entry.name)):
                continue
            if entry.is_dir():
                todo.append(entry)
            else:
                yield entry.relative_to(root)


def code(root: Path):
    """C++ and CUDA files of our folders."""
    return [f for f in files(root) if f.suffix in CODE and f.parts[0] in FOLDERS]


def quoted_includes(text: str):
    """(line number, path) of every #include "path"."""
    return _includes(text, r'"([^"]+)"')


def angled_includes(text: str):
    """(line number, path) of every #include <path>."""
    return _includes(text, r"<([^>]+)>")


def _includes(text: str, path_pattern: str):
    pattern = re.compile(r"^\s*#\s*include\s*" + path_pattern)
    for number, line in enumerate(text.splitlines(), 1):
        match = pattern.match(line)
        if match:
            yield number, match.group(1)
