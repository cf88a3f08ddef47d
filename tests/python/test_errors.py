"""What users read when a call is wrong: type and exact text of the error, kept in tests/golden/errors.txt.

    python tests/python/test_errors.py --write   records the texts anew; read the difference first
    python tests/python/test_errors.py --peer    lists types that differ from PyTorch's (if installed)

Besides the calls below, every operator is called wrongly as its schema and samples suggest
(support/bad_calls.py).
"""

import re
import sys
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent.parent / "golden" / "errors.txt"
CALLS_FILE = GOLDEN.with_name("operator_errors.txt")
HEADER = "# Written by Facula: what it said when this was last read, and no proof that it is right.\n"

# A blank line between subjects. `F` is facula, `fn` its nn.functional, `np` NumPy, `x` the float32 matrix [2,
# 3].
SNIPPETS = """
F.ones(3) + F.ones(4)
F.ones(2, 3) * F.ones(3, 2)
F.where(F.ones(3) > 0, F.ones(3), F.ones(4))
F.ones(3).add_(F.ones(2, 3))
F.ones(3).expand(2, 4)
F.broadcast_to(F.ones(3), (3, 2))
x.masked_fill(F.ones(4) > 0, 1.0)
F.lerp(x, F.ones(4), 0.5)

F.ones(8, 3) @ F.ones(4, 5)
F.mm(F.ones(2, 3), F.ones(2, 3))
F.mm(F.ones(2), F.ones(2, 3))
F.bmm(F.ones(2, 3, 4), F.ones(3, 4, 5))
F.dot(F.ones(2), F.ones(3))
F.mv(x, F.ones(2))
x @ F.ones(3, 4, dtype=F.int64)
F.addmm(F.ones(5), x, F.ones(3, 4))
fn.linear(x, F.ones(4, 2))
F.ones(()) @ F.ones(3)
F.outer(x, x)
F.matmul(F.ones(2, 3, 4), F.ones(3, 4, 5))

fn.conv2d(F.ones(1, 3, 8, 8), F.ones(4, 2, 3, 3))
fn.conv2d(F.ones(1, 3, 2, 2), F.ones(4, 3, 3, 3))
fn.conv2d(F.ones(8, 8), F.ones(4, 3, 3, 3))
fn.conv2d(F.ones(1, 3, 8, 8), F.ones(4, 3, 3, 3), F.ones(3))
fn.conv2d(F.ones(1, 3, 8, 8), F.ones(4, 3, 3, 3), stride=0)
fn.conv2d(F.ones(1, 3, 8, 8), F.ones(4, 3, 3, 3), padding=-1)
fn.conv2d(F.ones(1, 4, 8, 8), F.ones(4, 2, 3, 3), groups=3)
fn.conv2d(F.ones(1, 3, 8, 8), F.ones(4, 3, 3, 3, dtype=F.float64))
fn.max_pool2d(F.ones(1, 3, 2, 2), 3)
fn.max_pool2d(F.ones(3, 3), 2)
fn.avg_pool2d(F.ones(1, 3, 4, 4), 0)
fn.layer_norm(x, (4,))
fn.layer_norm(x, (3,), F.ones(2))
fn.batch_norm(F.ones(2, 3), F.zeros(3), F.ones(3), F.ones(2), None, True)
fn.batch_norm(F.ones(1, 3), None, None, training=True)
fn.embedding(F.tensor([0, 5]), F.ones(4, 2))
fn.embedding(F.tensor([-1]), F.ones(4, 2))
fn.embedding(F.tensor([0.5]), F.ones(4, 2))
fn.cross_entropy(F.ones(4, 3), F.tensor([0, 1]))
fn.cross_entropy(F.ones(2, 3), F.tensor([0, 3]))
fn.cross_entropy(F.ones(2, 3), F.tensor([0, 1]), reduction='median')
fn.cross_entropy(F.ones(2, 3), F.tensor([0, 1]), label_smoothing=2.0)
fn.cross_entropy(F.ones(2, 3), F.tensor([0, 1], dtype=F.int64), F.ones(4))
fn.nll_loss(F.ones(2, 3), F.tensor([0.0, 1.0]))
fn.dropout(x, 1.5)
fn.gelu(x, approximate='fast')
fn.softmax(F.ones(2, 3), dim=2)
fn.one_hot(F.tensor([0, 7]), 3)
fn.one_hot(F.tensor([0.0]))

x.view(4)
x.reshape(4, -1)
x.view(-1, -1)
x.t().view(6)
x.reshape(0, -1)
x.transpose(0, 2)
x.permute(0, 0)
x.permute(0)
x.squeeze(5)
x.unsqueeze(4)
F.ones(2, 2, 2).t()
x.flatten(1, 0)
x.unflatten(1, (2, 2))
x.split(0)
x.split([1, 2])
x.chunk(0)
x.narrow(0, 1, 5)
x.select(1, 3)
x.unfold(0, 3, 1)
x.as_strided((3, 3), (3, 1))
x.repeat(2)
x.diagonal(0, 1, 1)
x.movedim(0, 3)
F.cat([])
F.cat([x, F.ones(2, 4)])
F.cat([x, F.ones(3)])
F.cat([F.ones(()), F.ones(())])
F.stack([x, F.ones(3, 2)])
F.roll(x, (1, 2), 0)
F.flip(x, (2,))
F.tril(F.ones(3))

x[2]
x[0, 3]
x[0, 0, 0]
x[F.tensor([0, 2])]
x[F.tensor([0, -3])]
x[F.tensor([0.5])]
x[F.tensor([True, False, True])]
x[F.tensor([0, 1]), F.tensor([0, 1, 2])]
x[::-1]
x['a']
x[1.5]
x.__setitem__(5, 1.0)
x.__setitem__(0, F.ones(4))
x.__setitem__(F.tensor([7]), 1.0)
F.gather(x, 1, F.tensor([[3], [0]]))
F.gather(x, 1, F.tensor([0]))
F.gather(x, 1, F.tensor([[0.5]]))
F.index_select(x, 0, F.tensor([2]))
F.index_select(x, 2, F.tensor([0]))
F.scatter_add(F.zeros(2, 3), 1, F.tensor([[3]]), F.ones(1, 1))
F.index_add(F.zeros(2, 3), 0, F.tensor([2]), F.ones(1, 3))
F.masked_select(x, F.ones(2, 3))
x.index_put((F.tensor([0]),), F.ones(3, dtype=F.float64))
(F.zeros(3, requires_grad=True) * 1).index_put_((F.tensor([0]),), F.ones(2, 2))
(F.zeros((), requires_grad=True) * 1).index_put_((F.tensor(False),), F.ones(0), accumulate=True)
F.ones(1, 2, 16, 3).index_copy_(-1, F.arange(3), F.zeros(0, requires_grad=True))
F.normal(0.0, 1.0, (2147483647, 2147483647, -2147483648, 5))
F.topk(x, 4)
F.kthvalue(x, 0)
F.gather(x, 1, F.tensor([[0]]), out=F.ones(1, 1, dtype=F.float64))
F.gather(x, 1, F.tensor([[0], [1]]), out=F.from_numpy(F.ones(1).numpy()))
F.cat([x, x], out=F.ones(3).expand(4, 3))
F.max(x, 1, out=F.ones(2))
F.max(x, 1, out=(F.ones(2), F.ones(2)))
x.scatter(0, F.tensor([[0]]), F.ones(1, 1, dtype=F.float64))
x.scatter(0, F.tensor([[0]]), 1.0, reduce='mean')
x.index_copy(0, F.tensor([0]), F.ones(2, 3))
x.index_fill(0, F.tensor([[0]]), 1.0)
x.masked_scatter(x < 5, F.ones(1))
x.masked_fill(x > 0, F.ones(1))
x.masked_fill(x > 0, 1j)
x.take(F.tensor([6]))
x.narrow(1, F.tensor([0]), 1)

x.sum(2)
x.sum((0, 0))
x.mean(dtype=F.int64)
F.ones(2, 3, dtype=F.int64).mean()
F.ones(0).max()
F.ones(0, 3).argmax(0)
F.ones(0, 3).amax(0)
x.argmax(2)
x.cumsum(2)
x.norm('fro', 5)
F.ones(2, dtype=F.complex64).max()
F.ones(2, dtype=F.int64).var()
F.linalg.solve(x, x)
F.linalg.solve(F.zeros(2, 2), F.ones(2))
F.linalg.cholesky(-F.eye(2))
F.linalg.inv(F.ones(2, 2))
F.fft.fft(F.ones(()))
F.fft.rfft(F.ones(3, dtype=F.complex64))
F.fft.fft(F.ones(4), n=0)
F.fft.fft(F.ones(4), norm='other')

F.ones(2, dtype=F.bool) - F.ones(2, dtype=F.bool)
-F.ones(2, dtype=F.bool)
F.ones(2, dtype=F.complex64) < 1
F.ones(2, dtype=F.complex64).floor()
F.ones(2) & 1
F.ones(2, dtype=F.int64).add_(1.5)
F.ones(2, dtype=F.int64).div_(2)
F.ones(2, dtype=F.bool).add_(1)
F.add(F.ones(2, dtype=F.int64), 1, alpha=0.5)
F.ones(2).relu_('now')
F.add(F.ones(2), F.ones(2), out=F.ones(2, dtype=F.int64))
F.clamp(x)
F.div(x, 2, rounding_mode='up')
F.maximum(x, 2)
F.atan2(2, x)
F.eq(2, x)
F.pow(2, 3)
x.logical_and(True)
F.isclose(x, 2)
F.polygamma(-1, x)

F.zeros(-1)
F.zeros(2, -3)
F.zeros(2**40, 2**40)
F.zeros(2**62)
F.empty(2**50)
x.repeat(2**40, 2**40)
F.arange(0, 1, 0)
F.arange(0, 5, -1)
F.arange(0, float('inf'))
F.linspace(0, 1, -1)
F.full((2,), 'a')
F.tensor([1, [2]])
F.tensor([[1, 2], [3]])
F.tensor('a')
F.tensor([2**70])
F.tensor(300, dtype=F.uint8)
F.tensor([1.0], device='gpu')
F.tensor(None)
F.from_numpy([1, 2])
F.from_numpy(np.array(['a']))
F.from_numpy(np.arange(3)[::-1])
F.randint(5, 5, (2,))
F.randperm(-1)
F.rand(2, generator=5)
F.eye(-1)

x.item()
bool(x)
int(x)
len(F.ones(()))
iter(F.ones(()))
x.no_such_thing
F.ones(2, requires_grad=True).numpy()
F.ones(2, dtype=F.bfloat16).numpy()
F.ones(2, dtype=F.int64, requires_grad=True)
F.ones(2, requires_grad=True).add_(1)
F.ones(3, requires_grad=True).backward()
F.ones(3).sum().backward()
F.ones(3, requires_grad=True).sum().backward(F.ones(2))
F.autograd.grad(F.ones(1, requires_grad=True).sum(), F.ones(1, requires_grad=True))
F.autograd.grad(F.ones(1).sum(), F.ones(1))
F.ones(3).expand(2, 3).add_(1)
F.ones(2, requires_grad=True).view(1, 2).mul_(2)
F.add(x)
F.add(x, 1, 2, 3)
F.add(x, other=1, another=2)
x.view('a')
x.to('elsewhere')
x.sum(dim='rows')
x + 'a'
F.set_num_threads(0)
F.manual_seed('a')
F.nn.Linear(3, 4)(F.ones(2, 5))
F.optim.SGD([], lr=0.1)
F.optim.SGD([F.ones(2, requires_grad=True)], lr=-1.0)
F.load('/no/such/file')
""".strip().splitlines()
SNIPPETS = [s for s in SNIPPETS if s]


