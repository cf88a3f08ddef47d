"""What is measured: small programs written once, with `torch` standing for the library under test."""

from __future__ import annotations

from dataclasses import dataclass

from models import MODELS

PROLOGUE = """
nn, F = torch.nn, torch.nn.functional

def values(*shape):
    count = 1
    for n in shape:
        count *= n
    return ((torch.arange(count) * 7919 % 1009).float() / 250 - 2).reshape(*shape)
"""

MLP = """
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = values(64, 784), torch.arange(64) % 10

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""

INFERENCE = """
model.eval()

@torch.no_grad()
def infer():
    return model(images)
"""

CNN = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))

    def forward(self, images):
        return self.classifier(self.features(images))

torch.manual_seed(0)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
images, labels = values(64, 1, 28, 28), torch.arange(64) % 10

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""

RESNET18 = """
class Block(nn.Module):
    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Identity()
        if stride > 1:
            projection = nn.Conv2d(channels, out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(out))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.shortcut(x)
        return self.relu(y)

class ResNet18(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
            nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        blocks, channels = [], 64
        for out, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            blocks.append(Block(channels, out, stride))
            channels = out
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, classes)

    def forward(self, images):
        return self.fc(torch.flatten(self.pool(self.blocks(self.stem(images))), 1))

torch.manual_seed(0)
model = ResNet18()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
images, labels = values(4, 3, 224, 224), torch.arange(4) * 7 % 1000

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""

RESNET18_BFLOAT16 = (
    RESNET18
    + """
def step():
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""
)

CHANNELS_LAST = """
model = model.to(memory_format=torch.channels_last)
images = images.contiguous(memory_format=torch.channels_last)
"""

GPT = """
class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = (
            t.view(n, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norm1(x)).split(width, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

class GPT(nn.Module):
    def __init__(self, symbols=27, width=128, layers=4, heads=4, context=128):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, x):
        h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
        return self.head(self.norm(self.blocks(h)))

torch.manual_seed(0)
model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images = (torch.arange(8 * 128) * 7919 % 27).view(8, 128)
labels = (torch.arange(8 * 128) * 104729 % 27)

def loss_of():
    return F.cross_entropy(model(images).view(-1, 27), labels)

def step():
    optimizer.zero_grad()
    loss = loss_of()
    loss.backward()
    optimizer.step()
    return loss
"""

GPT_BFLOAT16 = (
    GPT
    + """
def loss_of():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return F.cross_entropy(model(images).view(-1, 27), labels)
"""
)

ATTENTION = """
q, k, v = (values(1, 25, 1024, 64)[..., p].requires_grad_() for p in
           (torch.arange(64), torch.arange(64) * 7 % 64, torch.arange(64) * 11 % 64))
g = values(1, 25, 1024, 64)

def gradients(causal):
    return torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v), g)
"""


@dataclass(frozen=True)
class Row:
    """One line of the table.

    A warm row times `statement` in a running process after `setup`; a cold row times its first run, together
    with `setup`, in a fresh process. `check` is a number that both libraries must agree on.
    """

    name: str
    statement: str
    setup: str = ""
    peer_setup: str | None = None  # PyTorch's program, where it is to run another
    check: str | None = None
    cold: bool = False
    # Kernels of a cold row: "own" (the shipped and the user's), "shipped" (those alone), "empty" (none at
    # all), "filled" (by the run before, none shipped).
    cache: str = "own"
    imports: bool = False  # a cold row: the import is what is timed
    prepared: bool = False  # a cold row: `setup` is not timed
    memory_steps: int = (
        0  # a cold row: not timed; by how much this many runs after `setup` make the process larger
    )
    reach: float | None = None  # of this row alone; else its group's
    reach_seconds: float | None = None  # a bound on Facula's own time
    own: str | None = None  # an earlier row of the group, by whose Facula time the reach is meant
    unit: str | None = None  # else its group's


@dataclass(frozen=True)
class Group:
    name: str
    title: str
    rows: list[Row]
    threads: int
    unit: str
    reach: float | None = None  # of each row, and of their geometric mean, which is what the project promises
    mean: float | None = None  # of the geometric mean, where that differs
    note: str = ""
    processes: int = 1  # in turn, of each library: where pages lie in physical memory stays so for a process
    neighbours: int = 0  # processes of others that compute all the while


def overhead(name: str, statement: str, setup: str = "", check: str | None = None) -> Row:
    return Row(name, statement, "a, b = values(8, 8), values(8, 8) + 0.5\n" + setup, check=check)


def kernel(
    name: str, statement: str, setup: str = "", check: str | None = None, reach: float | None = None
) -> Row:
    setup = "x, y = values(1024, 1024), values(1024, 1024) + 0.5\n" + setup
    return Row(name, statement, setup, check=check, reach=reach)


LAYER_NORM = """
w, b = (values(1024) * 0.1 + 1).requires_grad_(), values(1024).requires_grad_()
x.requires_grad_()
g = y
out = F.layer_norm(x, (1024,), w, b)
"""

# Ten layers as in a small transformer: matrices and biases, 10.5 M numbers in all.
ADAMW = """
parameters = [nn.Parameter(values(*shape)) for shape in [(1024, 1024), (1024,)] * 10]
for p in parameters:
    p.grad = values(*p.shape) * 0.01
