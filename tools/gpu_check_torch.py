#!/usr/bin/env python3
"""PyTorch's side of tools/gpu_check. Prints one JSON object.

    gpu_check_torch.py train CONFIG.json eager|compiled --seq T --steps N
    gpu_check_torch.py allocator CASES.json

`train` takes steps of a Llama of that config on one GPU as `shardplan run` does beside it: micro-batch
1, float32 weights, bfloat16 in forward and backward (autocast), scaled_dot_product_attention, fused
AdamW. `allocator` asks the real caching allocator what the cases say of it; exit status 1 when it
says something else. Needs PyTorch 2.5 or newer.
"""
import argparse
import json
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F


# ---- training ----

def rotate(x, cos, sin):
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Norm(nn.Module):
    """RMSNorm as the models of Hugging Face compute it."""

    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * scaled.to(x.dtype)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, heads = config["hidden_size"], config["num_attention_heads"]
        self.head_dim = config.get("head_dim") or width // heads
        kv_width = config["num_key_value_heads"] * self.head_dim
        hidden = config["intermediate_size"]
        eps = config["rms_norm_eps"]
        self.input_norm = Norm(width, eps)
        self.q = nn.Linear(width, heads * self.head_dim, bias=False)
        self.k = nn.Linear(width, kv_width, bias=False)
        self.v = nn.Linear(width, kv_width, bias=False)
        self.o = nn.Linear(heads * self.head_dim, width, bias=False)
        self.mlp_norm = Norm(width, eps)
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def heads(self, x):
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def forward(self, x, cos, sin):
        y = self.input_norm(x)
        q, k = (rotate(self.heads(part), cos, sin) for part in (self.q(y), self.k(y)))
        mixed = F.scaled_dot_product_attention(q, k, self.heads(self.v(y)), is_causal=True,
                                               enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, config, sequence):
        super().__init__()
        width, vocabulary = config["hidden_size"], config["vocab_size"]
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = Norm(width, config["rms_norm_eps"])
        self.head = nn.Linear(width, vocabulary, bias=False)
        dim = self.blocks[0].head_dim
        rate = config["rope_theta"] ** (-torch.arange(0, dim, 2) / dim)
        angles = torch.outer(torch.arange(sequence), rate).repeat(1, 2)
        self.register_buffer("cos", angles.cos().bfloat16())
        self.register_buffer("sin", angles.sin().bfloat16())

    def forward(self, tokens, targets):
        x = self.embedding(tokens).bfloat16()
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def train(arguments):
    config = json.loads(arguments.config.read_text())
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = Llama(config, arguments.seq)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95),
                                  weight_decay=0.1, fused=True)
    loss_of = torch.compile(model) if arguments.mode == "compiled" else model
    seconds, losses = [], []
    for _ in range(arguments.steps):
        tokens = torch.randint(min(config["vocab_size"], 1 << 16), (1, arguments.seq + 1),
                               device="cuda")
        torch.cuda.synchronize()
        began = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
        losses.append(loss.item())
    print(json.dumps({"seconds": seconds, "loss": losses,
                      "peak_bytes": torch.cuda.max_memory_allocated()}))
    return 0


# ---- the caching allocator ----

STATISTICS = {"requested": "requested_bytes.all.current", "allocated": "allocated_bytes.all.current",
              "reserved": "reserved_bytes.all.current", "segments": "segment.all.current",
              "inactive_split": "inactive_split_bytes.all.current",
              "peak_reserved": "reserved_bytes.all.peak"}
NO_OPTIONS = {"expandable_segments": False, "roundup_power2_divisions": 0}
BUSY_CYCLES = 1 << 31  # about a second


