"""What holds for single files. Every rule is a function (path, text) -> [(line, complaint)]."""

import re
from pathlib import Path

from sources import CODE, FOLDERS, angled_includes, quoted_includes

# Box -> boxes whose headers it may include; a box may always include itself.
ARROWS = {
    "plans": set(),
    "kernels": {"plans"},
    "planner/cost": {"plans"},
    "planner": {"planner/cost", "plans"},
    "simulator": {"planner/cost", "plans"},
    "runtime": {"kernels", "plans"},
    "tools": {"plans", "kernels", "planner", "planner/cost", "simulator", "runtime"},
    "tests": {"plans", "kernels", "planner", "planner/cost", "simulator", "runtime", "tools"},
}
# Kernels know element types and errors, nothing of plans themselves.
KERNELS_MAY_SEE = {"plans/units.h", "plans/error.h"}
MAX_LINES = 600

_STRATEGY_NAMES = re.compile(
    r"full_?shard|shard_?grad_?op|no_?shard|hybrid_?shard|fsdp|(?<![a-z])ddp|deep_?speed"
    r"|zero_?[123]|\bstrategy::|\bengine::|\.strategy\b",
    re.IGNORECASE,
)
_MACHINE = re.compile(r"(?<![\w.])/(?:work|root|home)/")
_REGISTRIES = re.compile(
    r"pypi[.]org|pythonhosted[.]org|(?:deb|snapshot)[.]debian[.]org|archive[.]ubuntu[.]com"
    r"|registry[.]npmjs|proxy[.]golang|conda[.]anaconda"
)


def box_of(path: Path) -> str:
    return "planner/cost" if path.parts[:2] == ("planner", "cost") else path.parts[0]


def arrows(path: Path, text: str):
    """Includes are spelled from the root and follow the arrows between the folders."""
    box = box_of(path)
    complaints = []
    for line, target in quoted_includes(text):
        if target.split("/")[0] not in FOLDERS or "/" not in target:
            complaints.append((line, f'"{target}" is not spelled from the root of the tree'))
            continue
        other = box_of(Path(target))
        if other != box and other not in ARROWS[box]:
            complaints.append((line, f"{box} must not include {other}: {target}"))
        elif box == "kernels" and other == "plans" and target not in KERNELS_MAY_SEE:
            complaints.append((line, f"kernels may include only {sorted(KERNELS_MAY_SEE)}"))
    return complaints


def strategy_blind(path: Path, text: str):
    """The interpreters of a plan know instructions, never strategies or engines."""
    if path.parts[0] not in ("simulator", "runtime"):
        return []
    return [
        (number, f"names a strategy or an engine: {match.group(0)}")
        for number, line in enumerate(text.splitlines(), 1)
        for match in [_STRATEGY_NAMES.search(line)]
        if match
    ]


def length(path: Path, text: str):
    lines = text.count("\n")
    return [(lines, f"has {lines} lines, at most {MAX_LINES}")] if lines > MAX_LINES else []


def own_headers_only(path: Path, text: str, public_headers):
    """What users include drags in the standard library and our public headers, nothing else."""
    if str(path) not in public_headers:
        return []
    complaints = [
        (line, f"a public header includes {target}, which is not installed")
        for line, target in quoted_includes(text)
        if target not in public_headers
    ]
    for line, target in angled_includes(text):
        standard = re.fullmatch(r"[a-z_0-9]+", target)
        graph = str(path) == "plans/model_graph.h" and target.startswith("boost/graph/")
        if not standard and not graph:
            complaints.append((line, f"a public header includes <{target}>"))
    return complaints


def portable(path: Path, text: str):
    """Nothing names one machine's folders or a package registry."""
    return [
        (number, f"names a machine's folder or a registry: {match.group(0)}")
        for number, line in enumerate(text.splitlines(), 1)
        for match in [_MACHINE.search(line) or _REGISTRIES.search(line)]
        if match
    ]


def public_headers(cmake_lists):
    """Headers that the CMakeLists.txt files of {folder: text} install, from the root."""
    headers = set()
    for folder, text in cmake_lists.items():
        for names in re.findall(r"\bHEADERS\s([^)]*?)(?:\b[A-Z]{4,}\b|\))", text):
            headers |= {f"{folder}/{name}" for name in names.split()}
    return headers


def is_code(path: Path) -> bool:
    return path.suffix in CODE and path.parts[0] in FOLDERS