optimizer = torch.optim.AdamW(parameters, lr=1e-3)
"""

MEMORY_STEPS = (
    5  # the peak comes with the second step, when the gradients and the optimizer's state are there
)

GROUPS = [
    Group(
        "overhead",
        "Calls from Python (8x8 float32)",
        threads=1,
        unit="ns",
        reach=0.4,
        mean=0.2,
        rows=[
            overhead("a + b", "a + b", check="(a + b).sum()"),
            overhead("a * 2", "a * 2.0", check="(a * 2.0).sum()"),
            overhead("a.view(64)", "a.view(64)", check="a.view(64)[9]"),
            overhead("a[1:3]", "a[1:3]", check="a[1:3].sum()"),
            overhead("a.sum()", "a.sum()", check="a.sum()"),
            overhead("a @ b", "a @ b", check="(a @ b).abs().sum()"),
            overhead("nn.Linear(8, 8)(a)", "m(a)", "m = nn.Linear(8, 8)"),
            overhead("nn.LayerNorm(8)(a)", "m(a)", "m = nn.LayerNorm(8)", check="m(a).abs().sum()"),
            overhead(
                "relu(a).sum().backward()",
                "torch.relu(a).sum().backward()",
                "a.requires_grad_()",
                check="a.grad.sum() / a.grad.max()",
            ),
        ],
    ),
    Group(
        "kernels",
        "Kernels (1024x1024 float32)",
        threads=2,
        unit="us",
        reach=1.1,
        mean=0.75,
        processes=5,
        note="Five processes of each: which tensors share sets of the cache is settled for a process.",
        rows=[
            kernel("add", "x + y", check="(x + y).abs().sum()"),
            kernel("exp", "torch.exp(x)", check="torch.exp(x).sum()"),
            kernel("tanh", "torch.tanh(x)", check="torch.tanh(x).abs().sum()"),
            kernel("gelu", "F.gelu(x)", check="F.gelu(x).abs().sum()"),
            kernel("sigmoid", "torch.sigmoid(x)", check="torch.sigmoid(x).sum()"),
            kernel("sum", "x.sum()", check="x.sum()"),
            kernel("sum(0)", "x.sum(0)", check="x.sum(0).abs().sum()"),
            kernel("softmax", "F.softmax(x, -1)", check="F.softmax(x, -1).square().sum()", reach=0.6),
            kernel(
                "layer_norm forward",
                "F.layer_norm(x, (1024,), w, b)",
                "w, b = values(1024) * 0.1 + 1, values(1024)",
                check="F.layer_norm(x, (1024,), w, b).abs().sum()",
                reach=0.6,
            ),
            kernel(
                "layer_norm backward",
                "torch.autograd.grad(out, (x, w, b), g, retain_graph=True)",
                LAYER_NORM,
                check="torch.autograd.grad(out, (x, w, b), g, retain_graph=True)[0].abs().sum()",
                reach=0.6,
            ),
            Row(
                "cross_entropy forward and backward, 8192x1000",
                "torch.autograd.grad(F.cross_entropy(x, t), x)",
                "x = values(8192, 1000).requires_grad_()\nt = torch.arange(8192) * 7 % 1000",
                check="torch.autograd.grad(F.cross_entropy(x, t), x)[0].abs().sum()",
                reach=0.6,
            ),
            kernel("transpose copy", "x.t().contiguous()", check="x.t().contiguous()[7].sum()", reach=0.6),
            kernel("cumsum", "x.cumsum(-1)", check="x.cumsum(-1).abs().sum()"),
            kernel("sort rows", "x.sort(-1)", check="x.sort(-1)[0][:, 7].sum()"),
            Row(
                "AdamW step, 10 M parameters",
                "optimizer.step()",
                ADAMW,
                check="parameters[0].sum()",
                reach=0.6,
            ),
        ],
    ),
    Group(
        "attention",
        "scaled_dot_product_attention, 1x25x1024x64, forward and backward",
        threads=2,
        unit="ms",
        reach=1.0,
        rows=[
            Row("full", "gradients(False)", ATTENTION, check="gradients(False)[0].abs().sum()"),
            Row("causal", "gradients(True)", ATTENTION, check="gradients(True)[0].abs().sum()", reach=0.9),
        ],
    ),
    Group(
        "training",
        "Training",
        threads=2,
        unit="ms",
        reach=1.0,
        rows=[
            Row("MLP step, batch 64", "step()", MLP, reach=0.7),
            Row("CNN step, batch 64", "step()", CNN, reach=0.5),
            Row("ResNet-18 step, batch 4 at 224x224", "step()", RESNET18, reach=0.8),
            Row(
                "ResNet-18 step, bfloat16 autocast, by float32",
                "step()",
                RESNET18_BFLOAT16,
                peer_setup=RESNET18,
                reach=0.35,
            ),
            Row(
                "ResNet-18 step, bfloat16 autocast, by channels_last and autocast",
                "step()",
                RESNET18_BFLOAT16,
                peer_setup=RESNET18_BFLOAT16 + CHANNELS_LAST,
                reach=0.85,
            ),
            Row("GPT 4x128 step, batch 8x128", "step()", GPT, reach=0.8),
            Row(
                "GPT 4x128 step, batch 8x128, bfloat16 autocast",
                "step()",
                GPT_BFLOAT16,
                reach=0.7,
                own="GPT 4x128 step, batch 8x128",
            ),
        ],
    ),
    Group(
        "busy",
        "Training beside a process that computes",
        threads=2,
        unit="ms",
        neighbours=1,
        rows=[
            Row("MLP step, batch 64", "step()", MLP),
            Row("CNN step, batch 64", "step()", CNN),
            Row("GPT 4x128 step, batch 8x128", "step()", GPT),
        ],
        note="As with workers that prepare data, or somebody else's program.",
    ),
    Group(
        "inference",
        "Inference",
        threads=2,
        unit="ms",
        reach=1.0,
        rows=[
            Row("MLP, batch 64", "infer()", MLP + INFERENCE, reach=0.8),
            Row("CNN, batch 64", "infer()", CNN + INFERENCE, reach=0.4),
            Row("ResNet-18, batch 4 at 224x224", "infer()", RESNET18 + INFERENCE, reach=0.8),
            Row("GPT 4x128, batch 8x128", "infer()", GPT + INFERENCE, reach=0.9),
        ],
    ),
    Group(
        "start",
        "Start of a process",
        threads=2,
        unit="s",
        rows=[
            Row("import", "", cold=True, imports=True, reach=0.15),
            Row(
                "first CNN step, empty kernel cache",
                "step().item()",
                CNN,
                cold=True,
                cache="empty",
                reach_seconds=3.0,
            ),
            Row(
                "first CNN step, filled kernel cache",
                "step().item()",
                CNN,
                cold=True,
                cache="filled",
                reach_seconds=0.3,
            ),
        ],
        note="The first step is timed with the making of the network and its optimizer, after the import.",
    ),
    *(
        Group(
            "first step" if cache == "filled" else f"first step, {cache}",
            f"First training step, {title}",
            threads=2,
            unit="ms",
            reach=reach,
            rows=[
                Row(
                    name,
                    "step().item()",
                    "torch.manual_seed(0)\n" + text,
                    cold=True,
                    cache=cache,
                    prepared=True,
                )
                for name, text in MODELS.items()
            ],
            note="Forward, backward and optimizer of small models, each the first thing that a process does "
            "after it has made the model.",
        )
        for cache, title, reach in (
            ("filled", "kernels in the user's cache", 1.2),
            ("shipped", "as installed", 3.0),
            ("empty", "no kernels at all", 3.0),
        )
    ),
    Group(
        "memory",
        "Memory",
        threads=2,
        unit="MiB",
        reach=0.8,
        rows=[
            Row("CNN training, batch 64", "step()", CNN, cold=True, memory_steps=MEMORY_STEPS),
            Row("GPT 4x128 training, batch 8x128", "step()", GPT, cold=True, memory_steps=MEMORY_STEPS),
        ],
        note=f"By how much {MEMORY_STEPS} steps make a fresh process larger at the peak: its resident set "
        "beyond what it had after the import and the making of network, optimizer and data.",
    ),
]
