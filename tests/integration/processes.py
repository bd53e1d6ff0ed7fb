#!/usr/bin/env python3
"""Ranks as processes: processes.py PROGRAM [unittest arguments]"""

import os
import shutil
import signal
import sys
import unittest

from job_runs import JobRuns, is_there

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

    def mpirun(self, ranks, *arguments, **variables):
        """A run whose ranks are connected by MPI, not waited for."""
        if not self.has_mpi():
            self.skipTest("no mpirun here, or a build without MPI")
        return self.start("job.yaml", "--ranks", str(ranks), *arguments,
                          launcher=(*MPIRUN, str(ranks)), **variables)

    def test_ranks_over_mpi_get_the_bits_of_threads(self):
        for ranks, strategy in ((2, "DDP"), (3, "FULL_SHARD"), (4, "HYBRID_SHARD")):
            job = ("--sharding", strategy, "--output")
            if strategy == "HYBRID_SHARD":
                job = ("--set", "strategy.shard_group=2", *job)
            self.run_job("job.yaml", "--ranks", str(ranks), *job, "threads")
            status, out, errors = self.end(self.mpirun(ranks, *job, "mpi"))
            self.assertEqual((status, errors), (0, ""))
            self.assertIn(f"{ranks} CPU ranks, which are processes over MPI", out)
            self.assertEqual(self.weights("threads"), self.weights("mpi"), strategy)

    def test_torchruns_variables_keep_tcp_under_mpirun(self):
        variables = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost",
                     "MASTER_PORT": "29500"}
        status, out, errors = self.end(self.mpirun(1, **variables))
        self.assertEqual((status, errors), (0, ""))
        self.assertIn("1 CPU ranks, which are processes.", out)

    def failure_over_mpi(self, fault):
        """Everybody's errors, and those of ranks, of a job of three ranks, of which the second gets
        that signal as it trains."""
        launcher = self.mpirun(3, "--steps", "100000", "--timeout", "3")
        ranks = self.wait_for_ranks(launcher, 3)
        os.kill(ranks[1], fault)
        _, _, errors = self.end(launcher, timeout_s=60)
        self.assertEqual([pid for pid in ranks if is_there(pid)], [])
        said = [line for line in errors.splitlines() if line.startswith("rank ")]
        self.assertLessEqual(len(said), 1, errors)
        return errors, said

    def test_a_rank_that_dies_is_named_over_mpi(self):
        errors, said = self.failure_over_mpi(signal.SIGKILL)
        self.assertRegex(errors, "process rank 1 .* exited on signal 9")
        for line in said:  # unless mpirun has ended the ranks before one could tell
            self.assertIn("rank 1 is gone: its process ended", line)

    def test_a_rank_that_hangs_is_named_over_mpi(self):
        _, said = self.failure_over_mpi(signal.SIGSTOP)
        self.assertRegex("".join(said), r"^rank \d, instruction '.*', unit '.*': .* waited 3 s in "
                                        r"\w+ for rank 1$")

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
