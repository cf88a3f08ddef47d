"""Measures the time of export, of packages and of their first use, for Facula and for the Python that
FACULA_PEER names (PyTorch's export and AOTInductor). Run by `make export`.

The first table has the seconds of export, those of loading the file, and the error of a model that does not
export. With --packages there is a second one: the seconds until a package is written, until a new process has
loaded it and computed a result, and of a call, and the peak of that process's memory. With --zoo, published
models are exported instead (tests/zoo/exports.py).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from models import MODELS as TEXTS

MODELS = """
def models(torch, texts):
    nn, F = torch.nn, torch.nn.functional

    class Residual(nn.Module):
        def __init__(self, i, o, stride):
            super().__init__()
            self.a, self.an = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
            self.b, self.bn = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
            self.s = nn.Conv2d(i, o, 1, stride, bias=False)

        def forward(self, x):
            return (self.bn(self.b(self.an(self.a(x)).relu())) + self.s(x)).relu()

    class Resnet(nn.Module):
        def __init__(self):
            super().__init__()
            widths = [64, 64, 64, 128, 128, 256, 256, 512, 512]
            sizes = [(i, o, 1 + (i != o)) for i, o in zip(widths, widths[1:])]
            stem = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
            self.stem = nn.Sequential(*stem)
            self.blocks, self.head = nn.Sequential(*(Residual(*s) for s in sizes)), nn.Linear(512, 1000)

        def forward(self, x):
            return self.head(self.blocks(self.stem(x)).mean((2, 3)))

    def encoder():
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    yield "ResNet-18", Resnet(), (torch.rand(4, 3, 64, 64),)
    yield "Transformer", encoder(), (torch.rand(4, 12, 64),)
    for name, text in texts.items():
        scope = {"torch": torch, "nn": nn, "F": F, "values": lambda *shape: torch.randn(*shape)}
        exec("import math\\n" + text, scope)
        calls = []
        handle = scope["model"].register_forward_pre_hook(lambda m, args: calls.append(args))
        try:
            scope["step"]()
        finally:
            handle.remove()
        if calls:
            yield name, scope["model"], calls[0]
"""

RUN = """
import json, sys, time
texts, which, folder, only = json.loads(sys.argv[1]), *sys.argv[2:]
if which == "peer":
    import torch
else:
    import facula as torch
    import facula.export, facula._inductor
rows = {}
for name, model, args in models(torch, {k: v for k, v in texts.items() if not only or k in only.split(",")}):
    if only and name not in only.split(","):
        continue
    model.eval()
    row = rows[name] = {}
    try:
        batch = torch.export.Dim("batch")
        rows_of = args[0].size(0)
        shapes = tuple({0: batch} if x.dim() and x.size(0) == rows_of else None for x in args)
        start = time.perf_counter()
        program = torch.export.export(model, args, dynamic_shapes=(shapes,) if takes_star(model) else shapes)
        row["export"], row["nodes"] = time.perf_counter() - start, len(list(program.graph.nodes))
        path = f"{folder}/{name}.pt2"
        torch.export.save(program, path)
        start = time.perf_counter()
        torch.export.load(path).module()
        row["load"] = time.perf_counter() - start
        if only:
            start = time.perf_counter()
            package = f"{folder}/{name}.package.pt2"
            torch._inductor.aoti_compile_and_package(program, package_path=package)
            row["package"] = time.perf_counter() - start
            torch.save([x.detach() for x in args], f"{folder}/{name}.inputs")
    except Exception as e:
        row["error"] = f"{type(e).__name__}: {e}".split("\\n")[0][:80]
print(json.dumps(rows))
"""

STAR = """
def takes_star(model):
    import inspect
    return any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(model.forward).parameters.values())
"""

FIRST = """
import json, resource, sys, time
start = time.perf_counter()
which, folder, name = sys.argv[1:]
if which == "peer":
    import torch
else:
    import facula as torch
    import facula._inductor
imported = time.perf_counter()
inputs = torch.load(f"{folder}/{name}.inputs")
before = time.perf_counter()
model = torch._inductor.aoti_load_package(f"{folder}/{name}.package.pt2")
with torch.no_grad():
    model(*inputs)
    first = time.perf_counter() - before
    times = []
    for _ in range(200):
        begin = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - begin)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"first": first, "call": sorted(times)[len(times) // 4], "peak": peak / 1024}))
"""


def call_from_c(folder: str, name: str) -> float:
    """Returns the seconds of a call of a package from C."""
    import facula

    library = Path(facula.__file__).with_name("libfacula_runtime.so")
    program = os.path.join(folder, "call")
    root = Path(__file__).resolve().parents[1]
    command = ["cc", "-O2", root / "bench/call.c", f"-I{root / 'src/facula/deploy'}", library, "-o", program]
    command += [f"-Wl,-rpath,{library.parent}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run(command, check=True)
    return answer([program, f"{folder}/{name}.package.pt2", "4"])["call"] * 1e-6


def answer(command: list, **options) -> dict:
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout.strip().splitlines()[-1])


def rows(python: str, which: str, only: str = "") -> dict:
    with tempfile.TemporaryDirectory() as folder:
        arguments = [json.dumps(TEXTS), which, folder, only]
        models = answer([python, "-W", "ignore", "-c", MODELS + STAR + RUN, *arguments])
        for name, row in models.items():
            if only and "package" in row:
                row |= answer([python, "-W", "ignore", "-c", FIRST, which, folder, name])
                if which == "ours":
                    row["from C"] = call_from_c(folder, name)
        return models


def milliseconds(row: dict, key: str) -> str:
    return f"{row[key] * 1e3:.3g} ms" if key in row else ""


def ratio(row: dict, other: dict, key: str) -> str:
    return f"{row[key] / other[key]:.3f}" if key in row and key in other else ""


def table(title: str, keys: tuple, ours: dict, theirs: dict) -> None:
    print(f"\n| {title} | " + " | ".join(f"{k} | peer | ratio" for k in keys) + " | |")
    print("|---|" + "---|" * (3 * len(keys) + 1))
    for name, row in ours.items():
        other = theirs.get(name, {})
        cells = []
        for key in keys:
            if key == "peak":
                shown = [f"{r[key]:.0f} MB" if key in r else "" for r in (row, other)]
            else:
                shown = [milliseconds(r, key) for r in (row, other)]
            cells += [*shown, ratio(row, other, key)]
        failures = [f"{who}: {r['error']}" for who, r in (("ours", row), ("peer", other)) if "error" in r]
        print(f"| {name} | " + " | ".join(cells) + f" | {'; '.join(failures)} |")


def main() -> None:
    if "--zoo" in sys.argv:
        zoo = Path(__file__).resolve().parents[1] / "tests/zoo/exports.py"
        report = os.path.join(os.environ.get("FACULA_BUILD", "build"), "exports.md")
        arguments = ["--report", report, *(a for a in sys.argv[1:] if a != "--zoo")]
        raise SystemExit(subprocess.run([sys.executable, zoo, *arguments]).returncode)
    only = "MLP,ResNet-18,GPT,Transformer" if "--packages" in sys.argv else ""
    peer = os.environ.get("FACULA_PEER")
    ours = rows(sys.executable, "ours", only)
    theirs = rows(peer, "peer", only) if peer else {}
    table("model", ("export", "load"), ours, theirs)
    if only:
        table("package", ("package", "first", "call", "from C", "peak"), ours, theirs)
    print(f"\nmeasured on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
