#!/usr/bin/env python3
"""tools/torch_measure.py without torch, and its measurement under check: measure.py PROGRAM"""

import importlib
import json
import pathlib
import subprocess
import sys
import types
import unittest

from job_runs import TIMEOUT_S, JobRuns

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
MIB = 1 << 20
JOB = """
model: {preset: llama-tiny}
cluster: {gpu: "H100 SXM 80", gpus_per_node: 1}
training: {micro_batch: 1, sequence_length: 32, gradient_accumulation: {steps: 2}}
"""


class Allocator:
    """What torch.cuda says of its allocator, for blocks that the test names."""

    def __init__(self):
        self.held = self.most = 0

    def holds(self, mib):
        self.held = mib * MIB
        self.most = max(self.most, self.held)

    def memory_allocated(self):
        return self.held

    def max_memory_allocated(self):
        return self.most

    def max_memory_reserved(self):
        return self.most + 2 * MIB

    def reset_peak_memory_stats(self):
        self.most = self.held

    def synchronize(self):
        pass


class Hooked:
    """A module or an optimizer: what is called before and after it runs."""

    def __init__(self):
        self.before = self.after = None

    def take_before(self, hook):
        self.before = hook

    def take_after(self, hook):
        self.after = hook

    register_forward_pre_hook = register_step_pre_hook = take_before
    register_forward_hook = register_step_post_hook = take_after


def recorder_module(distributed):
    """torch_measure with a torch that has nothing but `distributed`."""
    sys.modules["torch"] = types.SimpleNamespace(cuda=None, distributed=distributed)
    sys.path.insert(0, str(TOOLS))
    try:
        return importlib.import_module("torch_measure")
    finally:
        sys.path.remove(str(TOOLS))
        del sys.modules["torch"]


class Measure(JobRuns):
    def train(self, recorder, allocator, model, optimizer):
        """Two steps of two micro-steps; what is held most at each point, in MiB."""
        allocator.holds(100)
        for step in (1, 2):
            for micro, forward, backward in ((1, 200, 300), (2, 400, 500)):
                model.before()
                allocator.holds(step * forward)
                model.after()
                allocator.holds(step * backward)
                allocator.holds(150)
            optimizer.before()
            allocator.holds(step * 220)
            allocator.holds(120)
            optimizer.after()
        recorder.write()

    def test_phases_are_told_apart_and_checked(self):
        alone = types.SimpleNamespace(is_available=lambda: False)
        allocator, model, optimizer = Allocator(), Hooked(), Hooked()
        path = self.folder / "measured.json"
        recorder = recorder_module(alone).Recorder(model, optimizer, str(path), cuda=allocator)
        self.train(recorder, allocator, model, optimizer)
        measured = json.loads(path.read_text())
        memory = measured["ranks"][0]["memory"]
        self.assertEqual(memory["peak_allocated_bytes"], 1000 * MIB)
        self.assertEqual(memory["peak_reserved_bytes"], 1002 * MIB)
        peaks = {name: phase["peak_bytes"] // MIB for name, phase in memory["phases"].items()}
        self.assertEqual(peaks, {"init": 100, "first_step": 500, "forward": 800, "backward": 1000,
                                 "accumulate": 600, "optimizer": 440})
        self.assertEqual(memory["phases"]["optimizer"]["end_bytes"], 120 * MIB)
        self.assertEqual([step["step"] for step in measured["steps"]], [1, 2])
        (self.folder / "gpu.yaml").write_text(JOB)
        check = subprocess.run(
            [self.program, "check", "--plan", "gpu.yaml", "--measured", str(path)],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False,
            timeout=TIMEOUT_S)
        self.assertEqual(check.returncode, 1, check.stderr)  # such a small model takes less
        for phase in peaks.keys() - {"init"}:  # which a prediction for PyTorch leaves open
            self.assertIn(f"phases.{phase}.peak_bytes", check.stdout)


if __name__ == "__main__":
    JobRuns.program = sys.argv.pop(1)
    unittest.main(verbosity=2)
