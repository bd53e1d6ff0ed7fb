#!/usr/bin/env python3
"""Rehearsals and the report of a run: rehearsal.py PROGRAM [unittest arguments]"""

import json
import subprocess
import sys
import unittest

from job_runs import TIMEOUT_S, JobRuns


class Rehearsal(JobRuns):
    def answer(self, *arguments):
        """What another command says in JSON, which must have ended well."""
        done = subprocess.run([self.program, *arguments, "--json"], cwd=self.folder,
                              env=self.environment, capture_output=True, text=True, check=False,
                              timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return json.loads(done.stdout)

    def test_one_rank_of_many_has_the_predicted_memory(self):
        self.run_job("job.yaml", "--rehearse", "5/512")
        measured = json.loads((self.folder / "out/run.json").read_text())
        self.assertEqual(measured["rehearsal"], "5/512")
        self.assertEqual(measured["world_size"], 512)
        self.answer("check", "--plan", "out/plan.json", "--measured", "out/run.json", "--exact")
        self.assertFalse((self.folder / "out/model.safetensors").exists())

    def test_ranks_that_cannot_be_are_refused(self):
        for wrong, why in (("4/4", "ranks are 0 to 3"), ("4", "expected RANK/WORLD"),
                           ("-1/4", "--rehearse")):
            errors = self.run_job("job.yaml", f"--rehearse={wrong}", status=2)
            self.assertIn(why, errors)
        errors = self.run_job("job.yaml", "--rehearse", "0/4", "--processes", status=2)
        self.assertIn("--rehearse goes with none of", errors)

    def test_all_rates_of_a_run_count_micro_steps(self):
        self.run_job("job.yaml", "--set", "training.gradient_accumulation={steps: 2}")
        tokens = 4 * 32 * 2
        for line in (self.folder / "out/metrics.jsonl").read_text().splitlines():
            step = json.loads(line)
            self.assertAlmostEqual(step["tokens_per_s"] * step["seconds"] / tokens, 1, 2)
        measured = json.loads((self.folder / "out/run.json").read_text())
        seconds = [step["seconds"] for step in measured["steps"][1:]]
        self.assertGreaterEqual(tokens / measured["tokens_per_s"], 0.99 * min(seconds))
        self.assertLessEqual(tokens / measured["tokens_per_s"], 1.01 * max(seconds))

    def test_a_report_has_both_sides_of_every_unit(self):
        self.run_job("job.yaml")
        for prediction in ("job.yaml", "out/plan.json", "out/prediction.json"):
            rows = self.answer("report", prediction, "out/run.json")["rows"]
            self.assertEqual({row["phase"] for row in rows}, {"forward", "backward", "optimizer"})
            blocks = [row for row in rows if row["unit"] == "model.layers.1"]
            self.assertEqual(len(blocks), 3)
            for row in blocks[:2]:
                for side in ("compute", "communication"):
                    self.assertGreater(row[side]["predicted_s"], 0)
                    self.assertGreater(row[side]["measured_s"], 0)
        measured = json.loads((self.folder / "out/run.json").read_text())
        seconds = sum(one["seconds"] for one in measured["instructions"])
        self.assertGreater(seconds, measured["steps"][-1]["seconds"] / 10)

    def test_a_report_of_another_plan_is_refused(self):
        self.run_job("job.yaml")
        done = subprocess.run([self.program, "report", "job.yaml", "out/run.json"],
                              cwd=self.folder, env=self.environment, capture_output=True,
                              check=False, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0)
        text = (self.folder / "job.yaml").read_text().replace("micro_batch: 1", "micro_batch: 2")
        (self.folder / "job.yaml").write_text(text)
        done = subprocess.run([self.program, "report", "job.yaml", "out/run.json"],
                              cwd=self.folder, env=self.environment, capture_output=True, text=True,
                              check=False, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 2)
        self.assertIn("measured plan", done.stderr)


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