def outcome(snippet, library):
    """'Type\\nmessage' of the error that a snippet raises."""
    x = library.arange(6.0).reshape(2, 3)
    try:
        eval(snippet, {"F": library, "fn": library.nn.functional, "np": np, "x": x})
    except BaseException as e:
        return f"{type(e).__name__}\n{e}"
    return "no error\n"


def recorded(path=GOLDEN):
    text = path.read_text()
    blocks = text[text.index(">>> ") :].split("\n>>> ")
    return dict(b.removeprefix(">>> ").rstrip("\n").split("\n", 1) for b in blocks if b.strip())


def operators():
    """Operators that users call, by name, with their overloads."""
    from facula import _C

    found = {}
    for o in _C.operators():
        if not o["namespaces"] & 128 and not o["name"].startswith("_"):
            found.setdefault(o["name"], []).append(o)
    return found


def outcomes(name):
    """The errors of an operator's wrong calls, one of those that differ in numbers only."""
    from support.bad_calls import environment, wrong_calls

    names, found, seen = environment(), {}, set()
    for overload in operators()[name]:
        for call in wrong_calls(overload):
            try:
                eval(call, names)
            except Exception as e:
                text = f"{type(e).__name__}\n{e}".rstrip("\n")
                kind = (
                    re.sub(r"\d+|got .*|\w+ (!=|and) \w+", "", text.split("\n")[1][:60])
                    if "\n" in text
                    else ""
                )
                if isinstance(e, SyntaxError) or kind in seen:
                    continue
                seen.add(kind)
                found[call] = text
    return found


