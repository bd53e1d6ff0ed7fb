"""Every source is formatted as .clang-format says: python3 format.py CLANG_FORMAT"""

import subprocess
import sys
from pathlib import Path

from sources import code

ROOT = Path(__file__).resolve().parents[2]


def main():
    sources = [str(f) for f in code(ROOT)]
    command = [sys.argv[1], "--dry-run", "-Werror", *sources]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
