"""Plans that a process finds on the disk are those that it would have made: to the bit, whatever else is in
the folder; and what is damaged or incomplete is as if it were not there.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys

import pytest

PRELUDE = """
import hashlib, sys
import facula as torch
from facula.nn import functional as F

torch.manual_seed(0)
digest = hashlib.sha256()

def show(*tensors):
    for t in tensors:
        digest.update(repr((t.dtype, tuple(t.shape), t.detach().reshape(-1).tolist())).encode())

def gradients(f, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    y = f(*inputs)
    y.sum().backward()
    show(y, *[x.grad for x in inputs])
"""

MODEL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.norm, self.fc = torch.nn.LayerNorm(8), torch.nn.Linear(8, 5)
        self.table = torch.nn.Embedding(7, 8)

    def forward(self, x, i):
        y = F.dropout(F.gelu(self.bn(self.conv(x))), 0.25).mean((2, 3))
        a = F.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None])[0, 0]
        return self.fc(self.norm(y + a + self.table(i)))

net = Net()
x, i, target = torch.randn(6, 3, 8, 8), torch.arange(6), torch.tensor([0, 1, -100, 3, 4, 0])
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    loss = F.cross_entropy(net(x, i), target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    show(loss)
show(*net.parameters())
v = torch.randn(4, 6)
gradients(lambda a: a.transpose(0, 1).cumsum(0).softmax(1), v)
gradients(lambda a, b: torch.cat([a * 2.5, b], 1).amax(1) ** 2, v, v + 1)
w = torch.zeros(4, 6)
torch.add(v, v, out=w)
w[:, 1:].mul_(3).add_(w[:, :-1])
show(w, v.to(torch.bfloat16).exp(), (v * 10).int() // 3, torch.empty(0, 6).sum(0), v[v > 0])
"""


def run(folder, program, **environment):
    env = dict(os.environ, FACULA_LOG="cache", **environment)
    if folder:
        env["FACULA_CACHE_DIR"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program + "\nprint(digest.hexdigest())"],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = {what: len(re.findall(f"cache: {what} plan", done.stderr)) for what in ("hit", "miss")}
    for what in ("hit", "miss"):
        found[f"graph {what}"] = len(re.findall(f"cache: {what} graph", done.stderr))
    found["nests"] = len(re.findall("cache: hit nests", done.stderr))
    return done.stdout, found


def plans_in(folder):
    return sorted(folder.glob("*.plan"))


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """A folder that a process has filled, and what it computed."""
    folder = tmp_path_factory.mktemp("kernels")
    folder.chmod(0o700)
    shown, found = run(folder, MODEL)
    assert found["miss"] >= 40 and plans_in(folder)
    return folder, shown


def test_the_next_process_makes_no_plan_and_computes_the_same_bits(filled):
    folder, shown = filled
    made, none = run(folder, MODEL, FACULA_VERIFY="1")  # which looks at every plan as it is made
    assert not any(none.values())
    assert made == shown
    again, found = run(folder, MODEL)
    assert again == shown
    assert found["hit"] >= 40
    assert found["miss"] <= found["hit"] // 20


def damaged(data, k):
    middle = len(data) // 2
    kinds = (b"", data[:middle], data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :], data + b"\0")
    return kinds[k % len(kinds)]


def test_damaged_plans_are_ignored_and_replaced(filled):
    folder, shown = filled
    for k, path in enumerate(plans_in(folder)):
        path.write_bytes(damaged(path.read_bytes(), k))
    again, found = run(folder, MODEL)
    assert again == shown and found["hit"] <= found["miss"] // 10
    assert run(folder, MODEL)[1]["hit"] >= 40


def test_plans_of_others_are_ignored(filled):
    """A plan that stands in another one's place, whole as it is."""
    folder, shown = filled
    paths = plans_in(folder)
    contents = [p.read_bytes() for p in paths]
    for path, other in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(other)
    assert run(folder, MODEL)[0] == shown


def test_plans_without_their_kernels_are_made_again(filled):
    folder, shown = filled
    for path in folder.glob("*.o"):
        path.unlink()
    assert run(folder, MODEL, FACULA_SHIPPED_CACHE="/nowhere")[0] == shown
    assert list(folder.glob("*.o"))


