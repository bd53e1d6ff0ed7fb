"""Every header compiles by itself: python3 headers_alone.py COMPILER [COMPILER FLAGS...]"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sources import code

ROOT = Path(__file__).resolve().parents[2]


def proven_by_build(header: Path):
    """A source of the same name that includes it before all else compiles only if it does alone."""
    source = ROOT / header.with_suffix(".cpp")
    if not source.is_file():
        return False
    first = next((line for line in source.read_text().splitlines() if line.startswith("#include")), "")
    return first == f'#include "{header}"'


def compile_alone(header: Path):
    command = sys.argv[1:] + ["-std=c++20", "-fsyntax-only", f"-I{ROOT}", "-x", "c++", "-"]
    if "cuda" in str(header):
        command[1:1] = ["-isystem", f"{ROOT}/tests/fake_cuda/include"]  # CUDA may not be there
    source = f'#include "{header}"\n'
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return header, result.returncode, result.stderr


def main():
    everything = [f for f in code(ROOT) if f.suffix == ".h"]
    headers = [h for h in everything if not proven_by_build(h)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [r for r in pool.map(compile_alone, headers) if r[1] != 0]
    for header, _, errors in failed:
        print(f"{header} does not compile alone:\n{errors[:2000]}")
    print(f"{len(headers) - len(failed)} of {len(headers)} headers compile alone; "
          f"{len(everything) - len(headers)} more are the first of their own source")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
