"""Traces that are recorded call by call, cut and gone on with: against eager."""

import gc

import pytest
from test_program import same

import facula
from facula import nn, optim
from facula.nn import functional as F

OpenTrace = facula._C.OpenTrace


def test_calls_become_a_program_and_handles_real_tensors():
    x, w = facula.randn(3, 4), facula.randn(4)
    t = OpenTrace("f")
    assert t.input(x, 7) == 0 and t.input(x, 9) == 0
    with t:
        y = x * w
        z = y.sum()
    assert t.is_handle(y) and not t.is_handle(x) and t.calls() == 2
    assert {id(h) for h in t.living()} == {id(y), id(z)}
    box = [y]
    segment = t.close([y, z])
    assert box[0] is y
    same(y, x * w)
    same(z, (x * w).sum(), 1e-6)
    assert segment.sources() == (7,) and len(segment.captured()) == 1 and segment.captured()[0] is w
    other = facula.randn(3, 4)
    a, b = segment([other])
    same(a, other * w)
    same(b, (other * w).sum(), 1e-6)
    assert segment.accepts([other]) is None and "float32[3, 4]" in segment.accepts([facula.ones(2, 2)])


def test_a_cut_trace_goes_on():
    x = facula.randn(5)
    t = OpenTrace()
    with t:
        y = x.exp()
        dropped = x * 3
        first = t.cut([y])
        assert not t.is_handle(y)
        number = facula._C.outside_of_trace(lambda: float(y.sum()))  # it is real from here on
        z = y * number
        with pytest.raises(NotImplementedError, match="a trace that has ended") as e:
            dropped + 1
        assert e.value.trace_break.reason == "dead_handle"
        second = t.close([z])
    same(z, x.exp() * float(x.exp().sum()), 1e-6)
    assert first.text().count("=") == 1 and "mul" in second.text()