@pytest.fixture(scope="session")
def shipped(tmp_path_factory, filled):
    """A folder as it is shipped, of this program's kernels, and their index."""
    folder = tmp_path_factory.mktemp("shipped") / "kernels"
    record = "torch._C.record_kernels_to({!r})\n"
    shown, _ = run(
        None, record.format(str(folder)) + MODEL + record.format(""), FACULA_SHIPPED_CACHE="/nowhere"
    )
    assert shown == filled[1]
    (index,) = [p for p in folder.glob("*.o") if b"\x7fELF" not in p.read_bytes()]
    return folder, index


def test_nests_that_became_shipped_kernels_are_not_made(shipped, filled, tmp_path):
    tmp_path.chmod(0o700)
    none_compiled = "\nassert torch._C.cache_stats()['compiled'] == 0, torch._C.cache_stats()"
    shown, found = run(tmp_path, MODEL + none_compiled, FACULA_SHIPPED_CACHE=str(shipped[0]))
    assert shown == filled[1] and found["nests"] >= 40


@pytest.mark.parametrize("what", ["without kernels", *range(4)])
def test_an_index_of_nests_that_is_of_no_use_does_no_harm(shipped, filled, tmp_path, what):
    """Kernels are missing, or the index is damaged."""
    folder = shutil.copytree(shipped[0], tmp_path / "shipped")
    index = folder / shipped[1].name
    if what == "without kernels":
        for path in folder.glob("*.o"):
            if path != index:
                path.unlink()
    else:
        index.write_bytes(damaged(index.read_bytes(), what))
    shown, found = run(None, MODEL, FACULA_SHIPPED_CACHE=str(folder))
    assert shown == filled[1] and (found["nests"] > 0) == (what == "without kernels")


# ---- graphs of captured programs


def chapter(name, content):
    return (
        b"FACULAK2"
        + name
        + len(content).to_bytes(8, "little")
        + hashlib.sha256(name + content).digest()
        + content
    )


STEP = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv = torch.nn.LayerNorm(8), torch.nn.Linear(8, 24)
        self.conv, self.bn = torch.nn.Conv1d(8, 8, 3, padding=1), torch.nn.BatchNorm1d(8)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        y = F.dropout(F.scaled_dot_product_attention(q, k, v), 0.25)
        return x * SCALE + F.gelu(self.bn(self.conv(y.transpose(1, 2)))).transpose(1, 2)

net = torch.nn.Sequential(Block(), torch.nn.Linear(8, 5))
optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=DECAY)

