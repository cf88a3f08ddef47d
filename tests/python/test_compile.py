"""`compile`: functions and modules are captured when they are first called, and give what eager gives."""

import copy
import pickle

import facula.nn.functional as F
import pytest

import facula
import facula.nn as nn
from facula import _C


def counts(f):
    return (f.__dict__["_run"] if isinstance(f, nn.Module) else f).report()


def whole(f):
    """The function compiled; a break is an error."""
    return facula.compile(f, fullgraph=True)


def check(f, *calls, captures=1):
    """Each call gives what the plain function gives, and the function is captured `captures` times."""
    compiled = whole(f)
    for args in calls:
        want, got = f(*args), compiled(*args)
        assert same(got, want), (got, want)
    report = counts(compiled)
    assert report["captures"] == captures and not report["plain_runs"], report
    return compiled


def same(a, b):
    if isinstance(b, facula.Tensor):
        return (
            isinstance(a, facula.Tensor)
            and a.dtype == b.dtype
            and a.shape == b.shape
            and facula.allclose(a, b, rtol=1e-5, atol=1e-6)
        )
    if isinstance(b, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(b, dict):
        return type(a) is type(b) and list(a) == list(b) and all(same(a[k], b[k]) for k in b)
    return type(a) is type(b) and a == b


x = facula.tensor([[1.0, -2.0, 3.0], [0.5, 0.25, -4.0]])


def test_a_function_is_captured_once_and_run_as_one_program():
    compiled = check(lambda x, y: (x.sin() + y) * 2, (x, x + 1), (x + 1, x - 1), (x * 3, x))
    assert counts(compiled)["segments"][0]["calls"] == 3


def test_each_call_of_the_graph_has_the_line_of_the_program():
    def f(x):
        y = x.sin()
        return y * 2

    graph = counts(check(f, (x,), (x + 1,)))["segments"][0]["graph"]
    first = f.__code__.co_firstlineno
    assert [f"test_compile.py:{first + k}" in line for k, line in zip((1, 2), graph.splitlines()[1:])] == [
        True,
        True,
    ], graph


def test_branches_loops_and_containers_of_python():
    def f(x, n, names):
        total, parts = x, []
        for k in range(n):
            if k % 2:
                total = total + k
            else:
                parts.append(total * k)
        found = {name: len(name) for name in names}
        return total, parts, found, [p.sum() for p in parts], (*parts, total)

    check(f, (x, 3, ("a", "bc")), (x, 3, ("a", "bc")))


def test_closures_defaults_and_keywords():
    scale = 3.0

    def inner(x, *, by=2.0, **others):
        return x * by + others.get("shift", 0) + scale

    def f(x):
        def local(y, z=1):
            return y + z + scale

        return local(inner(x)) + inner(x, by=4.0, shift=1) + (lambda y: y * scale)(x)

    check(f, (x,), (x + 1,))


def test_comprehensions_and_generators():
    def pairs(items):
        for k, item in enumerate(items):
            yield k, item * 1

    def f(x):
        rows = [r * k for k, r in pairs(x.unbind(0))]
        return sum(r.sum() for r in rows), {k: v for k, v in zip("ab", rows)}, any(k > 1 for k in range(3))

    check(f, (x,), (x + 1,))


def test_exceptions_are_raised_and_caught():
    def f(x, fail):
        try:
            if fail:
                raise KeyError("a")
            return x + 1
        except KeyError as e:
            y = x * len(e.args)
        finally:
            x = x - 1
        return y, x

    check(f, (x, True), (x, True))
    check(f, (x, False), (x, False))


def test_an_exception_leaves_with_its_lines():
    def inner(x):
        raise ValueError(f"shape {tuple(x.shape)}")

    def f(x):
        y = x + 1
        return inner(y)

    def lines(g):
        with pytest.raises(ValueError, match="shape") as e:
            g(x)
        return [(t.name, t.lineno) for t in e.traceback if t.path.name == "test_compile.py"][-2:]

    assert lines(facula.compile(f)) == lines(f)


def test_modules_match_eager():
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    compiled = whole(model)
    for shift in range(3):
        assert same(compiled(x + shift), model(x + shift))
    assert counts(compiled)["captures"] == 1
    assert compiled.state_dict().keys() == {f"_orig_mod.{k}" for k in model.state_dict()}


def test_gradients_match_eager():
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
    other = copy.deepcopy(model)
    compiled = whole(model)
    for _ in range(2):
        compiled(x).pow(2).sum().backward()
        other(x).pow(2).sum().backward()
    for a, b in zip(model.parameters(), other.parameters()):
        assert facula.allclose(a.grad, b.grad, rtol=1e-5)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.seen = []
        self.register_buffer("total", facula.zeros(()))

    def forward(self, x):
        self.seen.append(tuple(x.shape))
        self.total += x.sum()
        self.last = x
        return x * self.scale


def test_writes_to_outside_objects_are_repeated():
    model = Counter()
    compiled = whole(model)
    for k in range(3):
        y = x + k
        compiled(y)
        assert model.last is y
    assert model.seen == [(2, 3)] * 3
    assert model.total.item() == pytest.approx(3 * x.sum().item() + 18)


def test_an_attribute_that_changes_is_captured_again():
    model = Counter()
    compiled = whole(model)
    assert same(compiled(x), x * 2)
    model.scale = 5.0
    model.seen.clear()
    assert same(compiled(x), x * 5)


def test_hooks_that_are_added_later_run():
    model = nn.Sequential(nn.Linear(3, 3))
    compiled = facula.compile(model)
    before = compiled(x)
    handle = model[0].register_forward_hook(lambda m, args, out: out * 10)
    assert same(compiled(x), before * 10)
    handle.remove()
    assert same(compiled(x), before)


def test_a_print_divides_the_program_and_happens_at_each_call(capsys):
    def f(x):
        y = x + 1
        print("shape", y.shape[0])
        return y * 2

    compiled = facula.compile(f)
    for k in range(3):
        assert same(compiled(x + k), (x + k + 1) * 2)
    assert capsys.readouterr().out == "shape 2\n" * 3
    assert counts(compiled)["captures"] == 2 and len(counts(compiled)["breaks"]) == 1
    with pytest.raises(RuntimeError, match="fullgraph=True.*test_compile.py:.*print"):
        whole(f)(x)


def test_a_branch_on_elements_divides_the_program():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    compiled = facula.compile(f)
    for k in (0, 5, -5, 5, -5):
        assert same(compiled(x + k), f(x + k))


def test_other_sizes_dtypes_and_gradients_are_captured_again():
    def f(x):
        return x * 2 if x.shape[0] > 2 else x + 1

    compiled = whole(f)
    for y in (x, facula.ones(3, 3), x.double(), x.clone().requires_grad_(), x.t()):
        assert same(compiled(y), f(y))
        assert compiled(y).requires_grad == y.requires_grad


def test_global_values_are_guarded():
    global SCALE
    SCALE = 2.0
    compiled = whole(lambda x: x * SCALE)
    assert same(compiled(x), x * 2)
    SCALE = 3.0
    assert same(compiled(x), x * 3)


SCALE = 1.0


def test_modes_are_guarded_and_kept():
    w = facula.ones(3, requires_grad=True)

    def f(x):
        with facula.no_grad():
            y = x * w
        return y, x * w

    compiled = whole(f)
    y, z = compiled(x)
    assert not y.requires_grad and z.requires_grad
    with facula.no_grad():
        assert not compiled(x)[1].requires_grad
    assert compiled(x)[1].requires_grad


def test_arguments_are_bound_as_python_does():
    @facula.compile
    def f(a, b=2, *rest, c=3, **others):
        return a * b + c, rest, others

    assert same(f(x), (x * 2 + 3, (), {}))
    assert same(f(x, 4, 5, c=6, d=7), (x * 4 + 6, (5,), {"d": 7}))
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        f()


def test_unknown_backends_modes_and_options_are_errors():
    for options in ({"backend": "none"}, {"mode": "fast"}, {"options": {"a": 1}}):
        with pytest.raises(RuntimeError, match="there is no"):
            facula.compile(lambda x: x, **options)
    assert same(facula.compile(lambda x: x + 1, backend="eager")(x), x + 1)
    with pytest.raises(TypeError):
        facula.compile(3)


def test_compiled_modules_are_copied_and_pickled():
    model = nn.Linear(3, 2)
    compiled = facula.compile(model)
    want = compiled(x)
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        assert same(other(x), want)
        assert counts(other)["captures"] == 1


def test_disabled_functions_run_plainly():
    seen = []

    @facula.compiler.disable
    def plain(x):
        seen.append(facula.compiler.is_compiling())
        return x + 1

    def f(x):
        assert facula.compiler.is_compiling() or True
        return plain(x * 2) * 3

    compiled = facula.compile(f)
    for _ in range(2):
        assert same(compiled(x), (x * 2 + 1) * 3)
    assert seen == [False, False]


def test_methods_are_compiled():
    class A:
        scale = 2

        @facula.compile
        def f(self, x):
            return x * self.scale

    a = A()
    assert same(a.f(x), x * 2)
    a.scale = 3
    assert same(a.f(x), x * 3)
    A.scale = 5
    assert same(A().f(x), x * 5)


def test_dropout_and_batch_norm_follow_the_mode_of_the_module():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Dropout(0.5))
    other = copy.deepcopy(model)
    compiled = whole(model)
    images = facula.randn(2, 1, 6, 6)
    for training in (True, True, False, True):
        model.train(training)
        other.train(training)
        facula.manual_seed(3)
        got = compiled(images)
        facula.manual_seed(3)
        assert same(got, other(images))
    for a, b in zip(model.buffers(), other.buffers()):
        assert same(a, b)
    assert _C.is_grad_enabled()
    assert F.relu is F.relu


