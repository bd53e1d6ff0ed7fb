"""Reads every source file and fails on the first rules broken: python3 tests/lint/lint.py [ROOT]"""

import sys
from pathlib import Path

import rules
from sources import files


def complaints(root: Path):
    texts = {}
    for path in files(root):
        try:
            texts[path] = (root / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            pass  # binary test data
    lists = {str(p.parent): t for p, t in texts.items() if p.name == "CMakeLists.txt"}
    public = rules.public_headers(lists)
    for path, text in texts.items():
        found = rules.portable(path, text)
        if rules.is_code(path):
            found += rules.arrows(path, text) + rules.strategy_blind(path, text)
            found += rules.length(path, text) + rules.own_headers_only(path, text, public)
        for line, complaint in found:
            yield f"{path}:{line}: {complaint}"


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    found = list(complaints(root))
    print("\n".join(found) if found else "no rule is broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
