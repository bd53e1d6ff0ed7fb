#!/usr/bin/env python3
"""Writes the graph YAML (docs/graph.md) of a torch.nn.Module.

    python tools/torch_export.py my_package.my_model:build -o graph.yaml

`build` is a function without arguments (or a class) that returns a module whose forward takes token
numbers [batch, time] and returns logits [batch, time, vocabulary]. The module is made on the meta
device, so that no weights are allocated, and traced with torch.export. What the trace contains and
the operator catalogue does not is refused by name, with the module that runs it.

Runs in the user's environment; needs torch 2.6 or later, nothing else.
"""

import argparse
import importlib
import math
import sys

import torch

BATCH, TIME = 2, 16  # sizes of the trace; only shapes that do not depend on them are written

# What moves no data between channels of a token, or none that counts: the same value goes on.
TRANSPARENT = {
    "view", "_unsafe_view", "reshape", "transpose", "permute", "contiguous", "clone", "dropout",
    "expand", "alias", "detach", "unsqueeze", "squeeze", "flatten", "unflatten", "_to_copy", "to",
    "native_dropout", "_assert_tensor_metadata", "lift_fresh_copy",
}
ACTIVATIONS = {"relu": "relu", "silu": "silu", "tanh": "tanh", "sigmoid": "sigmoid", "gelu": "gelu"}


class Refusal(Exception):
    """What the trace holds and a graph cannot say."""


