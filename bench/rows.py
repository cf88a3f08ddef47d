"""The measured programs, written once; `torch` stands for the library under test."""

from __future__ import annotations

from dataclasses import dataclass

from models import MODELS

# The beginning of every program. Numbers come from a NumPy generator with a fixed stream, so that both
# libraries use the same ones.
PROLOGUE = """
nn, F = torch.nn, torch.nn.functional

def generator(seed):
    import numpy
    return numpy.random.RandomState(seed)

def normal(*shape, seed=0):
    return torch.from_numpy(generator(seed).standard_normal(shape).astype("float32")).clone()

calls = 0

def values(*shape):
    # Others at each call.
    global calls
    calls += 1
    return normal(*shape, seed=1000 + calls)

def random_labels(n, *shape, seed=0):
    return torch.from_numpy(generator(seed).randint(0, n, shape)).clone()

def equalize(model):
    # Matrices as the usual initializations draw them; vectors stay, for they are zeros, ones or small.
    with torch.no_grad():
        for k, p in enumerate(model.parameters()):
            if p.dim() < 2:
                p.copy_(normal(*p.shape, seed=k) * 0.02 + round(float(p.mean())))
            else:
                p.copy_(normal(*p.shape, seed=k) * (1 / (p.numel() / p.shape[0])) ** 0.5)

def losses(count=3):
    # Without dropout and with known noise: each library's random numbers are its own.
    dropouts = [(m, m.p) for m in model.modules() if isinstance(m, nn.Dropout)]
    functions = F.dropout, torch.randn_like
    F.dropout, torch.randn_like = lambda x, *args, **options: x, lambda x: normal(*x.shape)
    for m, _ in dropouts:
        m.p = 0.0
    results = [float(step().detach()) for _ in range(count)]
    for m, p in dropouts:
        m.p = p
    F.dropout, torch.randn_like = functions
    return results

def summary(*tensors):
    # Some elements, the mean and the mean square of each tensor.
    results = []
    for t in tensors:
        t = t.detach().float().reshape(-1)
        results += [*t[:: max(1, t.numel() // 16)].tolist(), float(t.mean()), float((t * t).mean())]
    return results
"""

MLP = """
torch.manual_seed(0)
model = nn.Sequential(
    nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = normal(64, 784), random_labels(10, 64)

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""

# Facula runs the step as a program; PyTorch runs it unchanged.
TRACED = """
if hasattr(torch, "program"):
    eager_step, step = step, torch.program.trace(step)
    losses_of_steps = losses

    def losses(count=3):
        # A program made for the check, which changes numbers of modules.
        global step
        ready = []
        traced, step = step, lambda: (ready or ready.append(torch.program.trace(eager_step)) or ready)[0]()
        results = losses_of_steps(count)
        step = traced
        return results
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
images, labels = normal(64, 1, 28, 28), random_labels(10, 64)

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
images, labels = normal(4, 3, 224, 224), random_labels(1000, 4)

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
images, labels = random_labels(27, 8, 128), random_labels(27, 8 * 128, seed=1)

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
q, k, v = (normal(1, 25, 1024, 64, seed=n).requires_grad_() for n in range(3))
g = normal(1, 25, 1024, 64, seed=3)

def gradients(causal):
    return torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v), g)
"""


DENSENET = """
class Layer(nn.Module):
    def __init__(self, channels, growth):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(4 * growth)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        y = self.conv1(F.relu(self.norm1(x)))
        return torch.cat([x, self.conv2(F.relu(self.norm2(y)))], 1)

class DenseNet(nn.Module):
    def __init__(self, growth=16, layers=4):
        super().__init__()
        self.stem, channels = nn.Conv2d(3, 32, 3, padding=1, bias=False), 32
        parts = []
        for stage in range(3):
            for _ in range(layers):
                parts.append(Layer(channels, growth))
                channels += growth
            parts += [nn.BatchNorm2d(channels), nn.ReLU()]
            if stage < 2:
                parts += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2)]
                channels //= 2
        self.features, self.head = nn.Sequential(*parts), nn.Linear(channels, 10)

    def forward(self, x):
        x = self.features(self.stem(x))
        return self.head(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))

torch.manual_seed(0)
model = DenseNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
images, labels = normal(16, 3, 32, 32), random_labels(10, 16)

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""

UNET = """
def double(channels, out):
    return nn.Sequential(
        nn.Conv2d(channels, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1, bias=False), nn.BatchNorm2d(out), nn.ReLU(inplace=True))

class UNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down1, self.down2 = double(3, width), double(width, 2 * width)
        self.middle = double(2 * width, 4 * width)
        self.up2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.right2 = double(4 * width, 2 * width)
        self.narrow, self.right1 = nn.Conv2d(2 * width, width, 1), double(2 * width, width)
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.right2(torch.cat([b, self.up2(self.middle(F.max_pool2d(b, 2)))], 1))
        n, c, h, w = (y := self.narrow(y)).shape  # each pixel becomes four
        y = y.view(n, c, h, 1, w, 1).expand(n, c, h, 2, w, 2).reshape(n, c, 2 * h, 2 * w)
        return self.head(self.right1(torch.cat([a, y], 1)))

torch.manual_seed(0)
model = UNet()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
images, labels = normal(4, 3, 96, 96), random_labels(2, 4, 96, 96)

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss
"""


