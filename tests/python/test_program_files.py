"""Programs in files: what is loaded does what was saved, to the bit; what is damaged is refused."""

import collections
import io
import random
import re
import zipfile

import pytest
from facula.program import load, trace
from facula.utils._pytree import register_pytree_node

import facula
from facula import nn
from facula.nn import functional as F


def saved(program, folder):
    """The program out of a file, which has the same text."""
    path = folder / "program.pt"
    program.save(path)
    loaded = load(path)
    # a file fixes the numbers that a program reads at each call
    assert program._readers or str(loaded) == str(program)
    return loaded


def cnn():
    facula.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Dropout(0.2), nn.Linear(100, 16), nn.LayerNorm(16), nn.Linear(16, 3),
    )  # fmt: skip


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        facula.manual_seed(0)
        self.tokens = nn.Embedding(11, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 11)

    def forward(self, x):
        return self.head(self.block(self.tokens(x)))[:, -1]


STEPS = {
    "cnn, adamw": (cnn, lambda p: facula.optim.AdamW(p, lr=1e-2), lambda: facula.rand(8, 1, 12, 12), 3),
    "cnn, momentum": (
        cnn,
        lambda p: facula.optim.SGD(p, lr=1e-2, momentum=0.9, nesterov=True),
        lambda: facula.rand(8, 1, 12, 12),
        3,
    ),
    "attention, adam": (
        Attention,
        lambda p: facula.optim.Adam(p, lr=facula.tensor(1e-3)),
        lambda: facula.randint(0, 11, (4, 7)),
        11,
    ),
}


@pytest.mark.parametrize("shape", [(2, 3, -1), (-1, 3), (2, -1)])
def test_sizes_that_follow_from_others_are_read_again(shape, tmp_path):
    def f(x):
        return (x * 2).view(shape).exp()

    p = saved(trace(f, facula.ones(24), dynamic=True), tmp_path)
    for n in (24, 36, 12):
        x = facula.randn(n)
        assert p(x).tolist() == f(x).tolist()


@pytest.mark.parametrize("name", STEPS)
def test_a_loaded_step_trains_as_the_saved_one_would_to_the_bit(name, tmp_path):
    make, optimizer_of, batch, classes = STEPS[name]
    model = make()
    optimizer = optimizer_of(model.parameters())

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return {"loss": loss, "count": len(y)}

    facula.manual_seed(1)
    batches = [(batch(), facula.randint(0, classes, (len(batch()),))) for _ in range(5)]
    ours = trace(step, *batches[0])
    for k in range(3):  # what is saved is a state in the middle
        ours(*batches[k])
    theirs = saved(ours, tmp_path)
    for program in (ours, theirs):
        facula.manual_seed(2)
        results = [program(*batches[k % 5]) for k in range(100)]
        program.losses = [r["loss"].item() for r in results]
        assert results[0]["count"] == len(batches[0][1])
    assert ours.losses == theirs.losses
    for a, b in zip(ours.captured, theirs.captured, strict=True):
        assert facula.equal(a, b) and a.requires_grad == b.requires_grad
        assert (a.grad is None) == (b.grad is None) and (a.grad is None or facula.equal(a.grad, b.grad))
    assert facula.equal(ours.captured[0], next(model.parameters()))  # which the loaded one does not touch


def test_a_loaded_function_has_gradients_and_takes_other_sizes(tmp_path):
    w = facula.randn(3, 4, requires_grad=True)
    p = saved(trace(lambda x: (x @ w).tanh().sum(0) * x.mean(), facula.ones(5, 3), dynamic=True), tmp_path)
    for n in (5, 9, 2):
        x, y = (facula.rand(n, 3, requires_grad=True) for _ in range(2))
        with facula.no_grad():
            y.copy_(x)
        p(x).sum().backward()
        ((y @ w).tanh().sum(0) * y.mean()).sum().backward()
        assert facula.allclose(x.grad, y.grad) and facula.allclose(p.captured[0].grad, w.grad)
        p.captured[0].grad = w.grad = None
    with pytest.raises(ValueError, match="relied on sizes|was traced with"):
        p(facula.ones(5, 4))


