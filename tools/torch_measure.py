"""Measures the memory of a PyTorch training loop, for `shardplan check`. In the user's script:

    from torch_measure import Recorder
    recorder = Recorder(model, optimizer, "measured.json")

From then on what the CUDA caching allocator holds at most is read where the model's forward begins
and ends and where the optimizer's step begins and ends. When the process ends, or at
`recorder.write()`, rank 0 writes measured.json, a measurement (shardplan/measurement/1) with
max_memory_allocated and max_memory_reserved of every rank and the peak of every phase;
`snapshot="snapshot.pickle"` also writes rank 0's torch.cuda memory snapshot, for
pytorch.org/memory_viz.

Runs in the user's environment; needs torch 2.1 or later, nothing else. `write()` is a collective of
all ranks where there are several. At the end of a process others may be gone, so that each rank
without a word of its own by then writes measured.rank3.json instead.
"""

import atexit
import json
import os
import time

import torch


class Recorder:
    """Phases as in a prediction: init (up to the first forward), first_step (all of it), and of the
    steps after it forward, accumulate (backward of all micro-steps but the last), backward,
    optimizer. A step is what ends with optimizer.step()."""

    def __init__(self, model, optimizer, path, snapshot=None, cuda=None):
        self.cuda = torch.cuda if cuda is None else cuda
        self.path, self.snapshot = path, snapshot
        self.phases = {}
        self.peak_allocated = self.peak_reserved = 0
        self.phase, self.steps, self.seconds = "init", [], time.perf_counter()
        self.read = []  # phase, peak and end of the micro-step that runs: the last one, or not
        self.written = False
        if snapshot:
            self.cuda.memory._record_memory_history()
        model.register_forward_pre_hook(lambda *_: self._forward_begins())
        model.register_forward_hook(lambda *_: self._enter("backward"))
        optimizer.register_step_pre_hook(lambda *_: self._step_begins())
        optimizer.register_step_post_hook(lambda *_: self._step_ends())
        atexit.register(self._at_exit)

    def _forward_begins(self):
        self._read()
        if self.phase == "backward":  # of a micro-step that was not the last
            self._settle(lambda phase: "accumulate")
        self.phase = "forward"

    def _enter(self, phase):
        self._read()
        self.phase = phase

    def _step_begins(self):
        self._enter("optimizer")
        self._settle(lambda phase: phase)

    def _step_ends(self):
        self.cuda.synchronize()
        self._enter("after")
        self._settle(lambda phase: phase)
        now = time.perf_counter()
        self.steps.append({"step": len(self.steps) + 1, "seconds": now - self.seconds})
        self.seconds = now

    def _read(self):
        """Notes what was held at most since the last reading, and starts anew."""
        peak, end = self.cuda.max_memory_allocated(), self.cuda.memory_allocated()
        self.peak_allocated = max(self.peak_allocated, peak)
        self.peak_reserved = max(self.peak_reserved, self.cuda.max_memory_reserved())
        self.cuda.reset_peak_memory_stats()
        if self.phase == "init":
            self.seconds = time.perf_counter()
            self._book("init", peak, end)
        elif self.phase != "after":
            self.read.append((self.phase, peak, end))

    def _settle(self, name_of):
        """Books what was read since, under the name that its phase turned out to have."""
        for phase, peak, end in self.read:
            self._book(name_of(phase) if self.steps else "first_step", peak, end)
        self.read = []

    def _book(self, phase, peak, end):
        most = max(peak, self.phases.get(phase, {}).get("peak_bytes", 0))
        self.phases[phase] = {"peak_bytes": most, "end_bytes": end}

    def _own(self, rank):
        memory = {
            "peak_allocated_bytes": self.peak_allocated,
            "peak_reserved_bytes": self.peak_reserved,
            "phases": self.phases,
        }
        return {"ranks": str(rank), "memory": memory}

    def write(self):
        """Writes the measurement; all ranks call it."""
        self._read()
        self.written = True
        rank, ranks = 0, [self._own(0)]
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            rank = torch.distributed.get_rank()
            ranks = [None] * torch.distributed.get_world_size()
            torch.distributed.all_gather_object(ranks, self._own(rank))
        if rank == 0:
            self._write(self.path, ranks, len(ranks))

    def _at_exit(self):
        if self.written:
            return
        self._read()
        world = int(os.environ.get("WORLD_SIZE", "1"))
        rank = int(os.environ.get("RANK", "0"))
        stem, ending = os.path.splitext(self.path)
        path = self.path if world == 1 else f"{stem}.rank{rank}{ending}"
        self._write(path, [self._own(rank)], world)

    def _write(self, path, ranks, world):
        if self.snapshot and ranks[0]["ranks"] == "0":
            self.cuda.memory._dump_snapshot(self.snapshot)
        document = {
            "schema": "shardplan/measurement/1",
            "world_size": world,
            "steps": self.steps,
            "ranks": ranks,
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
