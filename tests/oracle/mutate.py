#!/usr/bin/env python3
"""Breaks a copy of the engine in known ways and shows which figure of the acceptance cases sees it.

    tests/oracle/mutate.py [--build FOLDER] [--only TEXT] [--cases FOLDER]

Takes about ten minutes, so it is not part of the tests. Exit status 0: every mistake is seen but the
one that is known to be invisible, and the change that must not matter is not seen.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from mutations import CASES, KNOWN_INVISIBLE, MUST_BE_INVISIBLE, MUTATIONS

ROOT = Path(__file__).resolve().parents[2]
# Figures of our own, which a mistake in the numbers cannot move.
OWN_FIGURES = ("bytes off", "other bits")


def run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)


def copy_tree(source: Path):
    shutil.rmtree(source, ignore_errors=True)
    # Files get the time of their copy: what an earlier run has built of other texts is out of date.
    shutil.copytree(ROOT, source, copy_function=shutil.copy,
                    ignore=shutil.ignore_patterns("build*", "out", ".git", "__pycache__"))


def configure(source: Path, build: Path):
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    done = run("cmake", "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release", *launcher)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


def compile_target(build: Path, target: str):
    done = run("cmake", "--build", build, "--target", target)
    if done.returncode != 0:
        sys.exit(f"does not compile:\n{done.stdout[-3000:]}")


def apply(source: Path, edits):
    """Returns the texts of the files as they were."""
    before = {}
    for file, old, new in edits:
        text = (source / file).read_text()
        before.setdefault(file, text)
        if text.count(old) != 1:
            sys.exit(f"{file}: this must stand there once, but does {text.count(old)} times:\n{old}")
        (source / file).write_text(text.replace(old, new))
    return before


def check_edits():
    """Every edit must find its text in this tree: returns the exit status."""
    missing = [f"{name}: {file} has this {(ROOT / file).read_text().count(old)} times, not once:\n{old}"
               for name, edits in MUTATIONS.items() for file, old, _ in edits
               if (ROOT / file).read_text().count(old) != 1]
    print("\n".join(missing) if missing else f"{len(MUTATIONS)} mutations fit the tree")
    return 1 if missing else 0


def worst_deviation(cases):
    """(times the bar, description) of the figure that is furthest out; None when all hold."""
    found = []
    for case in cases:
        if "error" in case:
            found.append((float("inf"), f"{case['name']}: {case['error']}"))
        for check in case.get("checks", []):
            if any(own in check["what"] for own in OWN_FIGURES):
                continue
            value = float("inf") if check["value"] is None else check["value"]
            if value > check["limit"]:
                times = value / check["limit"] if check["limit"] else float("inf")
                found.append((times, f"{check['what']} {value:.2g} of {check['limit']:.0e}, {case['name']}"))
    return max(found, default=None)


def see(build: Path, name: str, cases: Path):
    """What the checks say about the mutated engine: (seen, description)."""
    compile_target(build, "shardplan_oracle")
    done = run(build / "tests/oracle/shardplan_oracle", "numerics", cases, "--json", "--filter", CASES.get(name, ""))
    if not done.stdout:
        return True, f"exit {done.returncode}: {done.stderr.strip()[:200]}"
    worst = worst_deviation(json.loads(done.stdout)["cases"])
    return (True, f"{worst[0]:.3g} x the bar: {worst[1]}") if worst else (False, "every figure holds")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build/mutations")
    parser.add_argument("--only", default="", help="mutations whose names hold this")
    parser.add_argument("--cases", type=Path, default=ROOT / "tests/oracle/numerics")
    parser.add_argument("--check", action="store_true", help="only look whether the edits still fit")
    options = parser.parse_args()
    if options.check:
        return check_edits()
    source, build = options.build.resolve() / "source", options.build.resolve() / "build"
    copy_tree(source)
    configure(source, build)
    seen, description = see(build, "", options.cases.resolve())
    print(f"{'unchanged':55s} {description}", flush=True)
    if seen:
        return 1

    surprises = []
    for name, edits in MUTATIONS.items():
        if options.only not in name:
            continue
        before = apply(source, edits)
        seen, description = see(build, name, options.cases.resolve())
        for file, text in before.items():
            (source / file).write_text(text)
        print(f"{name:55s} {'seen' if seen else 'NOT SEEN':8s} {description}", flush=True)
        if seen == (name in MUST_BE_INVISIBLE | KNOWN_INVISIBLE):
            surprises.append(name)
    print(f"{len(surprises)} surprises" + "".join(f"\n  {name}" for name in surprises))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