# A classifier of sequences: padded ones, or packed ones of several lengths.
RECURRENT = """
class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.%s
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        y = self.layer(x)[0]
        if isinstance(y, nn.utils.rnn.PackedSequence):
            y = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0]
        return self.head(y.mean(1))

torch.manual_seed(0)
model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
sequences, labels = normal(32, 50, 64), random_labels(10, 32)

def step():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(sequences), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss
"""
PACKED = """
lengths = torch.arange(50, 18, -1)
sequences = nn.utils.rnn.pack_padded_sequence(sequences, lengths, batch_first=True)
"""

# A single layer over 50 steps, with sizes of character models, sentiment analysis and forecasts.
FEW_UNITS = """
torch.manual_seed(0)
model = nn.%s(%d, %d)
sequences = normal(50, %d, %d)

def step():
    model.zero_grad()
    loss = model(sequences)[0].square().mean()
    loss.backward()
    return loss

@torch.no_grad()
def infer():
    return model(sequences)[0]
"""


@dataclass(frozen=True)
class Best:
    """A faster way to run a row in PyTorch: code in addition to, or in place of, the common program."""

    name: str
    setup: str = ""
    statement: str | None = None


def best(**ways: str) -> tuple[Best, ...]:
    return tuple(
        Best(name.replace("_and_", " and ").replace("_", " "), setup) for name, setup in ways.items()
    )


FUSED = """
optimizer = type(optimizer)(
    model.parameters(), fused=True,
    **{k: v for k, v in optimizer.defaults.items() if k in ("lr", "momentum", "betas", "weight_decay")})
"""
COMPILED = "\nmodel = torch.compile(model)\n"
FROZEN = """
with torch.no_grad():
    model = torch.jit.optimize_for_inference(torch.jit.freeze(torch.jit.trace(model.eval(), images)))
"""
INFERENCE_MODE = """
@torch.inference_mode()
def infer():
    return model(images)
"""
TRAINING = best(fused=FUSED, fused_and_compile=FUSED + COMPILED)
TRAINING_IMAGES = best(
    fused=FUSED,
    fused_and_channels_last=FUSED + CHANNELS_LAST,
    fused_and_compile=FUSED + COMPILED,
    fused_and_channels_last_and_compile=FUSED + CHANNELS_LAST + COMPILED,
)
ANSWERS = best(
    inference_mode=INFERENCE_MODE, frozen=INFERENCE_MODE + FROZEN, compile=INFERENCE_MODE + COMPILED
)
ANSWERS_IMAGES = ANSWERS + best(
    channels_last=INFERENCE_MODE + CHANNELS_LAST,
    channels_last_and_frozen=INFERENCE_MODE + CHANNELS_LAST + FROZEN,
    channels_last_and_compile=INFERENCE_MODE + CHANNELS_LAST + COMPILED,
)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    A warm row times `statement` in a running process after `setup`; a cold row times its first run,
    together with `setup`, in a fresh process. In between, untimed, the weights of a `model` are drawn
    equal. `check` is a number, or a list of numbers, on which both libraries must agree.
    """

    name: str
    statement: str
    setup: str = ""
    peer_setup: str | None = None  # PyTorch's program, if it differs
    best: tuple[Best, ...] = ()  # further programs of PyTorch, the fastest of which is measured too
    check: str | None = None
    fresh: bool = False  # the check runs before the statement
    tolerance: float = 1e-3  # of `check`: for each number, relative to the largest
    cold: bool = False
    # The kernel cache of a cold row: "own" (the shipped and the user's), "shipped" (only that), "empty"
    # (none at all), "filled" (by the previous run, without shipped kernels).
    cache: str = "own"
    imports: bool = False  # a cold row: times the import, followed by `statement`
    prepared: bool = False  # a cold row: does not time `setup`
    memory_steps: int = (
        0  # a cold row: not timed; measures the growth of the process during this many runs after `setup`
    )
    reach: float | None = None  # of this row only; by default its group's
    reach_seconds: float | None = None  # a bound on Facula's own time
    own: str | None = None  # an earlier row of the group, relative to whose Facula time the reach is meant
    unit: str | None = None  # by default the group's


@dataclass(frozen=True)
class Group:
    name: str
    title: str
    rows: list[Row]
    threads: int
    unit: str
    reach: float | None = None  # of each row, and of their geometric mean, which is what the project promises
    mean: float | None = None  # of the geometric mean, if that differs
    note: str = ""
    processes: int = 1  # processes of each library, in turn: physical pages do not move during a process
    neighbours: int = 0  # processes of others that compute at the same time


def compiled(statement: str) -> tuple[Best, ...]:
    return (Best("compile", f"\n@torch.compile\ndef _compiled():\n    return {statement}\n", "_compiled()"),)


def overhead(name: str, statement: str, setup: str = "", check: str | None = None) -> Row:
    ways = (Best("inference mode", "\ntorch.inference_mode().__enter__()\n"),) * ("grad" not in setup)
    return Row(name, statement, "a, b = normal(8, 8), normal(8, 8, seed=1)\n" + setup, best=ways, check=check)


def kernel(
    name: str,
    statement: str,
    setup: str = "",
    check: str | None = None,
    reach: float | None = None,
    ways: tuple[Best, ...] | None = None,
) -> Row:
    setup = "x, y = normal(1024, 1024), normal(1024, 1024, seed=1)\n" + setup
    ways = compiled(statement) if ways is None else ways
    return Row(name, statement, setup, best=ways, check=check or f"summary({statement})", reach=reach)


def once(name: str, statement: str, setup: str, check: str | None = None, reach: float | None = None) -> Row:
    """A call that was slow once, or might be."""
    return Row(name, statement, setup, check=check or f"summary({statement})", reach=reach)


def gradient(call: str, *inputs: str) -> str:
    """Returns a program with `gradients()` of `call` for `inputs`, from an existing output gradient."""
    names = ", ".join(inputs)
    return (
        "".join(f"{x} = {x}.requires_grad_()\n" for x in inputs)
        + f"out = {call}\ng = normal(*out.shape, seed=9).to(out.dtype)\n"
        + f"def gradients():\n    return torch.autograd.grad(out, ({names},), g, retain_graph=True)\n"
    )


LAYER_NORM = """
w, b = normal(1024, seed=2) * 0.1 + 1, normal(1024, seed=3)
""" + gradient("F.layer_norm(x, (1024,), w, b)", "x", "w", "b")

# Ten layers of a small transformer: matrices and biases, 10.5 M numbers in total.
ADAMW = """
parameters = [nn.Parameter(normal(*shape)) for shape in [(1024, 1024), (1024,)] * 10]
for p in parameters:
    p.grad = normal(*p.shape, seed=1) * 0.01