def pytest_generate_tests(metafunc):
    if "snippet" in metafunc.fixturenames:
        metafunc.parametrize("snippet", SNIPPETS)
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", operators())


def test_an_error_says_what_it_always_said(snippet):
    import facula

    assert outcome(snippet, facula).rstrip("\n") == recorded()[snippet]


def test_the_golden_file_holds_these_snippets_and_no_others():
    assert list(recorded()) == SNIPPETS


def test_every_snippet_fails_with_a_type_that_python_users_expect():
    for snippet, text in recorded().items():
        assert text.split("\n")[0] in KINDS, snippet
        assert "internal" not in text, snippet


def test_wrong_calls_of_an_operator_say_what_they_always_said(name):
    found = outcomes(name)
    said = {call: text for call, text in CALLS.items() if call.startswith(f"ops.{name}(")}
    for call, text in found.items():
        kind, message = (text + "\n").split("\n", 1)
        assert kind in KINDS and "internal" not in message, call
        if said:  # a new operator's are recorded when someone reads them
            assert said.get(call) == text, call
    if said:
        assert said.keys() <= found.keys()


CALLS = recorded(CALLS_FILE) if CALLS_FILE.exists() else {}
KINDS = {
    "RuntimeError",
    "AssertionError",
    "BufferError",
    "IndexError",
    "TypeError",
    "ValueError",
    "NotImplementedError",
    "LinAlgError",
    "AttributeError",
    "OverflowError",
    "FileNotFoundError",
}


