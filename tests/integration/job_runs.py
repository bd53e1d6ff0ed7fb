"""Runs of the program on a tiny job, for the tests beside this file."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

JOB = """
model: {preset: llama-tiny}
cluster: {gpu: cpu, gpus_per_node: 4}
training:
  micro_batch: 1
  sequence_length: 32
  clip_grad_norm: 1.0
  schedule: {name: cosine, warmup_steps: 2}
run: {tokens: tokens.bin, steps: 3, output: out}
"""
TIMEOUT_S = 120


def children_of(pid):
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except FileNotFoundError:
        return []
    return [int(child) for child in text.split()]


def is_there(pid):
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


class JobRuns(unittest.TestCase):
    """Each test has a folder of its own with a job and tokens."""

    program = None  # set by main() of the tests

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="shardplan.")
        self.addCleanup(self.scratch.cleanup)
        self.folder = Path(self.scratch.name)
        (self.folder / "job.yaml").write_text(JOB)
        tokens = bytes(b for i in range(4000) for b in (i * i % 251, 0))
        (self.folder / "tokens.bin").write_bytes(tokens)
        # Ranks outnumber the cores, and idle OpenMP threads must not spin.
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "LC_ALL": "C",
                            "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        if "SHARDPLAN_DATA" in os.environ:
            self.environment["SHARDPLAN_DATA"] = os.environ["SHARDPLAN_DATA"]

    def start(self, *arguments, launcher=(), **variables):
        """`shardplan run ARGUMENTS`, not waited for."""
        return subprocess.Popen(
            [*launcher, self.program, "run", *arguments], cwd=self.folder,
            env=self.environment | variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self, process, timeout_s=TIMEOUT_S):
        """(status, standard output, standard error) of a process that must end by itself."""
        try:
            out, errors = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(f"still running after {timeout_s} s")
        return process.returncode, out, errors

    def wait_for_ranks(self, launcher, ranks):
        """Processes of the ranks, once they train."""
        partial = self.folder / "out/metrics.jsonl.partial"
        while launcher.poll() is None and not (partial.exists() and partial.read_text()):
            time.sleep(0.01)
        children = children_of(launcher.pid)
        self.assertEqual(len(children), ranks)
        return children

    def run_job(self, *arguments, status=0, **options):
        """What a run said on standard error, which must have ended with `status`."""
        got, _, errors = self.end(self.start(*arguments, **options))
        self.assertEqual(got, status, errors)
        return errors

    def torchrun(self, *of_ranks):
        """(status, standard error) of every rank, started with torchrun's variables; each has
        arguments of its own."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = str(probe.getsockname()[1])
        started = [self.start(*arguments, RANK=str(rank), WORLD_SIZE=str(len(of_ranks)),
                              MASTER_ADDR="localhost", MASTER_PORT=port)
                   for rank, arguments in enumerate(of_ranks)]
        return [(status, errors) for status, _, errors in map(self.end, started)]

    def has_mpi(self):
        """Whether ranks that mpirun starts are connected by MPI."""
        plugin = Path(self.program).resolve().parent.parent / "runtime/mpi/libshardplan_mpi.so"
        return shutil.which("mpirun") is not None and plugin.exists()

    def weights(self, output):
        return (self.folder / output / "model.safetensors").read_bytes()