@torch.compile
def step(x, target):
    optimizer.zero_grad()
    with torch.autocast("cpu", enabled=AUTOCAST):
        loss = F.cross_entropy(net(x).flatten(0, 1), target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    return loss

for n in SIZES:
    show(step(torch.randn(n, 6, 8), torch.arange(6 * n) % 5))
show(*net.parameters())
"""
# Programs that differ in nothing but a constant, an option, a mode or sizes.
VARIANTS = [
    {},
    {"SCALE": "3.0"},
    {"DECAY": "0.1"},
    {"AUTOCAST": "True"},
    {"SIZES": "(3, 4, 5, 3, 6)"},
    {"SIZES": "(4, 4)"},
]
STEPS = "\n".join(
    "".join(
        f"{k} = {v}\n"
        for k, v in (dict(SCALE=2.0, DECAY=0.0, AUTOCAST=False, SIZES=(5, 5)) | variant).items()
    )
    + STEP
    for variant in VARIANTS
)


def graphs_in(folder):
    return sorted(folder.glob("*.graph"))


@pytest.fixture(scope="session")
def captured(tmp_path_factory):
    """A folder that a process has filled, and what it computed."""
    folder = tmp_path_factory.mktemp("graphs")
    folder.chmod(0o700)
    shown, found = run(folder, STEPS)
    assert found["graph miss"] >= len(VARIANTS) and len(graphs_in(folder)) >= len(VARIANTS)
    return folder, shown


def test_captured_programs_are_not_traced_again(captured):
    folder, shown = captured
    assert run(None, STEPS, FACULA_VERIFY="1")[0] == shown
    again, found = run(folder, STEPS)
    assert again == shown
    assert found["graph hit"] >= len(VARIANTS) and not found["graph miss"]


def test_damaged_and_foreign_graphs_are_ignored_and_replaced(captured):
    folder, shown = captured
    paths = graphs_in(folder)
    contents = [path.read_bytes() for path in paths]
    for k, path in enumerate(paths):
        name, content = path.stem.encode(), contents[k][112:]
        replacements = [
            damaged(contents[k], k),
            contents[k - 1],
            chapter(name, content[:-8]),
            chapter(name, content + bytes(8)),
            chapter(name, b"\xff" * 800),
            chapter(name, b""),
        ]
        path.write_bytes(replacements[k % len(replacements)])
    again, found = run(folder, STEPS)
    assert again == shown and found["graph miss"] >= len(VARIANTS) and not found["graph hit"]
    assert not run(folder, STEPS)[1]["graph miss"]


# Pairs that differ in nothing but an attribute, a setting, a size or a layout.
CALLS = [
    ["gradients(lambda a: F.gelu(a), torch.randn(3, 4))"]
    + ["gradients(lambda a: F.gelu(a, approximate='tanh'), torch.randn(3, 4))"],
    [f"gradients(lambda a: F.leaky_relu(a, {s}), torch.randn(3, 4))" for s in (0.1, 0.2)],
    [f"gradients(lambda a: F.elu(a, {s}), torch.randn(3, 4))" for s in (1.0, 2.0)],
    [f"gradients(lambda a: F.layer_norm(a, (4,), eps={s}), torch.randn(3, 4))" for s in (1e-5, 0.5)],
    [f"gradients(lambda a: F.softmax(a, {d}), torch.randn(3, 3))" for d in (0, 1)],
    [f"gradients(lambda a: a.sum({d}) * 2, torch.randn(3, 3))" for d in (0, 1)],
    [f"gradients(lambda a: a.std(1, correction={c}), torch.randn(3, 3))" for c in (0, 1)],
    [f"gradients(lambda a: a[:, {k}:].exp(), torch.randn(3, 9))" for k in (1, 2)],
    [f"gradients(lambda a: F.avg_pool2d(a, {k}, {k}), torch.randn(1, 1, 8, 8))" for k in (2, 4)],
    [f"gradients(lambda a: a.cumsum(1), torch.randn({s}))" for s in ("4, 5", "5, 4", "4, 4", "1, 4")],
    [f"gradients(lambda a: a.log1p(), torch.rand(4, 4){s})" for s in ("", ".t()", "[::2]", "[:, ::2]")],
    [f"torch.set_default_dtype(torch.{d})\nshow(torch.tensor([1, 2]) / 2)" for d in ("float32", "float64")],
    [f"show(torch.arange(6).to(torch.{d}) / 4)" for d in ("int32", "int64", "bfloat16", "float64")],
    [
        f"a = torch.ones(4)\nshow(torch.add(a, a, out={o}))"
        for o in ("a", "torch.zeros(4)", "torch.zeros(8)[::2]")
    ],
    [
        f"gradients(lambda a: F.cross_entropy(a, torch.tensor([0, 1]), {o}), torch.randn(2, 3))"
        for o in ("ignore_index=0", "ignore_index=1", "label_smoothing=0.1", "reduction='sum'")
    ],
]


@pytest.mark.parametrize("calls", CALLS, ids=range(len(CALLS)))
def test_what_differs_has_a_plan_of_its_own(calls, tmp_path):
    tmp_path.chmod(0o700)
    # The suite's own folder has its kernels, but no plans.
    expected = [run(None, c, FACULA_VERIFY="1")[0] for c in calls]
    for _ in range(2):
        for call, shown in zip(calls, expected, strict=True):
            assert run(tmp_path, call)[0] == shown
    assert run(tmp_path, calls[-1])[1]["hit"] > 0


def test_sizes_that_change_for_ever_cost_no_files(tmp_path):
    tmp_path.chmod(0o700)
    program = "for n in range(2, 400):\n    show(torch.ones(n) + torch.ones(n, 2)[:, 0])"
    run(tmp_path, program)
    assert 0 < len(plans_in(tmp_path)) < 250  # of 796 that are made


# ---- what follows what: things made beside the program, some way ahead of it

PRODUCTS = """
for dtype in (torch.float32, torch.bfloat16):
    a, b, c = (torch.randn(*s).to(dtype) for s in ((40, 96), (96, 64), (3, 40, 96)))
    gradients(lambda x, y: x @ y, a, b)
    gradients(lambda x, y: torch.addmm(x[:, :64], x, y, beta=0.5, alpha=2), a, b)
    gradients(lambda x: torch.bmm(x, x.transpose(1, 2)), c)
    for stride, groups in ((1, 1), (2, 1), (1, 8)):
        image, weight = torch.randn(2, 16, 12, 12).to(dtype), torch.randn(16, 16 // groups, 3, 3).to(dtype)
        for x in (image, image.to(memory_format=torch.channels_last)):
            gradients(lambda x, w: F.conv2d(x, w, None, stride, 1, 1, groups), x, weight)
gradients(lambda x, y: x @ y, torch.randn(64, 768), torch.randn(768, 1024))
"""

needs_two = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="nothing is made beside the program")


def follow(folder, program, threads=2):
    """What a program shows, and the chapters that it found."""
    env = dict(os.environ, FACULA_CACHE_DIR=str(folder), FACULA_LOG="cache", FACULA_NUM_THREADS=str(threads))
    code = PRELUDE + program + "\nprint(digest.hexdigest(), flush=True)"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, re.findall("cache: hit sequence (\\w+)", done.stderr)


@pytest.fixture(scope="session")
def told(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequences")
    folder.chmod(0o700)
    shown, hits = follow(folder, MODEL + PRODUCTS)
    assert not hits
    return folder, shown


@needs_two
def test_what_followed_is_made_beside_the_program_to_the_bit(told):
    folder, shown = told
    for _ in range(2):
        again, hits = follow(folder, MODEL + PRODUCTS)
        assert again == shown and hits  # how many depends on what else the machine does
    assert not follow(folder, MODEL + PRODUCTS, threads=1)[1]


@needs_two
def test_programs_that_begin_alike_differ_later(told):
    folder, _ = told
    other = MODEL + PRODUCTS.replace("96", "80").replace("12, 12", "14, 10")
    expected = follow(folder, other)[0]
    assert follow(folder, other)[0] == expected
    assert follow(folder, PRODUCTS)[0] == follow(folder, PRODUCTS)[0]


@needs_two
def test_forked_children_make_what_they_miss(told):
    folder, shown = told
    forks = "import os\nif not os.fork():\n"
    children = "".join("    " + line + "\n" for line in PRODUCTS.strip().splitlines()) + "    os._exit(0)\n"
    wait = "assert os.wait()[1] == 0\n"
    assert follow(folder, MODEL + (forks + children) * 2 + wait * 2 + PRODUCTS)[0] == shown


WRONG = {
    "nothing": lambda items: b"",
    "cut": lambda items: b"".join(items)[:-9],
    "backwards": lambda items: b"".join(reversed(items)),
    "often": lambda items: b"".join(items) * 50,
    "of other kinds": lambda items: b"".join(
        a[:8] + b[8:] for a, b in zip(items, items[1:] + items[:1], strict=True)
    ),
    "of none": lambda items: b"".join(b"\7" * 8 + i[8:] for i in items),
    "too many words": lambda items: b"".join(i[:8] + b"\xff" * 8 + i[16:] for i in items),
    "too few words": lambda items: b"".join(i[:8] + (0).to_bytes(8, "little") for i in items),
    "half of the words": lambda items: b"".join(
        i[:8] + ((len(i) // 8 - 2) // 2).to_bytes(8, "little") + i[16 : 16 + (len(i) // 8 - 2) // 2 * 8]
        for i in items
    ),
}


@needs_two
@pytest.mark.parametrize("wrong", WRONG)
def test_chapters_that_tell_something_else_change_nothing(told, wrong):
    folder, shown = told
    follow(folder, MODEL + PRODUCTS)  # puts right what the test before has replaced
    replaced = 0
    for path in folder.glob("*.sequence"):
        data = path.read_bytes()
        name, content = data[8:72], data[112:]
        items, at = [], 64
        while at < len(content):
            end = at + 16 + 8 * int.from_bytes(content[at + 8 : at + 16], "little")
            items.append(content[at:end])
            at = end
        path.write_bytes(chapter(name, content[:64] + WRONG[wrong](items)))
        replaced += 1
    assert replaced >= 4
    assert follow(folder, MODEL + PRODUCTS)[0] == shown