def test_views_stay_views_behind_a_cut():
    x = facula.arange(6.0)
    t = OpenTrace()
    t.input(x, 0)
    with t:
        y = x + 1
        row = y.view(2, 3)[1]
        part = x[2:4]
        x[0] = 50.0
        row.mul_(2)
    segment = t.close([row, y, part, x, None])
    same(y, facula.tensor([1.0, 2.0, 3.0, 8.0, 10.0, 12.0]))
    same(x, facula.tensor([50.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
    row.zero_()
    same(y[3:], facula.zeros(3))
    part.fill_(9)
    assert x[2].item() == 9 and segment.writes() == (True,)
    other = facula.arange(6.0)
    row2, y2, part2, x2, none = segment([other])
    assert x2 is other and none is None and other[0].item() == 50
    row2.zero_()
    same(y2, facula.tensor([1.0, 2.0, 3.0, 0.0, 0.0, 0.0]))
    part2.zero_()
    same(other, facula.tensor([50.0, 1.0, 0.0, 0.0, 4.0, 5.0]))


def test_history_goes_through_a_cut():
    w = facula.randn(3, requires_grad=True)
    t = OpenTrace()
    with t:
        y = w * 2
        v = y[1:]
        with facula.no_grad():
            n = y * 3
        t.cut([y, v, n])
        assert y.requires_grad and not y.is_leaf and v.requires_grad and not n.requires_grad
        z = (v * v).sum() + y.sum()
        t.close([z])
    z.backward()
    expected = facula.full((3,), 2.0)
    expected[1:] += 8 * w.detach()[1:]
    same(w.grad, expected, 1e-6)


def test_a_whole_step_with_state():
    facula.manual_seed(0)
    models = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    optimizers = [optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = facula.randn(3, 4)
    for _ in range(2):
        same(step(models[0], optimizers[0], x).detach(), step(models[1], optimizers[1], x).detach())
    t = OpenTrace("step")
    t.input(x, 0)
    with t:
        loss = step(models[1], optimizers[1], x)
        grad = models[1][0].weight.grad
        assert t.is_handle(grad)
    segment = t.close([loss])
    same(loss, step(models[0], optimizers[0], x).detach(), 1e-6)
    assert models[1][0].weight.grad is grad
    for _ in range(2):
        x = facula.randn(3, 4)
        same(segment([x])[0], step(models[0], optimizers[0], x).detach(), 1e-5)
        same([p.grad for p in models[1].parameters()], [p.grad for p in models[0].parameters()], 1e-5)
    same(dict(models[1].state_dict()), dict(models[0].state_dict()), 1e-5)


def test_a_trace_that_is_dropped_changes_nothing():
    w = facula.ones(2, requires_grad=True)
    w.grad = before = facula.ones(2)
    x = facula.zeros(2)
    t = OpenTrace()
    with t:
        x.add_(1)
        w.grad = None
        (w * x).sum().backward()
        assert t.is_handle(w.grad)
    del t
    gc.collect()
    assert w.grad is before
    same(x, facula.zeros(2))


def test_an_error_of_the_program_changes_nothing():
    x, index = facula.zeros(3), facula.tensor([5])
    t = OpenTrace()
    with t:
        y = x.index_select(0, index)
        x.add_(1)
    with pytest.raises(IndexError):
        t.close([y])
    same(x, facula.zeros(3))


def test_numbers_are_operands():
    x = facula.ones(2)
    t = OpenTrace()
    t.input(x, 0)
    n = t.number(3.0, 1)
    k = t.number(2, 2)
    with t:
        y = x * n + k
        assert y.dtype == facula.float32
    segment = t.close([y])
    same(y, facula.full((2,), 5.0))
    assert segment.sources() == (0, 1, 2)
    same(segment([x, 10.0, 5])[0], facula.full((2,), 15.0))
    same(segment([facula.ones(2, dtype=facula.float32), -1.0, 0])[0], facula.full((2,), -1.0))


def test_symbolic_sizes_of_inputs_and_numbers_as_sizes():
    x = facula.randn(5, 3)
    t = OpenTrace()
    t.input(x, 0, [0])
    n = t.size(4, 1)
    with t:
        h = t.handle_of(x)
        y = x.sum(0) * h.shape[0]
        z = facula.zeros(n) + n
    segment = t.close([y, z])
    same(y, x.sum(0) * 5, 1e-6)
    same(z, facula.full((4,), 4.0))
    other = facula.randn(9, 3)
    a, b = segment([other, 7])
    same(a, other.sum(0) * 9, 1e-5)
    same(b, facula.full((7,), 7.0))
    assert segment.accepts([facula.randn(9, 4), 7]) is not None


def test_breaks_are_typed_and_leave_the_trace_open():
    x = facula.ones(3)
    t = OpenTrace()
    t.input(x, 0)
    with t:
        y = x * 2
        t.at_line("model.py", 12, "blocks.0")
        with pytest.raises(RuntimeError) as e:
            bool(y.sum() > 0)
        assert e.value.trace_break.reason == "reads_elements"
        assert e.value.trace_break.line == "model.py:12 blocks.0"
        z = y + 1
        with pytest.raises(NotImplementedError) as e:
            z.requires_grad_()
        assert e.value.trace_break.reason == "gradients"
        segment = t.close([z])
    same(z, facula.full((3,), 3.0))
    assert segment.text(True).splitlines()[-2].endswith("# model.py:12 blocks.0")


def test_writes_under_two_names_break():
    base = facula.zeros(4)
    a, b = base[:2], base[1:3]
    t = OpenTrace()
    with t:
        a + b
        with pytest.raises(RuntimeError) as e:
            a.add_(1)
        assert e.value.trace_break.reason == "alias"
    t = OpenTrace()
    with t:
        a.add_(1)
        with pytest.raises(RuntimeError) as e:
            b * 1
        assert e.value.trace_break.reason == "alias"


def test_random_numbers_are_drawn_when_a_segment_runs():
    x = facula.ones(8)
    facula.manual_seed(3)
    expected = [F.dropout(x), facula.rand(2), F.dropout(x), facula.rand(2)]
    facula.manual_seed(3)
    t = OpenTrace()
    with t:
        y = F.dropout(x)
        t.cut([y])
        r = facula.rand(2)
        second = t.close([r])
    same([y, r], expected[:2])
    z = F.dropout(x)
    same([z, second([])[0]], expected[2:])


def test_retained_gradients_and_hooks_of_handles():
    w = facula.ones(2, requires_grad=True)
    t = OpenTrace()
    with t:
        y = w * 3
        y.retain_grad()
        y.register_hook(lambda g: g * 2)
        (y * y).sum().backward()
        g = y.grad
        t.close([g, y])
    same(g, facula.full((2,), 12.0))
    same(w.grad, facula.full((2,), 36.0))
    assert y.grad is g