def test_checked_calls_report_a_difference(monkeypatch):
    monkeypatch.setenv("FACULA_COMPILE_CHECK", "2")
    model = Counter()
    compiled = facula.compile(model)
    for _ in range(4):
        compiled(x)
    assert len(model.seen) == 4
    wrong = facula.compile(lambda x: x * (2 if facula.compiler.is_compiling() else 3))
    wrong(x)
    with pytest.raises(RuntimeError, match="call 2 of <lambda> differs.*the elements of the result"):
        wrong(x)


def test_an_out_of_another_dtype_is_treated_as_in_eager_mode():
    halves = facula.tensor([[0.0, 1.0, 2.0], [1.0, 1.0, 5.0]], dtype=facula.float16)

    def f(x):
        return facula.std(x, 1, out=facula.empty(2))

    run = facula.compile(f)
    for _ in range(3):
        assert run(halves).tolist() == f(halves).tolist()
    wrong = facula.compile(lambda z: facula.norm(z, out=facula.empty((), dtype=facula.complex64)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="dtype"):
            wrong(facula.tensor([1 + 2j]))


def test_new_memory_has_the_format_that_was_asked_for():
    def f(x):
        last = facula.channels_last
        one, like = facula.empty(2, 3, 4, 5, memory_format=last), facula.empty_like(x, memory_format=last)
        plain = facula.empty_like(x.permute(0, 2, 3, 1), memory_format=facula.contiguous_format)
        return one.fill_(1.0), like.copy_(x), plain.fill_(2.0)

    x = facula.randn(2, 3, 4, 5)
    run = facula.compile(f, fullgraph=True)
    for _ in range(2):
        assert [t.stride() for t in run(x)] == [t.stride() for t in f(x)]
        assert run(x)[1].equal(x)
    wrong = facula.compile(lambda: facula.empty(2, 3, memory_format=facula.channels_last))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="empty: channels_last requires a tensor of rank 4"):
            wrong()