def test_what_it_relied_on_is_kept(tmp_path):
    p = saved(trace(lambda x: x.sum(0) if x.shape[0] > 3 else x, facula.ones(5, 2), dynamic=True), tmp_path)
    assert p(facula.ones(5, 2)).shape == (2,)
    with pytest.raises(ValueError, match="relied on sizes"):
        p(facula.ones(2, 2))


def test_what_is_written_stays_written(tmp_path):
    state = facula.zeros(4)
    view = state[1:3]

    def f(x):
        state.add_(x)
        return view.sum() if False else x * 2

    p = saved(trace(f, facula.ones(4)), tmp_path)
    x = facula.ones(4)
    p(x)
    p(x)
    assert p.captured[0].tolist() == [2, 2, 2, 2] and state.tolist() == [0, 0, 0, 0]


def test_memory_that_is_shared_stays_shared(tmp_path):
    base = facula.arange(6.0).reshape(2, 3)
    rows, column = base[0], base.t()[1]
    p = saved(trace(lambda x: x * rows.sum() + column.prod(), facula.ones(2)), tmp_path)
    a, b = p.captured
    assert b.stride() == (3,) and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
    assert p(facula.ones(2)).tolist() == [7, 7]


def test_gradient_slots_are_found_again(tmp_path):
    w = facula.ones(3, requires_grad=True)
    w.grad = facula.full((3,), 5.0)

    def f(x):
        (w * x).sum().backward()  # adds to what is there
        return w.grad.sum()

    p = saved(trace(f, facula.ones(3)), tmp_path)
    assert p(facula.ones(3)).item() == 18 and p.captured[0].grad.tolist() == [6, 6, 6]
    p = saved(trace(lambda x: (x * x).sum().backward(), facula.ones(3, requires_grad=True)), tmp_path)
    x = facula.full((3,), 2.0, requires_grad=True)
    p(x)
    assert x.grad.tolist() == [4, 4, 4]


def test_checks_are_made_as_before(tmp_path):
    p = saved(trace(lambda x: F.binary_cross_entropy(x, x), facula.rand(3)), tmp_path)
    assert p(facula.rand(3)).shape == ()
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        p(facula.full((3,), 2.0))
    p = saved(trace(lambda x: F.gaussian_nll_loss(x, x, x), facula.rand(3)), tmp_path)
    with pytest.raises(ValueError, match="negative entry"):
        p(-facula.rand(3))


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b


register_pytree_node(Pair, lambda p: ([p.a, p.b], "context"), lambda items, context: Pair(*items))


def test_arguments_and_results_keep_their_form(tmp_path):
    def f(x, options, *, scale, none):
        y = x["a"] * scale + options[0][1]
        ordered = (float("inf"), 1 + 2j, facula.float16, facula.device("cpu"), y.shape, None, True, "ü\n'")
        return {"y": y, 3: [y, ordered], "pair": Pair(y, 7)}

    given = ({"a": facula.ones(2)}, [(1, facula.ones(2))])
    p = saved(trace(f, *given, scale=2.5, none=None), tmp_path)
    ours, theirs = p(*given, scale=2.5, none=None), f(*given, scale=2.5, none=None)
    assert list(ours) == list(theirs) and ours[3][1] == theirs[3][1]
    assert type(ours["pair"]) is Pair and ours["pair"].b == 7 and facula.equal(ours["pair"].a, theirs["y"])
    with pytest.raises(ValueError, match=r"traced with .*scale=2.5"):
        p(*given, scale=2, none=None)
    Named = collections.namedtuple("Named", "a")
    with pytest.raises(NotImplementedError, match="save: a .*Named among the arguments or results"):
        trace(lambda x: Named(x * 2), facula.ones(2)).save(tmp_path / "no.pt")
    assert not (tmp_path / "no.pt").exists()


def test_numbers_of_sizes_and_strings_are_read_back(tmp_path):
    def f(x, y):
        a = facula.einsum("ij,kj->ik", x, y).pow(1e-300) + float("-inf") + (x.shape[0] - x.shape[0])
        return (
            a,
            F.pad(x, (1, 0, 2, 3), "constant", -0.5),
            x.reshape(-1, 1),
            (x * x.numel()).to(facula.bfloat16),
        )

    args = facula.rand(4, 3), facula.rand(5, 3)
    for dynamic in (False, True):
        p = saved(trace(f, *args, dynamic=dynamic), tmp_path)
        for a, b in zip(p(*args), f(*args), strict=True):
            assert a.dtype == b.dtype and facula.equal(a, b)


