#!/usr/bin/env python3
"""tools/gpu_check where the GPUs are the fake's: gpu_check_test.py SHARDPLAN ORACLE KERNELS PLUGIN"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMERICS = ROOT / "tests/oracle/numerics"
CASE = "llama-nano_single_w1_fp32_sgd"
TIMEOUT_S = 300


class GpuCheck(unittest.TestCase):
    programs = ()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        shardplan, oracle, kernels, plugin = self.programs
        for program, place in ((shardplan, "tools/shardplan"),
                               (oracle, "tests/oracle/shardplan_oracle"),
                               (kernels, "tests/gpu/gpu_kernels")):
            path = self.folder / "build" / place
            path.parent.mkdir(parents=True)
            shutil.copy(program, path)
        (self.folder / "build/runtime/cuda").mkdir(parents=True)
        shutil.copy(plugin, self.folder / "build/runtime/cuda/libshardplan_cuda.so")
        for name in ("models", "data", "tolerances.json"):
            (self.folder / "numerics").mkdir(exist_ok=True)
            (self.folder / "numerics" / name).symlink_to(NUMERICS / name)
        (self.folder / "numerics/cases").mkdir()
        (self.folder / "numerics/cases" / CASE).symlink_to(NUMERICS / "cases" / CASE)

    def check(self, *arguments, status):
        """{stage: result} of a run."""
        done = subprocess.run(
            [sys.executable, "-B", ROOT / "tools/gpu_check", "--build", self.folder / "build",
             "--output", self.folder / "out", "--numerics", self.folder / "numerics",
             "--model", NUMERICS / "models/llama-nano", "--seq", "16", "--gpu", "h100-sxm-80",
             "--metrics", "peak_allocated_bytes", *arguments],
            env=os.environ | {"GTEST_FILTER": "*OfRope/0", "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        answer = json.loads((self.folder / "out/gpu_check.json").read_text())
        self.assertEqual(answer["schema"], "shardplan/gpu_check/1")
        self.text = done.stdout
        return {one["stage"]: one for one in answer["stages"]}

    def test_every_stage_that_needs_no_real_gpu(self):
        stages = self.check("--gpus", "2", "--skip", "machine,beside PyTorch,allocator,sanitizer",
                            status=0)
        self.assertIsNone(stages.pop("build")["passed"])
        for stage in stages.values():
            self.assertIs(stage["passed"], True, stage)
        self.assertEqual(stages["numerics"]["figures"], {"passed": 1, "failed": 0, "skipped": 0})
        for name in ("DDP", "SHARD_GRAD_OP", "FULL_SHARD"):
            figures = stages[f"rehearsal {name}"]["figures"]
            memory = [figures["memory"][side] for side in ("predicted", "measured")]
            self.assertEqual(memory[0]["peak_allocated_bytes"], memory[1]["peak_allocated_bytes"])
            self.assertGreater(memory[1]["peak_device_bytes"], memory[1]["peak_allocated_bytes"])
            self.assertEqual(figures["layers"], 2)
            self.assertGreater(figures["share_of_peak"], 0)
        self.assertEqual({one["kind"] for one in stages["several GPUs"]["figures"]["collectives"]},
                         {"all_gather", "reduce_scatter", "all_reduce"})
        self.assertIn("One rank of 8: predicted / measured", self.text)

    def test_what_fails_does_not_end_the_rest(self):
        shutil.copy("/bin/false", self.folder / "build/tests/oracle/shardplan_oracle")
        stages = self.check("--only", "kernels,numerics,rehearsal DDP", status=1)
        self.assertEqual([stages[name]["passed"] for name in ("kernels", "numerics", "rehearsal DDP")],
                         [True, False, True])
        self.assertIn("shardplan_oracle gave no JSON", stages["numerics"]["why"])
        self.assertRegex(self.text, "numerics +FAILED")

    def test_a_stage_that_is_not_there_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "there is no stage 'kernel'; expected one of"):
            self.check("--only", "kernel", status=0)


if __name__ == "__main__":
    GpuCheck.programs = sys.argv[1:5]
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]])
