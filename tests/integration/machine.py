#!/usr/bin/env python3
"""Measuring the machine, and predictions by it: machine.py PROGRAM [unittest arguments]"""

import json
import subprocess
import sys
import unittest

from job_runs import TIMEOUT_S, JobRuns


class Machine(JobRuns):
    def answer(self, *arguments):
        """What a command says, which must have ended well."""
        done = subprocess.run([self.program, *arguments], cwd=self.folder, env=self.environment,
                              capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done.stdout

    def test_predictions_follow_what_was_measured(self):
        self.assertIn("GFLOP/s", self.answer("calibrate", "--ranks", "2", "-o", "machine.yaml"))
        prediction = json.loads(
            self.answer("simulate", "job.yaml", "--cluster", "machine.yaml", "--json"))
        self.assertEqual(prediction["world_size"], 2)
        gpu = prediction["job"]["cluster"]["gpu"]
        self.assertIn(f"matmul_flops_fp32: {gpu['matmul_flops_fp32']:.4g}",
                      (self.folder / "machine.yaml").read_text())


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