# ---- bad files


def graph_of(data):
    """The graph's text within a file."""
    with zipfile.ZipFile(io.BytesIO(data)) as z:
        pickle = z.read("program/data.pkl")
    return pickle[pickle.index(b"graph(") :].split(b"\n  return")[0]


def with_graph(data, text):
    """The file with another text of the same length in bytes, and right checksums."""
    old = graph_of(data)
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as z, zipfile.ZipFile(out, "w") as to:
        for name in z.namelist():
            content = z.read(name)
            to.writestr(name, content.replace(old, text) if name.endswith(".pkl") else content)
    return out.getvalue()


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    model = cnn()
    optimizer = facula.optim.SGD(model.parameters(), lr=1e-2)

    def step(x, y):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    trace(step, facula.rand(2, 1, 12, 12), facula.tensor([1, 2])).save(folder / "program.pt")
    step_file = (folder / "program.pt").read_bytes()
    f = trace(
        lambda x, y: (x.exp() + y)[1:].cumsum(0).softmax(1), facula.ones(4, 3), facula.ones(3), dynamic=True
    )
    f.save(folder / "program.pt")
    return step_file, (folder / "program.pt").read_bytes()


def refused(folder, data):
    """Is the file refused, or read as a program?"""
    path = folder / "bad.pt"
    path.write_bytes(data)
    try:
        load(path)
    except RuntimeError as e:
        assert "internal" not in str(e), e
        return str(e)
    return None


def test_damaged_files_are_refused(files, tmp_path):
    for data in files:
        for length in range(0, len(data), max(1, len(data) // 60)):
            assert refused(tmp_path, data[:length])
    facula.save({"w": facula.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(RuntimeError, match="holds no program"):
        load(tmp_path / "w.pt")
    with pytest.raises(RuntimeError, match="No such file"):
        load(tmp_path / "none.pt")


def test_texts_that_are_no_graph_are_refused(files, tmp_path):
    draw = random.Random(0)
    for data in files:
        text = graph_of(data)
        words = re.findall(rb"[\w.#%]+|[^\w\s]", text)
        wrong = 0
        for _ in range(250):
            at = draw.randrange(len(text) - 12)
            kind, n = draw.randrange(4), draw.randrange(1, 9)
            if kind == 0:
                new = bytes(draw.randrange(32, 127) for _ in range(n))
            elif kind == 1:
                new = draw.choice(words)[:n].ljust(n)
            elif kind == 2:
                begin = draw.randrange(len(text) - n)
                new = text[begin : begin + n]
            else:
                new = b" " * n
            wrong += refused(tmp_path, with_graph(data, text[:at] + new + text[at + n :])) is not None
        assert wrong > 100


WRONG = {
    "another type": (b"= exp(%0)", b"= abs(%9)", "the value is not there yet"),
    "no operator": (b"= exp(%0)", b"= exq(%0)", "no operator has this name"),
    "another shape": (b"%2: float32[s0, s1] = exp", b"%2: float32[s1, s0] = exp", r"%2 is float32\[s0, s1\]"),
    "another dtype": (b"%2: float32[s0, s1] = exp", b"%2: float64[s0, s1] = exp", r"%2 is float32\[s0, s1\]"),
    "defined twice": (b"%3: float", b"%2: float", "%2 is there already"),
    "no symbol": (b"float32[s0, s1] = exp", b"float32[s0, s7] = exp", "the symbol is not known"),
    "an operator's refusal": (b"dim=1, ", b"dim=7, ", "Dimension out of range"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_text_is_told_by_its_line(name, files, tmp_path):
    old, new, message = WRONG[name]
    text = graph_of(files[1])
    assert old in text, text.decode()
    found = refused(tmp_path, with_graph(files[1], text.replace(old, new, 1)))
    assert re.search(r"bad.pt is damaged: line \d+, character \d+, .*" + message, found or ""), found


def test_a_later_version_is_refused_by_its_number(files, tmp_path):
    data = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files[1])) as z, zipfile.ZipFile(data, "w") as to:
        for name in z.namelist():
            content = z.read(name)
            to.writestr(name, content.replace(b"facula programJ\x01", b"facula programJ\x09"))
    assert "is of version 9, and this library reads versions up to 3" in refused(tmp_path, data.getvalue())
