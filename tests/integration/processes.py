#!/usr/bin/env python3
"""Ranks as processes: processes.py PROGRAM [unittest arguments]"""

import shutil
import sys
import unittest

from job_runs import JobRuns

STRATEGIES = ("DDP", "SHARD_GRAD_OP", "FULL_SHARD")
MPIRUN = ("mpirun", "--allow-run-as-root", "--oversubscribe", "-np")


class Processes(JobRuns):
    def test_processes_get_the_bits_of_threads(self):
        for strategy in STRATEGIES:
            job = ("job.yaml", "--sharding", strategy, "--output")
            self.run_job(*job, "threads")
            self.run_job(*job, "processes", "--processes")
            self.assertEqual(self.weights("threads"), self.weights("processes"), strategy)

    def test_torchruns_variables_place_a_process(self):
        self.run_job("job.yaml", "--output", "threads", "--ranks", "3")
        ends = self.torchrun(*[("job.yaml", "--output", "variables", "--ranks", "3")] * 3)
        self.assertEqual(ends, [(0, "")] * 3)
        self.assertEqual(self.weights("threads"), self.weights("variables"))

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun here")
    def test_mpirun_places_a_process(self):
        self.run_job("job.yaml", "--output", "threads")
        self.run_job("job.yaml", "--output", "mpirun", launcher=(*MPIRUN, "4"))
        self.assertEqual(self.weights("threads"), self.weights("mpirun"))
        errors = self.run_job("job.yaml", launcher=(*MPIRUN, "3"), status=2)
        said = [line for line in errors.splitlines() if "ranks" in line]
        self.assertEqual(said, ["mpirun has started 3 processes, but the plan has 4 ranks; start "
                                "as many, or give --ranks 3"])

    def test_the_launchers_size_must_be_the_plans_world(self):
        ends = self.torchrun(("job.yaml",), ("job.yaml",))
        self.assertEqual([status for status, _ in ends], [2, 2])
        said = [errors for _, errors in ends if errors]
        self.assertEqual(len(said), 1, ends)
        self.assertIn("torchrun has started 2 processes, but the plan has 4 ranks", said[0])

    def test_more_processes_than_cores_do_not_deadlock(self):
        self.run_job("job.yaml", "--ranks", "8", "--processes")

    def test_a_dry_run_trains_nothing(self):
        status, out, _ = self.end(self.start("job.yaml", "--dry-run", "--processes"))
        self.assertEqual(status, 0)
        self.assertIn("all_gather", out)
        self.assertFalse((self.folder / "out").exists())

    def test_bad_input_is_said_once(self):
        (self.folder / "tokens.bin").unlink()
        errors = self.run_job("job.yaml", "--processes", status=2)
        self.assertEqual(errors, "tokens.bin: cannot read the tokens file: No such file or "
                                 "directory\n")


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