optimizer = torch.optim.AdamW(parameters, lr=1e-3)
"""

# Steps until the peak, which is the second: gradients and the optimizer's state exist then.
MEMORY_STEPS = 5


def training(name: str, program: str, ways: tuple[Best, ...] = TRAINING, **more) -> Row:
    return Row(name, "step()", program, best=ways, check="losses()", fresh=True, **more)


def traced(name: str, program: str, reach: float) -> list[Row]:
    """A step without and with tracing, relative to its own time."""
    return [
        training(name, program, ()),
        training(f"{name}, traced", program + TRACED, (), reach=reach, own=name),
    ]


def small_recurrent_layer(kind: str, units: int, batch: int) -> list[Row]:
    """A recurrent layer, its training step and its inference."""
    program = FEW_UNITS % (kind, units, units, batch, units)
    name = f"{kind} of {units}, batch {batch}"
    return [
        Row(f"{name}, training", "step()", program, check="summary(infer())"),
        Row(f"{name}, inference", "infer()", program, check="summary(infer())"),
    ]


def inference(name: str, program: str, ways: tuple[Best, ...] = ANSWERS, **more) -> Row:
    return Row(name, "infer()", program + INFERENCE, best=ways, check="summary(infer())", **more)


def memory(name: str, program: str) -> list[Row]:
    return [
        Row(
            f"{name}, {cache} kernel cache",
            "step()",
            program,
            cold=True,
            cache=cache,
            memory_steps=MEMORY_STEPS,
            best=best(fused=FUSED),
        )
        for cache in ("empty", "filled")
    ]


# Rows that are shorter than a vector, and calls that once took several times PyTorch's time.
SHORT_ROWS = [
    once(f"{call} of {rows} rows of {n}", f"x.{call}", f"x = normal({rows}, {n})", check)
    for rows, n in ((100000, 8), (65536, 16))
    for call, check in (
        ("sum(-1)", None),
        ("amax(-1)", None),
        ("argmax(-1)", None),
        ("var(-1)", None),
        ("softmax(-1)", None),
        ("log_softmax(-1)", None),
        ("logsumexp(-1)", None),
        ("cumsum(-1)", None),
    )
] + [
    once(f"layer_norm of {rows} rows of {n}", f"F.layer_norm(x, ({n},))", f"x = normal({rows}, {n})")
    for rows, n in ((100000, 8), (65536, 16))
]
# Images of 28x28, decoded and normalised one by one, in batches of 64; an epoch of 4096.
LOADER = """
import zlib
import numpy
DataLoader, Dataset = torch.utils.data.DataLoader, torch.utils.data.Dataset

images = [
    zlib.compress(generator(k).randint(0, 255, (28, 28)).astype("uint8").tobytes()) for k in range(256)
]

class Images(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, k):
        pixels = numpy.frombuffer(bytearray(zlib.decompress(images[k & 255])), numpy.uint8).reshape(1, 28, 28)
        return torch.from_numpy(pixels).float().div_(255).sub_(0.286).div_(0.353), k & 7

loader = DataLoader(Images(), batch_size=64, num_workers=%d, persistent_workers=%s)

