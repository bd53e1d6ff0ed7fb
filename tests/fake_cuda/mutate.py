#!/usr/bin/env python3
"""Makes known mistakes in a copy of the CUDA runtime and shows which test on the fake sees each.

    tests/fake_cuda/mutate.py [--build FOLDER] [--only TEXT]

Takes about fifteen minutes, so it is not part of the tests; --check, which is, looks whether the
edits still fit. Prints a table in Markdown. Exit status 0: every mistake is seen.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from mutations import KERNELS, MUTATIONS, RUNTIME

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120  # a mistake may hang


def check_edits():
    wrong = [f"{name}: {file} has this {count} times, not once:\n{old}"
             for name, (_, file, old, _) in MUTATIONS.items()
             if (count := (ROOT / file).read_text().count(old)) != 1]
    print("\n".join(wrong) if wrong else f"{len(MUTATIONS)} mutations fit the tree")
    return 1 if wrong else 0


def run(*command, patience=None):
    try:
        done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                              check=False, timeout=patience)
        return done.returncode, done.stdout + done.stderr
    except subprocess.TimeoutExpired as late:
        return None, (late.stdout or b"").decode()


def build(folder, program):
    status, text = run("cmake", "--build", folder, "--target", program)
    if status != 0:
        sys.exit(f"{program} does not compile:\n{text[-3000:]}")


def seen_by(folder, program):
    """The first test that fails, or none."""
    status, text = run(folder / "tests/fake_cuda" / program, patience=PATIENCE_S)
    if status == 0:
        return None
    failed = re.findall(r"\[  FAILED  \] (?:\w+/)?(\w+\.\w+)", text)
    if failed:
        return failed[0]
    running = re.findall(r"\[ RUN      \] (?:\w+/)?(\w+\.\w+)", text)
    how = "hangs" if status is None else "stops it"
    return f"{running[-1]} ({how})" if running else how


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/cuda_mutations")
    parser.add_argument("--only", default="", help="mutations whose names hold this")
    parser.add_argument("--check", action="store_true", help="only look whether the edits still fit")
    options = parser.parse_args()
    if options.check:
        return check_edits()
    source, folder = options.build.resolve() / "source", options.build.resolve() / "build"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT, source, copy_function=shutil.copy,
                    ignore=shutil.ignore_patterns("build*", "out", ".git", "__pycache__"))
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    status, text = run("cmake", "-G", "Ninja", "-S", source, "-B", folder,
                       "-DCMAKE_BUILD_TYPE=RelWithDebInfo", "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1",
                       *launcher)
    if status != 0:
        sys.exit(text)
    for program in (KERNELS, RUNTIME):
        build(folder, program)
        if seen_by(folder, program):
            sys.exit(f"{program} fails before anything is changed")
    print("| mistake | first test that sees it |\n|---|---|", flush=True)
    missed = 0
    for name, (program, file, old, new) in MUTATIONS.items():
        if options.only not in name:
            continue
        whole = (source / file).read_text()
        (source / file).write_text(whole.replace(old, new))
        build(folder, program)
        test = seen_by(folder, program)
        (source / file).write_text(whole)
        missed += test is None
        print(f"| {name} | {test or '**none**'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