def test_the_table_of_types_in_the_documentation_is_complete():
    root = GOLDEN.parent.parent.parent
    table = [
        line for line in (root / "docs" / "errors.md").read_text().splitlines() if line.startswith("| `")
    ]
    told = set(re.findall(r"`(\w+(?:Error|Interrupt))`", "\n".join(line.split("|")[1] for line in table)))
    header = (root / "src" / "facula" / "base" / "error.h").read_text()
    declared = set(
        re.search(r"enum class ErrorType : uint8_t \{([^}]*)\}", header)[1].replace(",", " ").split()
    )
    assert told == declared | KINDS | {"MemoryError"}
    checks = set(re.findall(r"#define (\w+_check)\(", header)) - {"internal_check"}
    assert checks == set(re.findall(r"\w+_check", "\n".join(line.split("|")[3] for line in table)))


def main():
    if "--write" in sys.argv:
        import facula

        texts = [f">>> {s}\n{outcome(s, facula)}".rstrip("\n") for s in SNIPPETS]
        GOLDEN.write_text(HEADER + "\n".join(texts) + "\n")
        calls = [f">>> {call}\n{text}" for name in operators() for call, text in outcomes(name).items()]
        CALLS_FILE.write_text(HEADER + "\n".join(calls) + "\n")
    if "--peer" in sys.argv:
        import warnings

        import torch

        import facula

        warnings.simplefilter("ignore")
        for s in SNIPPETS:
            ours, theirs = outcome(s, facula), outcome(s, torch)
            if ours.split("\n")[0] != theirs.split("\n")[0]:
                print(f">>> {s}\n  facula: {ours}\n  torch:  {theirs.splitlines()[:2]}")


if __name__ == "__main__":
    main()