class Exporter:
    def __init__(self, module):
        self.module = module
        self.names = {id(p): n for n, p in module.named_parameters()}
        self.lines = []
        self.value = {}  # our operator of a traced node
        self.parameter = {}  # name of a parameter of a traced node
        self.positions = set()  # traced nodes that hold 0, 1, 2, ...
        self.count = 0

    def place(self, node):
        """Path of the module that runs the node."""
        stack = node.meta.get("nn_module_stack") or {}
        return list(stack.values())[-1][0].removeprefix("L['self'].") if stack else ""

    def refuse(self, node, why=""):
        raise Refusal(f"{node.target} in module '{self.place(node)}' has no operator{why}")

    def add(self, node, kind, inputs, parameters=(), **attributes):
        self.count += 1
        name = f"{kind}_{self.count}"
        fields = [f"kind: {kind}", f'module: "{self.place(node)}"',
                  f"inputs: [{', '.join(inputs)}]"]
        if parameters:
            fields.append(f"parameters: [{', '.join(parameters)}]")
        fields += [f"{key}: {number}" for key, number in attributes.items()]
        self.lines.append(f"  - {name}: {{{', '.join(fields)}}}")
        self.value[node] = name

    def source(self, node, of):
        if of not in self.value:
            self.refuse(node, f": its input {of} is no value of a token")
        return self.value[of]

    def width(self, node):
        """Numbers per token: what is left of the shape without batch and time."""
        elements = math.prod(int(size) for size in node.meta["val"].shape)
        if elements % (BATCH * TIME):
            self.refuse(node, f": its shape {list(node.meta['val'].shape)} is not one row a token")
        return elements // (BATCH * TIME)

    def weights(self, node, *operands):
        names = []
        for operand in operands:
            if operand is None:
                continue
            if operand not in self.parameter:
                self.refuse(node, f": {operand} is not a parameter")
            names.append(self.parameter[operand])
        return names

    # One method per traced operator; the name is aten's.

    def linear(self, node, x, weight, bias=None):
        out, features = weight.meta["val"].shape
        self.add(node, "linear", [self.source(node, x)], self.weights(node, weight, bias),
                 in_features=features, out_features=out)

    def embedding(self, node, weight, indices, *_):
        rows, channels = weight.meta["val"].shape
        if indices in self.positions:
            self.parameter[node] = self.parameter[weight]
            return
        self.add(node, "embedding", [self.source(node, indices)], self.weights(node, weight),
                 in_features=rows, out_features=channels)

    def layer_norm(self, node, x, shape, weight=None, bias=None, eps=1e-5, *_):
        names = self.weights(node, weight, bias)
        more = {} if len(names) == 2 else {"norm_parameters": len(names)}
        self.add(node, "layer_norm", [self.source(node, x)], names, out_features=shape[-1],
                 groups_per_row=self.width(node) // shape[-1], epsilon=eps, **more)

    def rms_norm(self, node, x, shape, weight=None, eps=None):
        names = self.weights(node, weight)
        more = {} if names else {"norm_parameters": 0}
        self.add(node, "rms_norm", [self.source(node, x)], names, out_features=shape[-1],
                 groups_per_row=self.width(node) // shape[-1],
                 epsilon=torch.finfo(torch.float32).eps if eps is None else eps, **more)

    def activation(self, node, kind, x, approximate="none"):
        more = {"tanh_approximation": int(approximate == "tanh")} if kind == "gelu" else {}
        self.add(node, kind, [self.source(node, x)], out_features=self.width(node), **more)

    def addition(self, node, a, b, *_):
        if b in self.parameter or a in self.parameter:
            table, x = (b, a) if b in self.parameter else (a, b)
            name = self.parameter[table]
            rows = self.module.get_parameter(name).shape[-2]
            self.add(node, "position_embedding", [self.source(node, x)], [name], in_features=rows,
                     out_features=self.width(node))
            return
        self.add(node, "add", [self.source(node, a), self.source(node, b)],
                 out_features=self.width(node))

    def multiplication(self, node, a, b):
        if isinstance(b, (int, float)):
            self.add(node, "scale", [self.source(node, a)], out_features=self.width(node), factor=b)
            return
        for gate, up in ((a, b), (b, a)):
            name = getattr(gate.target, "_overloadpacket", gate.target)
            if str(name) in ("aten.silu", "aten.gelu") and gate in self.value:
                kind = "swiglu" if str(name) == "aten.silu" else "geglu"
                tanh = gate.kwargs.get("approximate", "none") == "tanh"
                more = {"tanh_approximation": int(tanh)} if kind == "geglu" else {}
                # The activation becomes a part of the gate.
                self.lines = [l for l in self.lines if f"- {self.value[gate]}:" not in l]
                self.add(node, kind, [self.source(node, gate.args[0]), self.source(node, up)],
                         out_features=self.width(node), **more)
                return
        if self.width(b) == 1 or self.width(a) == 1:
            x, gate = (a, b) if self.width(b) == 1 else (b, a)
            self.add(node, "gate_rows", [self.source(node, x), self.source(node, gate)],
                     out_features=self.width(node))
            return
        self.refuse(node, " unless one factor is SiLU or GELU, a constant, or one gate a token")

    def scaled_dot_product_attention(self, node, q, k, v, mask=None, _=0.0, causal=False, **more):
        if mask is not None:
            self.refuse(node, " with a mask of its own: use is_causal")
        heads, head_dim = q.meta["val"].shape[1], q.meta["val"].shape[3]
        kv_heads, value_dim = k.meta["val"].shape[1], v.meta["val"].shape[3]
        attributes = dict(heads=heads, kv_heads=kv_heads, head_dim=head_dim,
                          scale=more.get("scale") or head_dim**-0.5)
        if value_dim != head_dim:
            attributes["value_head_dim"] = value_dim
        if not causal:
            attributes["bidirectional"] = 1
        self.add(node, "attention", [self.source(node, x) for x in (q, k, v)], **attributes)

    def split(self, node, x, sizes, dim=-1):
        self.parts = {}
        self.value[node] = self.source(node, x)
        width = self.width(x)
        count = len(node.meta["val"])
        sizes = sizes if isinstance(sizes, (list, tuple)) else [sizes] * count
        node.meta["slices"] = [(sum(sizes[:i]), sizes[i], width) for i in range(count)]

    def chunk(self, node, x, count, dim=-1):
        self.split(node, x, self.width(x) // count, dim)

    def getitem(self, node, x, index):
        if "slices" not in x.meta:
            self.value[node] = self.source(node, x)
            return
        first, count, width = x.meta["slices"][index]
        self.add(node, "slice", [self.value[x]], in_features=width, offset=first,
                 out_features=count)

    def visit(self, node):
        target = node.target
        name = str(getattr(target, "_overloadpacket", target)).removeprefix("aten.")
        if name in ACTIVATIONS:
            self.activation(node, ACTIVATIONS[name], *node.args, **node.kwargs)
        elif name in TRANSPARENT:
            for table in (self.value, self.parameter):
                if node.args[0] in table:
                    table[node] = table[node.args[0]]
            if node.args[0] in self.positions:
                self.positions.add(node)
        elif name == "arange":
            self.positions.add(node)
        elif name in ("add", "add_"):
            self.addition(node, *node.args)
        elif name in ("mul", "mul_"):
            self.multiplication(node, *node.args)
        elif "getitem" in name:
            self.getitem(node, *node.args)
        elif name in ("slice", "select") and node.args[0] in self.parameter:
            self.parameter[node] = self.parameter[node.args[0]]  # the positions in use
        elif name in ("linear", "embedding", "layer_norm", "rms_norm", "split", "chunk",
                      "split_with_sizes", "scaled_dot_product_attention"):
            getattr(self, "split" if name.startswith("split") else name)(
                node, *node.args, **node.kwargs)
        elif name.startswith("sym_size") or name.startswith("_guards"):
            pass
        else:
            self.refuse(node)

    def run(self):
        tokens = torch.zeros(BATCH, TIME, dtype=torch.int64, device="meta")
        traced = torch.export.export(self.module, (tokens,), strict=False)
        parameters = traced.graph_signature.inputs_to_parameters
        names = list(traced.graph_signature.user_inputs)
        logits = None
        for node in traced.graph.nodes:
            if node.op == "placeholder":
                if node.name in parameters:
                    tensor = self.module.get_parameter(parameters[node.name])
                    self.parameter[node] = self.names[id(tensor)]  # tied ones have one name
                elif node.name in names:
                    self.value[node] = "tokens"
            elif node.op == "output":
                logits = node.args[0][-1]
            else:
                self.visit(node)
        self.lines.append(f"  - loss: {{kind: cross_entropy, inputs: [{self.value[logits]}, "
                          f"targets], in_features: {self.width(logits)}}}")

    def text(self):
        out = ["# Written by tools/torch_export.py with torch " + torch.__version__,
               f"family: {type(self.module).__name__}"]
        lists = [m for m in self.module.modules() if isinstance(m, torch.nn.ModuleList) and len(m)]
        blocks = sorted({type(block).__name__ for block in lists[0]}) if lists else []
        out.append(f"blocks: [{', '.join(blocks)}]")
        out.append("modules:")
        out += [f'  "{path}": {type(m).__name__}' for path, m in self.module.named_modules()]
        out.append("parameters:")
        for name, p in self.module.named_parameters():
            shape = ", ".join(str(size) for size in p.shape) or "1"
            frozen = "" if p.requires_grad else ", trainable: false"
            init = "zeros" if name.endswith("bias") else "ones" if p.dim() == 1 else 0.02
            out.append(f'  "{name}": {{shape: [{shape}], init: {init}{frozen}}}')
        return "\n".join(out + ["operators:"] + self.lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", help="package.module:function that returns a torch.nn.Module")
    parser.add_argument("-o", "--output", help="file to write; standard output without it")
    arguments = parser.parse_args()
    package, _, function = arguments.model.partition(":")
    sys.path.insert(0, ".")
    with torch.device("meta"):
        module = getattr(importlib.import_module(package), function or "build")()
    exporter = Exporter(module)
    try:
        exporter.run()
    except Refusal as refusal:
        sys.exit(f"torch_export: {refusal}")
    text = exporter.text()
    if arguments.output:
        with open(arguments.output, "w", encoding="utf-8") as file:
            file.write(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
