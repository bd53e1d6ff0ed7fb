#!/usr/bin/env python3
"""A build for GPUs on a machine that has none: without_a_driver.py SHARDPLAN"""

import shutil
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@unittest.skipIf(shutil.which("nvidia-smi"), "this machine has a driver")
class WithoutADriver(unittest.TestCase):
    program = ""

    def run_on(self, device):
        return subprocess.run([self.program, "run", "plans/jobs/quickstart.yaml", "--dry-run",
                               "--device", device],
                              cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    def test_asking_for_a_gpu_says_what_lacks(self):
        done = self.run_on("cuda")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "run: --device cuda: CUDA cannot find a device: .*; expected cpu")

    def test_auto_says_so_and_takes_cpus(self):
        done = self.run_on("auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Runs on CPU ranks, because CUDA cannot find a device", done.stdout)


if __name__ == "__main__":
    WithoutADriver.program = sys.argv[1]
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