def epoch():
    total = 0.0
    for x, y in loader:
        total += float(x[0, 0, 0, 0]) + float(y[0])
    return total
"""


SLOW_ONCE = [
    once(
        f"max_pool2d {kernel} by {stride}, NCHW {dtype}, backward",
        "gradients()",
        f"x = normal(16, 64, 56, 56).to(torch.{dtype})\n"
        + gradient(f"F.max_pool2d(x, {kernel}, {stride}, {padding})", "x"),
        "summary(*gradients())",
    )
    for dtype in ("float32", "bfloat16")
    for kernel, stride, padding in ((3, 2, 1), (3, 1, 1), (2, 2, 0))
] + [
    once(
        "avg_pool2d 3 by 2, NCHW, backward",
        "gradients()",
        "x = normal(16, 64, 56, 56)\n" + gradient("F.avg_pool2d(x, 3, 2, 1)", "x"),
        "summary(*gradients())",
    ),
    once("avg_pool2d 7 by 7, NCHW", "F.avg_pool2d(x, 7)", "x = normal(16, 512, 7, 7)"),
    once(
        "select, backward, rows of 16",
        "gradients()",
        "x = normal(4096, 8, 16)\n" + gradient("x.select(1, 3)", "x"),
        "summary(*gradients())",
    ),
    once(
        "mean of 8x8, backward",
        "x.grad = None; x.mean().backward()",
        "x = normal(8, 8).requires_grad_()\nx.mean().backward()",
        "summary(x.grad)",
    ),
    once("randperm(1000000)", "torch.randperm(1000000)", "", "torch.randperm(1000000).sum() / 1e9"),
    once("randperm(10000)", "torch.randperm(10000)", "", "torch.randperm(10000).sum()"),
    once(
        "bfloat16 matrix by vector, 1024x1024",
        "x @ y",
        "x, y = normal(1024, 1024).bfloat16(), normal(1024, seed=1).bfloat16()",
        "(x @ y).float().abs().mean()",
    ),
    once(
        "bfloat16 vector by matrix, 1024x1024",
        "y @ x",
        "x, y = normal(1024, 1024).bfloat16(), normal(1024, seed=1).bfloat16()",
        "(y @ x).float().abs().mean()",
    ),
    *(
        once(f"sum(0) of {rows} rows of {n}", "x.sum(0)", f"x = normal({rows}, {n})")
        for rows, n in ((100000, 5), (100000, 6), (100000, 8), (30000, 32))
    ),
    once(
        "complex64 to a complex power, 1M",
        "z**w",
        "z, w = (torch.view_as_complex(normal(1024, 1024, 2, seed=n)) for n in range(2))",
        "(z**w).abs().log().mean()",
    ),
    *(
        once(
            f"erfinv, 1M {dtype}",
            "torch.erfinv(x)",
            f"x = (torch.tanh(normal(1024, 1024)) * 0.99).to(torch.{dtype})",
        )
        for dtype in ("float32", "float64")
    ),
    once(
        "unfold of complex64",
        "z.unfold(1, 8, 4).contiguous()",
        "z = torch.view_as_complex(normal(1024, 1024, 2))",
        "z.unfold(1, 8, 4).contiguous().abs().mean()",
    ),
]


# Well-conditioned, so that results are determined.
MATRIX = "x = normal(512, 512) + 40 * torch.eye(512)\ns = x + x.T\ny = normal(512, 512, seed=1)"
DECOMPOSITIONS = {  # statement, check
    "svd": ("torch.linalg.svd(x)", "summary(torch.linalg.svdvals(x))"),
    "eigh": ("torch.linalg.eigh(s)", "summary(torch.linalg.eigvalsh(s))"),
    "solve": ("torch.linalg.solve(x, y)", "summary(torch.linalg.solve(x, y))"),
}
# Batches of small matrices of a dtype: general ones (x), Hermitian ones that are definite (s) or not (h),
# taller ones (t), right-hand sides (y, for t: b), and their factors.
MATRICES = """
def matrices(m, n, seed):
    x = normal(100000, m, n, seed=seed).to(torch.{dtype})
    return x + 1j * normal(100000, m, n, seed=seed + 20) if x.is_complex() else x

