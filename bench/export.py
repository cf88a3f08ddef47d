"""Times export and loading of models, and PyTorch's export if FACULA_PEER names its Python.
Run by `make export`.

Prints a table: the time of export (ours, the peer's), the size of the graph, the time to load the file, and
the error of a model that does not export.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

MODELS = """
def models(torch):
    nn = torch.nn

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

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 4)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    def encoder():
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)

    yield "mlp", nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)), (torch.rand(4, 64),)
    yield "cnn", nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 *
        225, 10) ), (torch.rand(4, 3, 32, 32),)
    yield "resnet18", Resnet(), (torch.rand(4, 3, 64, 64),)
    yield "lstm", Lstm(), (torch.rand(4, 8, 16),)
    yield "transformer", encoder(), (torch.rand(4, 12, 64),)
"""

RUN = """
import json, sys, time
if sys.argv[1] == "peer":
    import torch
else:
    import facula as torch
    import facula.export
rows = {}
for name, model, args in models(torch):
    model.eval()
    try:
        start = time.perf_counter()
        program = torch.export.export(model, args, dynamic_shapes=({0: torch.export.Dim("batch")},))
        row = {"export": time.perf_counter() - start, "nodes": len(list(program.graph.nodes))}
        path = sys.argv[2] + "/" + name + ".pt2"
        torch.export.save(program, path)
        start = time.perf_counter()
        torch.export.load(path).module()
        row["load"] = time.perf_counter() - start
    except Exception as e:
        row = {"error": f"{type(e).__name__}: {e}".split("\\n")[0][:80]}
    rows[name] = row
print(json.dumps(rows))
"""


def rows(python: str, which: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        command = [python, "-W", "ignore", "-c", MODELS + RUN, which, folder]
        result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout.strip().splitlines()[-1])


def main() -> None:
    ours = rows(sys.executable, "ours")
    peer = os.environ.get("FACULA_PEER")
    theirs = rows(peer, "peer") if peer else {}
    print("| model | export | peer | ratio | nodes | load | peer |")
    print("|---|---|---|---|---|---|---|")
    for name, row in ours.items():
        other = theirs.get(name, {})
        if "error" in row:
            print(f"| {name} | {row['error']} | | | | | |")
            continue
        cells = [f"{row['export'] * 1e3:.0f} ms"]
        cells += (
            [f"{other['export'] * 1e3:.0f} ms", f"{row['export'] / other['export']:.3f}"]
            if "export" in other
            else ["", ""]
        )
        cells += [str(row["nodes"]), f"{row['load'] * 1e3:.0f} ms"]
        cells += [f"{other['load'] * 1e3:.0f} ms" if "load" in other else ""]
        print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"measured on {time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
