#!/usr/bin/env python3
"""Checkpoints and --resume: checkpoints.py PROGRAM [unittest arguments]"""

import json
import re
import shutil
import signal
import sys
import time
import unittest

from job_runs import JobRuns

STEPS = ("--steps", "6", "--set", "run.checkpoint_every=2")
# The same sequences in every step, whatever the number of ranks.
TWELVE_SEQUENCES = {1: "12", 3: "4", 4: "3"}


def job(output, sharding="FULL_SHARD", ranks=4):
    return ("job.yaml", *STEPS, "--output", output, "--sharding", sharding, "--ranks", str(ranks),
            "--micro-batch", TWELVE_SEQUENCES[ranks])


class Checkpoints(JobRuns):
    def metrics(self, output):
        lines = (self.folder / output / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def checkpoints(self, output):
        return sorted(path.name for path in (self.folder / output / "checkpoints").iterdir())

    def go_back_to(self, step, output):
        """Leaves of a finished job what it had after that step."""
        for path in (self.folder / output / "checkpoints").iterdir():
            if path.name > f"step-{step:08}":
                shutil.rmtree(path)
        (self.folder / output / "model.safetensors").unlink()

    def test_the_same_world_goes_on_bit_for_bit(self):
        for sharding in ("DDP", "SHARD_GRAD_OP", "FULL_SHARD"):
            for how in ((), ("--processes",)):
                output = f"{sharding}{len(how)}"
                self.run_job(*job(output, sharding), *how)
                self.assertEqual(self.checkpoints(output), ["step-00000004", "step-00000006"])
                weights, curve = self.weights(output), self.metrics(output)
                self.go_back_to(4, output)
                self.run_job(*job(output, sharding), *how, "--resume", "auto")
                self.assertEqual(self.weights(output), weights, output)
                self.assertEqual([line["loss"] for line in self.metrics(output)],
                                 [line["loss"] for line in curve])

    def test_a_checkpoint_of_a_later_step_is_refused(self):
        self.run_job(*job("out"))
        errors = self.run_job(*job("other"), "--set", "run.steps=3", "--resume",
                              "out/checkpoints/step-00000004", status=2)
        self.assertIn("is of step 4, and run.steps is 3", errors)

    def test_one_run_at_a_time_writes_to_a_folder(self):
        first = self.start(*job("out"), "--set", "run.steps=100000")
        while not (self.folder / "out/metrics.jsonl.partial").exists():
            self.assertIsNone(first.poll())
            time.sleep(0.01)
        self.assertIn("another run writes to this folder", self.run_job(*job("out"), status=2))
        first.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(first)[0], 0)
        (self.folder / "file").write_text("")
        self.assertIn("is a file", self.run_job(*job("file"), status=2))

    def test_any_world_and_strategy_go_on_with_the_same_curve(self):
        self.run_job(*job("four"))
        curve = self.metrics("four")[4:]
        for sharding, ranks in (("DDP", 3), ("FULL_SHARD", 3), ("DDP", 1)):
            output = f"{sharding}{ranks}"
            self.run_job(*job(output, sharding, ranks), "--resume", "four/checkpoints/step-00000004")
            for line, expected in zip(self.metrics(output), curve, strict=True):
                self.assertEqual(line["step"], expected["step"])
                # Sums in another order; tests/oracle/numerics allows 1e-6 for losses.
                self.assertAlmostEqual(line["loss"] / expected["loss"], 1, delta=1e-6)

    def test_a_damaged_checkpoint_is_passed_over(self):
        self.run_job(*job("out"))
        weights = self.weights("out")
        newest = self.folder / "out/checkpoints/step-00000006/rank-00002.safetensors"
        content = bytearray(newest.read_bytes())
        content[-1] ^= 1
        newest.write_bytes(content)
        errors = self.run_job(*job("out"), "--resume", "auto")
        self.assertIn("passed over a damaged checkpoint", errors)
        self.assertIn("step-00000006/rank-00002.safetensors: its content is not what was written",
                      errors)
        self.assertEqual(self.weights("out"), weights)
        newest.write_bytes(content[:-5])
        errors = self.run_job(*job("out"), "--resume", str(newest.parent), status=2)
        self.assertIn("bytes, its checkpoint was written with", errors)

    def test_of_another_model_it_is_refused(self):
        self.run_job(*job("out"))
        errors = self.run_job(*job("other"), "--resume", "out/checkpoints/step-00000004",
                              "--set", "training.optimizer.name=sgd",
                              "--set", "training.optimizer.momentum=0.9", status=2)
        self.assertIn(".momentum_buffer' are missing; it is of another model or optimizer", errors)

    def test_without_a_checkpoint_auto_begins_anew(self):
        self.run_job(*job("plain"))
        self.run_job(*job("auto"), "--resume", "auto")
        self.assertEqual(self.weights("plain"), self.weights("auto"))

    def test_sigterm_ends_after_the_step_with_a_checkpoint(self):
        for how in ((), ("--processes",)):
            output = f"out{len(how)}"
            arguments = ("job.yaml", "--steps", "100000", "--output", output, *how)
            process = self.start(*arguments)
            partial = self.folder / output / "metrics.jsonl.partial"
            while process.poll() is None and not (partial.exists() and partial.read_text()):
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            status, out, errors = self.end(process)
            self.assertEqual((status, errors), (0, ""))
            step = int(re.search(r"Stopped as asked, after step (\d+) of 100000", out)[1])
            self.assertEqual(self.checkpoints(output), [f"step-{step:08}"])
            self.assertEqual(len(self.metrics(output)), step)
            self.assertFalse((self.folder / output / "model.safetensors").exists())


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