x, y, t, b = matrices(4, 4, 0) + 6 * torch.eye(4), matrices(4, 4, 1), matrices(6, 4, 2), matrices(6, 1, 3)
s, h = x @ x.mH, y + y.mH
l, triangle = torch.linalg.cholesky(s), x.triu()
lu, pivots = torch.linalg.lu_factor(x)
ld, blocks = torch.linalg.ldl_factor(h)
reflections, factors = torch.geqrf(x)
"""


@dataclass(frozen=True)
class OfMatrices:
    """A call with batches of small matrices; `check` replaces it where signs or the order are arbitrary."""

    call: str
    check: str | None = None
    of: str = ""  # the operands whose gradients are computed


OF_MATRICES = {
    "det": OfMatrices("linalg.det(x)", "linalg.det(x) / 1296", of="x"),
    "slogdet": OfMatrices("linalg.slogdet(x)", "linalg.slogdet(x)[1]", of="x"),
    "logdet": OfMatrices("logdet(s)", of="s"),
    "inv": OfMatrices("linalg.inv(x)", of="x"),
    "inv_ex": OfMatrices("linalg.inv_ex(x)", "linalg.inv_ex(x)[0]", of="x"),
    "tensorinv": OfMatrices("linalg.tensorinv(x[:1].squeeze(0), 1)"),
    "solve": OfMatrices("linalg.solve(x, y)", of="x y"),
    "solve, vectors": OfMatrices("linalg.solve(x, y[..., 0])", of="x y"),
    "solve_ex": OfMatrices("linalg.solve_ex(x, y)", "linalg.solve_ex(x, y)[0]", of="x y"),
    "tensorsolve": OfMatrices("linalg.tensorsolve(x[0], y[0, 0])"),
    "solve_triangular": OfMatrices("linalg.solve_triangular(triangle, y, upper=True)", of="triangle y"),
    "triangular_solve": OfMatrices("triangular_solve(y, triangle)", "triangular_solve(y, triangle)[0]"),
    "lu": OfMatrices("linalg.lu(x)", "linalg.lu(x)[2]", of="x"),
    "lu_factor": OfMatrices("linalg.lu_factor(x)", "linalg.lu_factor(x)[0]", of="x"),
    "lu_factor_ex": OfMatrices("linalg.lu_factor_ex(x)", "linalg.lu_factor_ex(x)[0]"),
    "lu_unpack": OfMatrices("lu_unpack(lu, pivots)", "lu_unpack(lu, pivots)[2]"),
    "lu_solve": OfMatrices("linalg.lu_solve(lu, pivots, y)", of="lu y"),
    "lu_solve, adjoint": OfMatrices("linalg.lu_solve(lu, pivots, y, adjoint=True)"),
    "cholesky": OfMatrices("linalg.cholesky(s)", of="s"),
    "cholesky_ex": OfMatrices("linalg.cholesky_ex(s)", "linalg.cholesky_ex(s)[0]"),
    "cholesky_inverse": OfMatrices("cholesky_inverse(l)", of="l"),
    "cholesky_solve": OfMatrices("cholesky_solve(y, l)", of="y l"),
    "ldl_factor": OfMatrices("linalg.ldl_factor(h)", "linalg.ldl_factor(h)[0]"),
    "ldl_factor_ex": OfMatrices("linalg.ldl_factor_ex(h)", "linalg.ldl_factor_ex(h)[0]"),
    "ldl_solve": OfMatrices("linalg.ldl_solve(ld, blocks, y)"),
    "qr": OfMatrices("linalg.qr(x)", "linalg.qr(x)[1].abs()", of="x"),
    "geqrf": OfMatrices("geqrf(x)", "geqrf(x)[1].abs()"),
    "householder_product": OfMatrices(
        "linalg.householder_product(reflections, factors)", of="reflections factors"
    ),
    "ormqr": OfMatrices("ormqr(reflections, factors, y)"),
    "ormqr, transposed": OfMatrices("ormqr(reflections, factors, y, left=False, transpose=True)"),
    "eigh": OfMatrices("linalg.eigh(s)", "linalg.eigh(s)[0]", of="s"),
    "eigvalsh": OfMatrices("linalg.eigvalsh(s)", of="s"),
    "eig": OfMatrices("linalg.eig(y)", "linalg.eig(y)[0].abs().sum(-1)", of="y"),
    "eigvals": OfMatrices("linalg.eigvals(y)", "linalg.eigvals(y).abs().sum(-1)", of="y"),
    "svd": OfMatrices("linalg.svd(x)", "linalg.svd(x)[1]", of="x"),
    "svd, reduced": OfMatrices("linalg.svd(t, full_matrices=False)", "linalg.svd(t)[1]"),
    "svdvals": OfMatrices("linalg.svdvals(x)", of="x"),
    "svdvals, 6x4": OfMatrices("linalg.svdvals(t)"),
    "matrix_norm, 2": OfMatrices("linalg.matrix_norm(x, 2)", of="x"),
    "matrix_norm, nuc": OfMatrices("linalg.matrix_norm(x, 'nuc')", of="x"),
    "matrix_norm, fro": OfMatrices("linalg.matrix_norm(x)", of="x"),
    "matrix_norm, 1": OfMatrices("linalg.matrix_norm(x, 1)", of="x"),
    "vector_norm": OfMatrices("linalg.vector_norm(x, dim=-1)", of="x"),
    "cond": OfMatrices("linalg.cond(x)", of="x"),
    "cond, 1": OfMatrices("linalg.cond(x, 1)"),
    "matrix_rank": OfMatrices("linalg.matrix_rank(x)"),
    "matrix_rank, hermitian": OfMatrices("linalg.matrix_rank(s, hermitian=True)"),
    "pinv": OfMatrices("linalg.pinv(x)", of="x"),
    "pinv, hermitian": OfMatrices("linalg.pinv(s, hermitian=True)"),
    "pinv, 6x4": OfMatrices("linalg.pinv(t)"),
    "lstsq": OfMatrices("linalg.lstsq(x, y)", "linalg.lstsq(x, y)[0]", of="x y"),
    "lstsq, 6x4": OfMatrices("linalg.lstsq(t, b)", "linalg.lstsq(t, b)[0]"),
    "lstsq, gels": OfMatrices("linalg.lstsq(t, b, driver='gels')", "linalg.lstsq(t, b, driver='gels')[0]"),
    "lstsq, gelsd": OfMatrices("linalg.lstsq(t, b, driver='gelsd')", "linalg.lstsq(t, b, driver='gelsd')[0]"),
    "lstsq, gelss": OfMatrices("linalg.lstsq(t, b, driver='gelss')", "linalg.lstsq(t, b, driver='gelss')[0]"),
    "matrix_power, 3": OfMatrices("linalg.matrix_power(x, 3)", of="x"),
    "matrix_power, 10": OfMatrices("linalg.matrix_power(y, 10)", of="y"),
    "matrix_power, -2": OfMatrices("linalg.matrix_power(x, -2)"),
    "matrix_exp": OfMatrices("linalg.matrix_exp(y)", of="y"),
    "multi_dot": OfMatrices("linalg.multi_dot([x[:, 0], x[0], y[0], y[1]])", of="x y"),
    "matmul": OfMatrices("linalg.matmul(x, y)", of="x y"),
    "matmul, transposed": OfMatrices("linalg.matmul(x.mT, y.mT)", of="x y"),
    "matmul, vectors": OfMatrices("matmul(x, y[..., :1])", of="x y"),
    "cross": OfMatrices("linalg.cross(x[..., :3], y[..., :3])", of="x y"),
    "vecdot": OfMatrices("linalg.vecdot(x, y)", of="x y"),
    "vander": OfMatrices("linalg.vander(x[:, 0])"),
    "diagonal": OfMatrices("linalg.diagonal(x).clone()", of="x"),
}
ALGEBRA = [
    once(f"{name}, 512x512", statement, MATRIX, check, 1.0)
    for name, (statement, check) in DECOMPOSITIONS.items()
] + [
    once(
        f"{name}, 100,000 of 4x4",
        f"torch.{c.call}",
        MATRICES.format(dtype="float32"),
        f"summary(torch.{c.check or c.call})",
        0.3,
    )
    for name, c in OF_MATRICES.items()
]
TRANSFORMS = [
    once(name, statement, setup, f"summary({statement}.abs())", 0.9)
    for name, statement, setup in (
        ("fft2 of 1024x1024", "torch.fft.fft2(z)", "z = torch.view_as_complex(normal(1024, 1024, 2))"),
        ("fft of 1024 rows of 1024", "torch.fft.fft(z)", "z = torch.view_as_complex(normal(1024, 1024, 2))"),
        ("rfft2 of 1024x1024", "torch.fft.rfft2(x)", "x = normal(1024, 1024)"),
        ("fft of 1,000,003", "torch.fft.fft(z)", "z = torch.view_as_complex(normal(1000003, 2))"),
        ("fft of 1009 rows of 1009", "torch.fft.fft(z)", "z = torch.view_as_complex(normal(1009, 1009, 2))"),
    )
]
MILLION = "x, i, n = normal(1 << 20), random_labels(1 << 20, 1 << 20), random_labels(1000, 1 << 20, seed=2)\n"
ORDER = [
    once(name, statement, MILLION + setup, f"summary({statement} * 1.0)", 0.8)
    for name, statement, setup in (
        ("sort", "x.sort()[0]", ""),
        ("sort of rows of 64", "y.sort(-1)[0]", "y = x.view(-1, 64)"),
        ("argsort of integers", "i.argsort()", ""),
        ("unique of integers", "n.unique()", ""),
        ("unique of 2^20", "torch.unique(i)", ""),
        ("topk of 100", "x.topk(100)[0]", ""),
        ("topk of 5, rows of 1024", "y.topk(5)[0]", "y = x.view(-1, 1024)"),
        ("searchsorted", "torch.searchsorted(y, x)", "y = normal(10000, seed=3).sort()[0]"),
        ("scatter_add", "torch.zeros(1 << 20).scatter_add(0, i, x)", ""),
        (
            "scatter_add, rows",
            "torch.zeros(1024, 1024).scatter_add(1, j, y)",
            "y, j = x.view(1024, 1024), i.view(1024, 1024) & 1023",
        ),
        ("index_add", "torch.zeros(1000, 64).index_add(0, n[:16384], y)", "y = x.view(-1, 64)"),
        ("cumsum", "x.cumsum(0)", ""),
        ("cumsum of rows", "y.cumsum(-1)", "y = x.view(1024, 1024)"),
        ("bincount", "torch.bincount(n)", ""),
        ("bincount, weights", "torch.bincount(n, x)", ""),
    )
]
FOREACH = [
    once(
        name,
        statement,
        "a, b = ([normal(8, 8, seed=k) for k in range(j, j + 200)] for j in (0, 200))\n",
        check,
        0.3,
    )
    for name, statement, check in (
        ("add", "torch._foreach_add(a, b)", "summary(*torch._foreach_add(a, b))"),
        ("mul by a number", "torch._foreach_mul(a, 2.0)", "summary(*torch._foreach_mul(a, 2.0))"),
        ("addcmul", "torch._foreach_addcmul(a, b, b)", "summary(*torch._foreach_addcmul(a, b, b))"),
        (
            "sqrt of abs",
            "torch._foreach_sqrt(torch._foreach_abs(a))",
            "summary(*torch._foreach_sqrt(torch._foreach_abs(a)))",
        ),
        ("norm", "torch._foreach_norm(a)", "summary(*torch._foreach_norm(a))"),
        ("lerp_", "torch._foreach_lerp_(a, b, 0.0)", "summary(*a)"),
    )
]

GROUPS = [
    Group(
        "overhead",
        "Calls from Python (8x8 float32)",
        threads=1,
        unit="ns",
        reach=0.4,
        mean=0.17,
        rows=[
            overhead("a + b", "a + b", check="(a + b).sum()"),
            overhead("a * 2", "a * 2.0", check="(a * 2.0).sum()"),
            overhead("a.view(64)", "a.view(64)", check="a.view(64)[9]"),
            overhead("a[1:3]", "a[1:3]", check="a[1:3].sum()"),
            overhead("a.sum()", "a.sum()", check="a.sum()"),
            overhead("a @ b", "a @ b", check="(a @ b).abs().sum()"),
            overhead(
                "nn.Linear(8, 8)(a)",
                "m(a)",
                "m = nn.Linear(8, 8)\nequalize(m)",
                check="m(a).abs().sum()",
            ),
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
            kernel("add", "x + y"),
            kernel("exp", "torch.exp(x)"),
            kernel("tanh", "torch.tanh(x)"),
            kernel("gelu", "F.gelu(x)"),
            kernel("sigmoid", "torch.sigmoid(x)"),
            kernel("sum", "x.sum()", check="x.abs().sum() + x.sum()"),
            kernel("sum(0)", "x.sum(0)"),
            kernel("softmax", "F.softmax(x, -1)", reach=0.6),
            kernel(
                "layer_norm forward",
                "F.layer_norm(x, (1024,), w, b)",
                "w, b = normal(1024, seed=2) * 0.1 + 1, normal(1024, seed=3)",
                reach=0.6,
            ),
            kernel(
                "layer_norm backward", "gradients()", LAYER_NORM, "summary(*gradients())", reach=0.6, ways=()
            ),
            Row(
                "cross_entropy forward and backward, 8192x1000",
                "torch.autograd.grad(F.cross_entropy(x, t), x)",
                "x, t = normal(8192, 1000).requires_grad_(), random_labels(1000, 8192)",
                best=(
                    Best(
                        "compile",
                        "\nentropy = torch.compile(F.cross_entropy)\n",
                        "torch.autograd.grad(entropy(x, t), x)",
                    ),
                ),
                check="summary(*torch.autograd.grad(F.cross_entropy(x, t), x))",
                reach=0.6,
            ),
            kernel("transpose copy", "x.t().contiguous()", reach=0.6),
            kernel("cumsum", "x.cumsum(-1)"),
            kernel("sort rows", "x.sort(-1)", check="summary(x.sort(-1)[0])", ways=()),
            Row(
                "AdamW step, 10 M parameters",
                "optimizer.step()",
                ADAMW,
                best=(
                    Best("fused", "\noptimizer = torch.optim.AdamW(parameters, lr=1e-3, fused=True)\n"),
                    Best("compile", "\nupdate = torch.compile(optimizer.step)\n", "update()"),
                ),
                check="summary(*parameters)",
                reach=0.6,
            ),
        ],
    ),
    Group(
        "slow calls, once",
        "Calls that were slow once",
        threads=2,
        unit="us",
        reach=1.0,
        rows=SLOW_ONCE + SHORT_ROWS,
    ),
    Group("linear algebra", "Linear algebra (float32)", threads=2, unit="ms", rows=ALGEBRA),
    Group("fft", "Fourier transforms (float32)", threads=2, unit="ms", rows=TRANSFORMS),
    Group("order", "Order and counting (2^20 elements)", threads=2, unit="us", rows=ORDER),
    Group("foreach", "Lists of 200 tensors of 8x8", threads=2, unit="us", rows=FOREACH),
    Group(
        "attention",
        "scaled_dot_product_attention, 1x25x1024x64, forward and backward",
        threads=2,
        unit="ms",
        reach=1.0,
        rows=[
            Row("full", "gradients(False)", ATTENTION, check="summary(*gradients(False))"),
            Row("causal", "gradients(True)", ATTENTION, check="summary(*gradients(True))", reach=0.9),
        ],
    ),
    Group(
        "recurrent",
        "Training of recurrent layers, batch 32 of 50 steps of 64 numbers",
        threads=2,
        unit="ms",
        reach=0.6,
        rows=[
            training("LSTM of 256", RECURRENT % "LSTM(64, 256, batch_first=True)", ()),
            training(
                "LSTM of 2x128, two layers, both directions",
                RECURRENT % "LSTM(64, 128, num_layers=2, batch_first=True, bidirectional=True)",
                (),
            ),
            training("LSTM of 256, packed", RECURRENT % "LSTM(64, 256, batch_first=True)" + PACKED, ()),
            training("GRU of 256", RECURRENT % "GRU(64, 256, batch_first=True)", ()),
        ],
    ),
    Group(
        "few units",
        "Recurrent layers of few units, 50 steps",
        threads=2,
        unit="us",
        reach=0.6,
        rows=[
            row
            for kind in ("LSTM", "GRU", "RNN")
            for units, batch in ((32, 1), (32, 8), (64, 8), (64, 32))
            for row in small_recurrent_layer(kind, units, batch)
        ],
    ),
    Group(
        "training",
        "Training",
        threads=2,
        unit="ms",
        reach=1.0,
        rows=[
            training("MLP step, batch 64", MLP, reach=0.7),
            training("CNN step, batch 64", CNN, TRAINING_IMAGES, reach=0.5),
            training("ResNet-18 step, batch 4 at 224x224", RESNET18, TRAINING_IMAGES, reach=0.8),
            training(
                "ResNet-18 step, bfloat16 autocast, by float32",
                RESNET18_BFLOAT16,
                ways=(),
                peer_setup=RESNET18,
                reach=0.35,
                tolerance=3e-2,
            ),
            training(
                "ResNet-18 step, bfloat16 autocast, by channels_last and autocast",
                RESNET18_BFLOAT16,
                best(fused=FUSED, fused_and_compile=FUSED + COMPILED),
                peer_setup=RESNET18_BFLOAT16 + CHANNELS_LAST,
                reach=0.85,
                tolerance=3e-2,
            ),
            training("GPT 4x128 step, batch 8x128", GPT, reach=0.8),
            training(
                "GPT 4x128 step, batch 8x128, bfloat16 autocast",
                GPT_BFLOAT16,
                reach=0.7,
                own="GPT 4x128 step, batch 8x128",
                tolerance=3e-2,
            ),
            training("DenseNet step, batch 16 at 32x32", DENSENET, TRAINING_IMAGES),
            training("U-Net step, batch 4 at 96x96", UNET, TRAINING_IMAGES),
        ],
    ),
    Group(
        "programs",
        "Training steps as programs, by Facula's own eager step",
        threads=2,
        unit="ms",
        rows=[
            *traced("MLP step, batch 64", MLP, 0.6),
            *traced("CNN step, batch 64", CNN, 0.95),
            *traced("ResNet-18 step, batch 4 at 224x224", RESNET18, 0.95),
            *traced("GPT 4x128 step, batch 8x128", GPT, 0.95),
        ],
    ),
    Group(
        "busy",
        "Training beside a process that computes",
        threads=2,
        unit="ms",
        neighbours=1,
        rows=[
            training("MLP step, batch 64", MLP, ()),
            training("CNN step, batch 64", CNN, ()),
            training("GPT 4x128 step, batch 8x128", GPT, ()),
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
            inference("MLP, batch 64", MLP, reach=0.8),
            inference("CNN, batch 64", CNN, ANSWERS_IMAGES, reach=0.4),
            inference("ResNet-18, batch 4 at 224x224", RESNET18, ANSWERS_IMAGES, reach=0.8),
            inference("GPT 4x128, batch 8x128", GPT, reach=0.9),
            inference("DenseNet, batch 16 at 32x32", DENSENET, ANSWERS_IMAGES, reach=0.7),
            inference("U-Net, batch 4 at 96x96", UNET, ANSWERS_IMAGES, reach=0.7),
        ],
    ),
    Group(
        "start",
        "Start of a process",
        threads=2,
        unit="s",
        rows=[
            Row("import", "", cold=True, imports=True, reach=0.15),
            Row("import and first operator", "torch.ones(8) + 1", cold=True, imports=True, reach=0.15),
            Row(
                "first CNN step, empty kernel cache",
                "step().item()",
                CNN,
                check="losses(1)",
                tolerance=1e-2,
                cold=True,
                cache="empty",
                reach_seconds=3.0,
            ),
            Row(
                "first CNN step, filled kernel cache",
                "step().item()",
                CNN,
                check="losses(1)",
                tolerance=1e-2,
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
                    check="losses(1)",
                    tolerance=1e-2,
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
        "data",
        "DataLoader, an epoch of 4096 images of 28x28, decoded and normalised",
        threads=2,
        unit="ms",
        reach=0.67,
        rows=[
            Row(f"{workers} workers", "epoch()", LOADER % (workers, workers > 0), check="epoch()")
            for workers in (2, 0)
        ],
        note="Times of whole epochs: with 4096 / t images a second, 0.67 is 1.5 times as many.",
    ),
    Group(
        "memory",
        "Memory",
        threads=2,
        unit="MiB",
        reach=0.8,
        rows=memory("CNN training, batch 64", CNN) + memory("GPT 4x128 training, batch 8x128", GPT),
        note=f"By how much {MEMORY_STEPS} steps make a fresh process larger at the peak: its resident set "
        "beyond what it had after the import and the making of network, optimizer and data.",
    ),
]
