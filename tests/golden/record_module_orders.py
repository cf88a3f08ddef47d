"""Records what PyTorch's modules hold after generated sequences of assignments, registrations and deletions.

    .peer/bin/python tests/golden/record_module_orders.py

``module_orders.jsonl.gz`` then has a line for each sequence: how the module is made, the statements, for each
statement the exception it raises ("" if none) and a checksum of what the module holds after it, and what it
holds at the end. ``test_modules.py`` runs the same statements.
"""

import json
import random
import sys
import zlib
from pathlib import Path

MODULES = [
    "nn.Linear(2, 3)",
    "nn.Linear(3, 1, bias=False)",
    "nn.BatchNorm1d(2)",
    "nn.ReLU()",
    "nn.Sequential()",
]
TENSORS = ["nn.Parameter(torch.zeros(2))", "nn.Parameter(torch.zeros(1, 3))", "torch.zeros(4)"]
BUFFERS = ["nn.Buffer(torch.zeros(5))", "nn.Buffer(torch.zeros(6), persistent=False)"]
NAMES = ["a", "b", "c"]
PLAIN = ["None", "7", "'text'"]
STARTS = {
    "module": ["nn.Module()"],
    "sequential": ["nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Flatten())", "nn.Sequential()"],
    "module_list": ["nn.ModuleList([nn.Linear(2, 3), nn.ReLU(), nn.BatchNorm1d(2)])", "nn.ModuleList()"],
    "module_dict": ["nn.ModuleDict({'b': nn.Linear(2, 3), 'a': nn.ReLU()})", "nn.ModuleDict()"],
    "parameter_list": ["nn.ParameterList([torch.zeros(1), torch.zeros(2)])", "nn.ParameterList()"],
    "parameter_dict": ["nn.ParameterDict({'b': torch.zeros(1), 'a': torch.zeros(2)})", "nn.ParameterDict()"],
}


def attribute_statement(r: random.Random) -> str:
    name = r.choice(NAMES)
    value = r.choice(MODULES + TENSORS * 2 + BUFFERS + PLAIN)
    persistent = r.choice(["True", "False"])
    return r.choice(
        [f"m.{name} = {value}"] * 6
        + [f"del m.{name}"] * 2
        + [f"m.register_parameter('{name}', {r.choice([*TENSORS, 'None', 'None'])})"] * 2
        + [f"m.register_buffer('{name}', {r.choice(['torch.zeros(4)', 'None'])}, {persistent})"] * 2
        + [f"m.add_module('{name}', {r.choice([*MODULES, 'None'])})"] * 2
        + [f"m.register_module('{name}', {r.choice([*MODULES, 'None'])})", f"m.{name}.d = {value}"]
        + ["m.double()", "m.load_state_dict(m.state_dict(), assign=True)"]
    )


def list_statement(r: random.Random, values: list[str]) -> str:
    k, n, value = r.randrange(-3, 4), r.randrange(3), r.choice(values)
    return r.choice(
        [f"m[{k}] = {value}"] * 4
        + [f"m.append({value})", f"m.extend([{value}, {r.choice(values)}])", "m += type(m)()"]
        + [f"m = m[:{n}]", f"setattr(m, '{n}', {r.choice([value, 'None'])})"]
    )


def module_list_statement(r: random.Random) -> str:
    k, n = r.randrange(-3, 4), r.randrange(3)
    return r.choice(
        [list_statement(r, MODULES)] * 4
        + [
            f"del m[{k}]",
            f"del m[{n}:{n + 1}]",
            f"m.insert({n}, {r.choice(MODULES)})",
            f"m.pop({k})",
            "m + m",
        ]
    )


def dict_statement(r: random.Random, values: list[str]) -> str:
    key, value = r.choice(NAMES), r.choice(values)
    pairs = ", ".join(f"'{k}': {r.choice(values)}" for k in r.sample([*NAMES, "d"], 2))
    return r.choice(
        [f"m['{key}'] = {value}"] * 4
        + [f"del m['{key}']", f"m.pop('{key}')", f"m.update({{{pairs}}})", f"m.{key} = {value}"]
        + [f"m.update(dict({{{pairs}}}).items())", f"del m.{key}", f"m['{key}']"]
    )


STATEMENTS = {
    "module": attribute_statement,
    "sequential": module_list_statement,
    "module_list": module_list_statement,
    "module_dict": lambda r: dict_statement(r, MODULES),
    "parameter_list": lambda r: list_statement(r, TENSORS),
    "parameter_dict": lambda r: r.choice(
        [dict_statement(r, TENSORS)] * 4
        + ["m.popitem()", "m = m.copy()", f"m.setdefault('{r.choice(NAMES)}', {r.choice(TENSORS)})"]
    ),
}


def held(m) -> str:  # noqa: ANN001
    """What a module holds, in its order."""
    return json.dumps(
        [
            [(n, list(p.shape)) for n, p in m.named_parameters()],
            [(n, list(b.shape)) for n, b in m.named_buffers()],
            [(n, type(c).__name__) for n, c in m.named_modules()],
            [(k, list(v.shape)) for k, v in m.state_dict().items()],
            [list(m._parameters), list(m._buffers), list(m._modules), sorted(m._non_persistent_buffers_set)],
        ]
    )


def run(start: str, statements: list[str], namespace: dict) -> tuple[list[tuple[str, int]], str]:
    """For each statement the exception's name and a checksum of what is held; and what is held at the end."""
    scope = dict(namespace)
    exec("m = " + start, scope)
    steps = []
    for statement in statements:
        error = ""
        try:
            exec(statement, scope)
        except Exception as e:
            error = type(e).__name__
        steps.append((error, zlib.crc32(held(scope["m"]).encode())))
    return steps, held(scope["m"])


if __name__ == "__main__":
    import torch

    random_source, lines = random.Random(0), []
    for kind, starts in STARTS.items():
        for _ in range(80 if kind == "module" else 40):
            start = random_source.choice(starts)
            statements = [STATEMENTS[kind](random_source) for _ in range(14)]
            steps, last = run(start, statements, {"torch": torch, "nn": torch.nn})
            lines.append(json.dumps({"start": start, "statements": statements, "steps": steps, "held": last}))
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
    from support import recording

    recording.write("module_orders.jsonl", "\n".join(lines) + "\n")