def use_options(options):
    """Settings by their names in PYTORCH_CUDA_ALLOC_CONF, on an allocator that holds nothing."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    named = {("expandable_segments" if key == "expandable" else key): value
             for key, value in options.items()}
    torch.cuda.memory._set_allocator_settings(  # pylint: disable=protected-access
        ",".join(f"{key}:{value}" for key, value in (NO_OPTIONS | named).items()))


def options_named(name):
    divisions = "roundup_power2_divisions_"
    if name == "default":
        return {}
    if name.startswith(divisions):
        return {"roundup_power2_divisions": int(name[len(divisions):])}
    return {name: True}


def bytes_on(stream, count):
    with torch.cuda.stream(stream):
        return torch.empty(count, dtype=torch.uint8, device="cuda")


def placement(tensor):
    """(begin of the segment, offset in it, bytes of the block)."""
    at = tensor.data_ptr()
    for segment in torch.cuda.memory_snapshot():
        if segment["address"] <= at < segment["address"] + segment["total_size"]:
            block = next(one for one in segment["blocks"] if one["address"] == at)
            return segment["address"], at - segment["address"], block["size"]
    raise RuntimeError("a tensor lies in no segment")


class Comparison:
    """What differs from the figures that a case names."""

    def __init__(self, name):
        self.name = name
        self.figures = 0
        self.deviations = []

    def equal(self, where, expected, key, got):
        if key not in expected:
            return
        self.figures += 1
        if got != expected[key]:
            self.deviations.append(f"{self.name}, {where}, {key}: {got} instead of {expected[key]}")

    def statistics(self, where, expected):
        known = torch.cuda.memory_stats()
        for key, name in STATISTICS.items():
            self.equal(where, expected, key, known.get(name, 0))


def single_request(case):
    comparison = Comparison(f"case {case['id']}")
    for name, expected in case.items():
        if not isinstance(expected, dict):
            continue
        use_options(options_named(name))
        tensor = bytes_on(torch.cuda.current_stream(), case["request"])
        comparison.equal(name, expected, "block", placement(tensor)[2])
        comparison.statistics(name, {"reserved": expected["reserved"]})
        del tensor
    return comparison


def sequence(case):
    comparison = Comparison(f"case {case['id']} ({case['name']})")
    use_options(case["options"])
    streams = {0: torch.cuda.current_stream()}
    busy = torch.cuda.Stream()
    tensors, segments = {}, []
    for number, step in enumerate(case["steps"]):
        where = f"step {number} ({step['op']})"
        if step["op"] == "malloc":
            if step["stream"] not in streams:
                streams[step["stream"]] = torch.cuda.Stream()
            tensors[step["name"]] = bytes_on(streams[step["stream"]], step["bytes"])
            segment, offset, block = placement(tensors[step["name"]])
            if segment not in segments:
                segments.append(segment)
            comparison.equal(where, step, "segment", segments.index(segment))
            comparison.equal(where, step, "offset", offset)
            comparison.equal(where, step, "block", block)
        elif step["op"] == "free":
            if step.get("other_stream_busy"):
                with torch.cuda.stream(busy):
                    torch.cuda._sleep(BUSY_CYCLES)  # pylint: disable=protected-access
                tensors[step["name"]].record_stream(busy)
            del tensors[step["name"]]
        elif step["op"] == "events_done":
            busy.synchronize()
        elif step["op"] == "empty_cache":
            torch.cuda.empty_cache()
            live = {segment["address"] for segment in torch.cuda.memory_snapshot()}
            segments = [at if at in live else None for at in segments]
        else:
            raise ValueError(f"{where} is not known")
        comparison.statistics(where, step)
    return comparison


def allocator(arguments):
    cases = json.loads(arguments.cases.read_text())["cases"]
    done = [sequence(case) if case["type"] == "sequence" else single_request(case)
            for case in cases]
    deviations = [text for one in done for text in one.deviations]
    print(json.dumps({"torch": torch.__version__, "cases": len(done),
                      "figures": sum(one.figures for one in done), "deviations": deviations}))
    return 1 if deviations else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train")
    training.add_argument("config", type=Path)
    training.add_argument("mode", choices=("eager", "compiled"))
    training.add_argument("--seq", type=int, required=True)
    training.add_argument("--steps", type=int, required=True)
    training.set_defaults(run=train)
    cases = commands.add_parser("allocator")
    cases.add_argument("cases", type=Path)
    cases.set_defaults(run=allocator)
    arguments = parser.parse_args()
    return arguments.run(arguments)


if __name__ == "__main__":
    sys.exit(main())
