#!/usr/bin/env python3
"""Runs the commands of golden files and compares output, errors and exit status byte for byte.

    golden.py PROGRAM FILE...            compares; shows what differs and exits 1
    golden.py --update PROGRAM FILE...   rewrites the files with what the program says now

A golden file holds commands for bash, which run in order in a fresh folder with a copy of inputs/,
and what each of them said:

    # a comment
    mask [0-9.]+ ms => <time>     replaces figures that no two runs have in common
    $ shardplan plan tiny.yaml    a command
    | a line of standard output   ("\\" as the last character: the line has no line feed)
    ! a line of standard error
    ? 0                           the exit status
"""
import argparse
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INPUTS = Path(__file__).resolve().parent / "inputs"
TIMEOUT_S = 120


def marked(text: str, mark: str):
    """The lines of an output, each behind its mark."""
    for line in text.splitlines(keepends=True):
        ended = line.endswith("\n")
        yield f"{mark} {line[:-1] if ended else line + chr(92)}".rstrip(" ") + "\n"


class Runner:
    def __init__(self, program: Path, folder: Path):
        self.folder = folder / "work"
        shutil.copytree(INPUTS, self.folder)
        programs = folder / "bin"
        programs.mkdir()
        (programs / "shardplan").symlink_to(program.resolve())
        keep = {key: os.environ[key] for key in ("SHARDPLAN_DATA", "HOME") if key in os.environ}
        self.environment = keep | {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LC_ALL": "C",
            "OMP_NUM_THREADS": "1",
            "OMP_WAIT_POLICY": "passive",
        }

    def answer(self, command: str, masks) -> str:
        done = subprocess.run(
            ["bash", "-c", command], cwd=self.folder, env=self.environment, timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="backslashreplace")
        text = "".join(marked(done.stdout, "|")) + "".join(marked(done.stderr, "!"))
        for pattern, replacement in masks:
            text = pattern.sub(replacement, text)
        return f"{text}? {done.returncode}\n"


def replay(golden: str, runner: Runner) -> str:
    """The golden text as it is with today's answers."""
    masks = []
    result = []
    for line in golden.splitlines(keepends=True):
        if line.startswith("mask "):
            pattern, replacement = line[len("mask "):].rstrip("\n").split(" => ")
            masks.append((re.compile(pattern), replacement))
        if line.startswith("$ "):
            result += [line, runner.answer(line[2:].rstrip("\n"), masks)]
        elif line[:1] not in ("|", "!", "?"):
            result.append(line)
    return "".join(result)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--update", action="store_true", help="rewrite the files")
    parser.add_argument("program", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    arguments = parser.parse_args()

    failed = 0
    for file in arguments.files:
        golden = file.read_text()
        with tempfile.TemporaryDirectory() as folder:
            actual = replay(golden, Runner(arguments.program, Path(folder)))
        if actual == golden:
            continue
        if arguments.update:
            file.write_text(actual)
            print(f"rewrote {file}")
            continue
        failed += 1
        sys.stdout.writelines(difflib.unified_diff(
            golden.splitlines(keepends=True), actual.splitlines(keepends=True),
            f"{file} (golden)", f"{file} (now)"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
