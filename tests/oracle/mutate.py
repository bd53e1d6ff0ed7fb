#!/usr/bin/env python3
"""Breaks a copy of the engine in known ways and shows which figure of the acceptance cases sees it.

    tests/oracle/mutate.py [--build FOLDER] [--only TEXT] [--cases FOLDER]

Takes about ten minutes, so it is not part of the tests. Exit status 0: every mistake is seen but the
one that is known to be invisible, and the change that must not matter is not seen.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from mutations import CASES, KNOWN_INVISIBLE, MUST_BE_INVISIBLE, MUTATIONS

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from mutation_campaign import ROOT, MutatedTree, check_edits  # noqa: E402

# Figures of our own, which a mistake in the numbers cannot move.
OWN_FIGURES = ("bytes off", "other bits")


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


def see(tree: MutatedTree, name: str, cases: Path):
    """What the checks say about the mutated engine: (seen, description)."""
    tree.compile("shardplan_oracle")
    done = subprocess.run([tree.build / "tests/oracle/shardplan_oracle", "numerics", cases, "--json",
                           "--filter", CASES.get(name, "")],
                          capture_output=True, text=True, check=False)
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
        return check_edits(MUTATIONS)
    tree = MutatedTree(options.build, "-DCMAKE_BUILD_TYPE=Release")
    seen, description = see(tree, "", options.cases.resolve())
    print(f"{'unchanged':55s} {description}", flush=True)
    if seen:
        return 1

    surprises = []
    for name, edits in MUTATIONS.items():
        if options.only not in name:
            continue
        with tree.mistake(edits):
            seen, description = see(tree, name, options.cases.resolve())
        print(f"{name:55s} {'seen' if seen else 'NOT SEEN':8s} {description}", flush=True)
        if seen == (name in MUST_BE_INVISIBLE | KNOWN_INVISIBLE):
            surprises.append(name)
    print(f"{len(surprises)} surprises" + "".join(f"\n  {name}" for name in surprises))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
