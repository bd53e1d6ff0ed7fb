#!/usr/bin/env python3
"""Makes known mistakes in a copy of the CUDA runtime and shows which test on the fake sees each.

    tests/fake_cuda/mutate.py [--build FOLDER] [--only TEXT]...

Takes about fifteen minutes, so it is not part of the tests; --check, which is, looks whether the
edits still fit. Prints a table in Markdown. Exit status 0: every mistake is seen.
"""

import argparse
import re
import sys
from pathlib import Path

from mutations import MUTATIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mutation_campaign import ROOT, MutatedTree, check_edits, run  # noqa: E402

PATIENCE_S = 120  # a mistake may hang


def seen_by(tree, program):
    """The first test that fails, or none."""
    tree.compile(program)
    status, text = run(tree.build / "tests/fake_cuda" / program, patience=PATIENCE_S)
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
    parser.add_argument("--only", action="append", metavar="TEXT",
                        help="mutations whose names hold this; repeatable")
    parser.add_argument("--check", action="store_true", help="only look whether the edits still fit")
    options = parser.parse_args()
    edits_of = {name: [tuple(edit)] for name, (_, *edit) in MUTATIONS.items()}
    if options.check:
        return check_edits(edits_of)
    tree = MutatedTree(options.build, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                       "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1")
    chosen = {name: mutation for name, mutation in MUTATIONS.items()
              if any(text in name for text in options.only or [""])}
    for program in sorted({program for program, *_ in chosen.values()}):
        if test := seen_by(tree, program):
            sys.exit(f"{program} fails before anything is changed: {test}")
    print("| mistake | first test that sees it |\n|---|---|", flush=True)
    missed = 0
    for name, (program, *_) in chosen.items():
        with tree.mistake(edits_of[name]):
            test = seen_by(tree, program)
        missed += test is None
        print(f"| {name} | {test or '**none**'} |", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
