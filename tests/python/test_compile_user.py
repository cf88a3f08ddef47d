"""What a user of `compile` controls: stances, rules for functions, copies, threads, processes."""

import copy
import math
import os
import pickle
import threading

import pytest

import facula
import facula.nn as nn
from facula import compiler

x = facula.tensor([1.0, -2.0, 3.0])


def scaled(x, by=2.0):
    return (x * by).relu()


def test_stances_decide_whether_calls_are_captured():
    f = facula.compile(scaled)
    with compiler.set_stance("force_eager"):
        assert facula.equal(f(x), scaled(x))
    assert f.report()["captures"] == 0
    f(x)
    with compiler.set_stance("eager_on_recompile"):
        f(x)
        assert facula.equal(f(x.double()), scaled(x.double()))
    report = f.report()
    assert (report["captures"], report["hits"], report["plain_runs"]) == (1, 1, 1)
    with compiler.set_stance("fail_on_recompile"):
        f(x)
        with pytest.raises(RuntimeError, match="scaled has to be captured.*\n.*float32"):
            f(x.double())

    g = facula.compile(scaled)

    @compiler.set_stance("eager_then_compile")
    def twice():
        g(x)
        assert g.report()["captures"] == 0
        g(x)

    twice()
    assert g.report()["captures"] == 1
    with pytest.raises(RuntimeError, match="invalid torch.compile stance 'never'"):
        compiler.set_stance("never")


def test_a_function_that_is_allowed_is_called_and_not_interpreted():
    calls = []

    @compiler.allow_in_graph
    def inner(x):
        calls.append(1)
        return x.sin() + 1

    f = facula.compile(lambda x: inner(x) * 2, fullgraph=True)
    for _ in range(3):
        assert facula.equal(f(x), (x.sin() + 1) * 2)
    assert len(calls) == 1


def test_a_function_that_is_disallowed_divides_the_program():
    @compiler.disallow_in_graph
    def inner(x):
        return x.sin()

    f = facula.compile(lambda x: inner(x * 2) * 2)
    for _ in range(2):
        assert facula.equal(f(x), (x * 2).sin() * 2)
    assert "not allowed in graphs" in f.report()["breaks"][0][2]


def test_a_constant_result_is_computed_once_for_equal_arguments():
    calls = []

    @compiler.assume_constant_result
    def setting(name):
        calls.append(name)
        return len(calls)

    f = facula.compile(lambda x, name: x * setting(name), fullgraph=True)
    assert facula.equal(f(x, "a"), x) and facula.equal(f(x, "a"), x)
    assert facula.equal(f(x, "b"), 2 * x)
    assert calls == ["a", "b"]


def test_a_substitute_is_interpreted_for_a_function_of_c():
    @compiler.substitute_in_graph(math.dist)
    def distance(p, q):
        return sum((a - b) ** 2 for a, b in zip(p, q)) ** 0.5

    def f(x):
        return math.dist((x[0], x[1]), (x[1], x[2]))

    assert facula.allclose(facula.compile(f, fullgraph=True)(x), facula.tensor(34.0).sqrt())
    with pytest.raises(TypeError, match="no option 'other'"):
        compiler.substitute_in_graph(math.dist, other=1)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.register_buffer("count", facula.zeros(()))

    def forward(self, x):
        self.count += 1
        return self.layer(x).relu()


def test_compiled_modules_are_copied_and_pickled():
    facula.manual_seed(0)
    net = facula.compile(Net())
    want = net(x)
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert facula.equal(other(x), want) and other.count == 2 and net.count == 1
        other.layer.weight.data.zero_()
        assert facula.equal(net._orig_mod.layer(x).relu(), want)
    f = facula.compile(scaled)
    assert copy.deepcopy(f) is f
    assert facula.equal(pickle.loads(pickle.dumps(f))(x), scaled(x))


def test_threads_capture_and_run_one_function():
    def f(x, k):
        for _ in range(k):
            x = x * 1.5 + k
        return x

    run, errors = facula.compile(f), []

    def work(k):
        for n in range(20):
            k = n % 4
            y = facula.full((3 + k,), float(n))
            if not facula.equal(run(y, k), f(y, k)):
                errors.append(n)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_a_forked_process_runs_and_captures():
    run = facula.compile(scaled)
    run(x)
    child = os.fork()
    if not child:
        ok = facula.equal(run(x), scaled(x)) and facula.equal(run(x.double()), scaled(x.double()))
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize(
    "options",
    [{"backend": "none"}, {"mode": "fast"}, {"options": {"trace": 1}}, {"mode": "default", "options": {}}],
)
def test_unknown_backends_modes_and_options_are_errors(options):
    with pytest.raises(RuntimeError, match="compile: "):
        facula.compile(scaled, **options)


def test_an_explanation_lists_lines_breaks_kernels_and_costs():
    layer = nn.Linear(4, 3)

    def f(x):
        y = layer(x).relu()
        if y.sum() >= 0:
            y = y * 2
        return y

    facula.manual_seed(0)
    e = compiler.explain(f, facula.ones(2, 4))
    assert e.graph_count == 2 and e.graph_break_count == 1
    assert "a branch on the elements of a tensor" in e.break_reasons[0]
    part = max(e.parts, key=lambda p: p.calls)
    assert part.flops == 2 * 2 * 4 * 3 and part.bytes > 0 and part.peak > 0
    assert "linear" in part.text and "test_compile_user.py" in part.text
    assert any("linear" in text for text, *_ in part.steps)
    text, page = str(e), e.html()
    for told in ("divided at 1 places", "guard", "operations"):
        assert told in text
    assert page.startswith("<!DOCTYPE html>") and "<script" not in page and "http" not in page


def test_minify_keeps_the_calls_that_show_a_fault():
    def f(x, y):
        z = (x @ y).relu()
        for _ in range(3):
            z = z * 1.5 + x.sum()
        return z.sin() + y.sum(), z.cos()

    def fails(module, inputs):
        return any("sin" in str(n.target) and "cos" not in str(n.target) for n in module.graph.nodes)

    script = compiler.minify(f, facula.randn(3, 3), facula.randn(3, 3), fails=fails)
    assert script.startswith("# 1 calls") and "aten.sin" in script and "mm" not in script
    space = {"__name__": "script"}
    with pytest.raises(SystemExit) as done:
        exec(script, space)
    assert not done.value.code  # the compiler computes sin correctly
    with pytest.raises(ValueError, match="gives what its calls give"):
        compiler.minify(f, facula.randn(3, 3), facula.randn(3, 3))


def test_regions_decide_whether_a_break_is_an_error():
    def f(x, strict, plain):
        y = x + 1
        with compiler.error_on_graph_break(strict):
            y = y * (2 if y.sum() > -100 else 3)
        if plain and y.sum() > 100:
            y = -y
        return y

    run = facula.compile(f)
    for _ in range(2):
        assert facula.equal(run(x, False, False), f(x, False, False))
    with pytest.raises(RuntimeError, match=r"error_on_graph_break\(True\), and .*a branch on the elements"):
        facula.compile(f)(x, True, False)
    whole = facula.compile(f, fullgraph=True)
    assert facula.equal(whole(x, False, False), f(x, False, False))
    with pytest.raises(RuntimeError, match="fullgraph=True, and .*a branch on the elements"):
        whole(x, False, True)
