"""Measures the time of export, of packages and of their first use, for Facula and for the Python that
FACULA_PEER names (PyTorch's export and AOTInductor). Run by `make export`.

The first table has the seconds of export, those of loading the file, and the error of a model that does not
export. After it, the programs of bench/programs.py are exported with a dynamic batch and checked, here and
with the peer (tests/zoo/exports.py), and both counts are printed.

With --packages, fewer models are exported, and there are two more tables. The second one has the seconds
until a package is written, until a new process has loaded it and computed a result, and of a call, and the
peak of that process's memory. The third one compares calls of packages from Python and from C with those of
the compiled model and of ONNX Runtime; compiled model and package alternate in one process. A call of "one
relu", a program of one operator on four elements, takes the time that any call takes besides its kernels.

With --zoo, published models are exported instead.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from models import MODELS as TEXTS
from programs import PROGRAMS
from rows import PROLOGUE

ROOT = Path(__file__).resolve().parents[1]
ZOO = ROOT / "tests/zoo/exports.py"
PACKAGED = "MLP,CNN,ResNet-18,GPT,Transformer,BERT-base"
RELU = "model, inputs = nn.ReLU(), (torch.ones(2, 2),)"

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
        if "inputs" in scope:
            yield name, scope["model"], tuple(scope["inputs"])
            continue
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
        row["rows"] = rows_of
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
            if which == "ours":
                row |= beside_compiled(torch, model, package, args)
    except Exception as e:
        row["error"] = f"{type(e).__name__}: {e}".split("\\n")[0][:80]
print(json.dumps(rows))
"""

COMPILED = """
def beside_compiled(torch, model, package, args):
    # The least seconds of a call of the package and of the compiled model, which take turns.
    functions = {"packaged": torch._inductor.aoti_load_package(package), "compiled": torch.compile(model)}
    seconds = dict.fromkeys(functions, float("inf"))
    with torch.no_grad():
        for f in 3 * [*functions.values()]:
            f(*args)
        end, rounds = time.perf_counter() + 5, 0
        while rounds < 5 or rounds < 1000 and time.perf_counter() < end:
            rounds += 1
            for name, f in functions.items():
                start = time.perf_counter()
                f(*args)
                seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds
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
    times, end = [], time.perf_counter() + 5
    while len(times) < 5 or len(times) < 200 and time.perf_counter() < end:
        begin = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - begin)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"first": first, "call": sorted(times)[len(times) // 4], "peak": peak / 1024}))
"""


# Writes the ONNX model of an exported program, and its inputs for NumPy.
TO_ONNX = """
import sys, numpy
import facula
sys.path.append(sys.argv[3])
folder, name = sys.argv[1:3]
program = facula.export.load(f"{folder}/{name}.pt2")
inputs = facula.load(f"{folder}/{name}.inputs")
facula.onnx.export(program, tuple(inputs), f"{folder}/{name}.onnx")
numpy.savez(f"{folder}/{name}.npz", *(x.numpy() for x in inputs))
"""

WITH_ONNX = """
import json, os, sys, time, numpy, onnxruntime
folder, name = sys.argv[1:]
arrays = numpy.load(f"{folder}/{name}.npz")
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = os.cpu_count()
session = onnxruntime.InferenceSession(f"{folder}/{name}.onnx", options)
inputs = {x.name: arrays[f"arr_{k}"] for k, x in enumerate(session.get_inputs())}
times, end = [], time.perf_counter() + 5
while len(times) < 5 or len(times) < 1000 and time.perf_counter() < end:
    begin = time.perf_counter()
    session.run(None, inputs)
    times.append(time.perf_counter() - begin)
print(json.dumps({"ONNX Runtime": min(times)}))
"""


def compile_caller(folder: str) -> str:
    """Compiles call.c against the library that only runs packages."""
    import facula

    library = Path(facula.__file__).with_name("libfacula_runtime.so")
    program = os.path.join(folder, "call")
    command = ["cc", "-O2", ROOT / "bench/call.c", f"-I{ROOT / 'src/facula/deploy'}", library, "-o", program]
    command += [f"-Wl,-rpath,{library.parent}", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run(command, check=True)
    return program


def inferences(folder: str, name: str, caller: str, batch: int) -> dict:
    """Returns the seconds of a call from C, and with ONNX Runtime if setup/folder.sh has installed it."""
    row = {"from C": answer([caller, f"{folder}/{name}.package.pt2", str(batch)])["call"] * 1e-6}
    packages = ROOT / ".onnx"
    if packages.is_dir():
        command = [sys.executable, "-W", "ignore", "-c"]
        subprocess.run([*command, TO_ONNX, folder, name, packages], check=True)
        environment = os.environ | {"PYTHONPATH": str(packages)}
        row |= answer([*command, WITH_ONNX, folder, name], env=environment)
    return row


def answer(command: list, **options) -> dict:
    result = subprocess.run(command, capture_output=True, text=True, **options)
    if result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout.strip().splitlines()[-1])


def rows(python: str, which: str, texts: dict, only: str = "") -> dict:
    """Returns a row for each of these models, or for those of `only`, which are packaged too."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = [json.dumps(texts), which, folder, only]
        models = answer([python, "-W", "ignore", "-c", MODELS + COMPILED + STAR + RUN, *arguments])
        caller = compile_caller(folder) if only and which == "ours" else ""
        for name, row in models.items():
            if "package" not in row:
                continue
            row |= answer([python, "-W", "ignore", "-c", FIRST, which, folder, name])
            if caller:
                row |= inferences(folder, name, caller, row["rows"])
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


def inference_table(ours: dict) -> None:
    keys = ("compiled", "packaged", "from C", "ONNX Runtime")
    print(f"\n| a call | {' | '.join(keys)} | packaged/compiled | C/compiled | C/ONNX Runtime |")
    print("|---|" + "---|" * (len(keys) + 3))
    for name, row in ours.items():
        cells = [milliseconds(row, k) for k in keys]
        for over, under in (("packaged", "compiled"), ("from C", "compiled"), ("from C", "ONNX Runtime")):
            cells.append(f"{row[over] / row[under]:.3f}" if over in row and under in row else "")
        print(f"| {name} | {' | '.join(cells)} |")


def export_zoo(*arguments: str) -> int:
    return subprocess.run([sys.executable, ZOO, *arguments]).returncode


def main() -> None:
    build = os.environ.get("FACULA_BUILD", "build")
    peer = os.environ.get("FACULA_PEER")
    if "--zoo" in sys.argv:
        report = os.path.join(build, "exports.md")
        raise SystemExit(export_zoo("--report", report, *(a for a in sys.argv[1:] if a != "--zoo")))
    only, texts = "", TEXTS
    if "--packages" in sys.argv:
        only = PACKAGED + ",one relu"
        texts = TEXTS | {
            n: PROLOGUE + t for n, t in (("BERT-base", PROGRAMS["BERT-base"]), ("one relu", RELU))
        }
    ours = rows(sys.executable, "ours", texts, only)
    theirs = rows(peer, "peer", texts, only) if peer else {}
    table("model", ("export", "load"), ours, theirs)
    if only:
        table("package", ("package", "first", "call", "peak"), ours, theirs)
        inference_table(ours)
    print(f"\nmeasured on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores", flush=True)
    if not only:
        print(
            "\nprograms with a dynamic batch: result, nodes, seconds of export; the same of the peer",
            flush=True,
        )
        raise SystemExit(export_zoo("--only", "^program ", *(["--peer"] if peer else [])))


if __name__ == "__main__":
    main()
