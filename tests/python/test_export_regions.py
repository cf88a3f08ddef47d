"""Control flow in exported programs: cond, while_loop, scan and map are calls of the graph."""

import pytest
from facula._higher_order_ops import map as map_rows
from facula._higher_order_ops import scan, while_loop
from facula.export import Dim, export, load, save
from facula.program import load as load_program
from facula.program import trace

import facula
from facula import nn


class Choice(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(3, 4)

    def forward(self, x):
        return facula.cond(x.sum() > 0, lambda x: self.a(x).relu(), lambda x: self.b(x) * 2, (x,))


class Doubling(nn.Module):
    def forward(self, x):
        return while_loop(
            lambda i, x: x.sum() < 100, lambda i, x: (i + 1, x * 2), (facula.zeros((), dtype=facula.int64), x)
        )


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 5)

    def forward(self, x):
        def step(state, row):
            state = self.cell(row, state)
            return state, state.tanh()

        return scan(step, facula.zeros(x.size(1), 5), x)


class Rows(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(facula.tensor(2.0))

    def forward(self, x, y):
        return map_rows(lambda row, other: row.cumsum(0) * self.scale + other, x, y)


def equal(a, b):
    for x, y in zip(a if isinstance(a, tuple) else (a,), b if isinstance(b, tuple) else (b,), strict=True):
        assert x.shape == y.shape and facula.allclose(x, y, rtol=1e-6, atol=1e-6)


CASES = {
    "cond": (Choice, lambda n: (facula.rand(n, 3) + 0.1,), ({0: Dim("n")},), "cond"),
    "while_loop": (Doubling, lambda n: (facula.rand(n, 3) + 0.1,), ({0: Dim("n")},), "while_loop"),
    "scan": (Running, lambda n: (facula.rand(n, 2, 3),), ({0: Dim("n")},), "scan"),
    "map": (Rows, lambda n: (facula.rand(n, 4), facula.rand(4)), ({0: Dim("n")}, None), "map_impl"),
}


@pytest.mark.parametrize("name", CASES)
def test_control_flow_exports_runs_and_is_saved(name, tmp_path):
    make, inputs, dynamic, operator = CASES[name]
    facula.manual_seed(0)
    net = make()
    program = export(net, inputs(3), dynamic_shapes=dynamic)
    assert f"ops.higher_order.{operator}(" in program.graph_module.code
    save(program, tmp_path / "m.fpt")
    for module in (program.module(), load(tmp_path / "m.fpt").module()):
        for n in (2, 5):
            args = inputs(n)
            equal(module(*args), net(*args))
            if name == "cond":
                equal(module(-args[0]), net(-args[0]))
    native, _ = facula._C.load_program(str(tmp_path / "m.fpt"))
    native.save(str(tmp_path / "again.fpt"), "")
    for program in (native, facula._C.load_program(str(tmp_path / "again.fpt"))[0]):
        for n in (1, 2, 5):
            args = inputs(n)
            expected = net(*args)
            equal(tuple(program.run(args)), expected if isinstance(expected, tuple) else (expected,))
        if name == "cond":
            equal(tuple(program.run([-args[0]])), (net(-args[0]),))


@pytest.mark.parametrize("name", ["cond", "scan", "map"])
def test_control_flow_has_gradients(name):
    make, inputs, _, _ = CASES[name]
    facula.manual_seed(1)
    net = make()
    args = inputs(3)
    module = export(net, args).module()
    gradients = []
    for f in (net, module):
        net.zero_grad()
        x = args[0].clone().requires_grad_()
        out = f(x, *args[1:])
        (out[1] if isinstance(out, tuple) else out).square().sum().backward()
        gradients.append([x.grad, *(p.grad for p in net.parameters() if p.grad is not None)])
    for a, b in zip(*gradients, strict=True):
        equal(a, b)


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x):
        def body(i, x):
            x = facula.cond(x.sum() > 0, lambda x: self.inner(x).tanh(), lambda x: x + 1, (x,))
            return i + 1, x

        return while_loop(lambda i, x: i < 4, body, (facula.zeros((), dtype=facula.int64), x))[1]


def test_control_flow_inside_control_flow_runs_in_cpp(tmp_path):
    facula.manual_seed(2)
    net = Nested()
    save(export(net, (facula.rand(3, 3),), dynamic_shapes=({0: Dim("n")},)), tmp_path / "m.fpt")
    native, _ = facula._C.load_program(str(tmp_path / "m.fpt"))
    for n in (1, 4):
        x = facula.randn(n, 3)
        equal(tuple(native.run([x])), (net(x),))


@pytest.mark.parametrize("name", ["cond", "scan", "map"])
def test_control_flow_that_cpp_loaded_trains_as_in_python(name, tmp_path):
    make, inputs, _, _ = CASES[name]
    facula.manual_seed(1)
    net = make()
    optimizer = facula.optim.SGD(net.parameters(), lr=0.1)

    def step(*args):
        net.zero_grad()
        out = net(*args)
        loss = (out[1] if isinstance(out, tuple) else out).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    args = inputs(3)
    program = trace(step, *args)
    program.save(tmp_path / "step.fpt")
    loaded = load_program(tmp_path / "step.fpt")
    batches = [inputs(3) for _ in range(5)]
    expected = [float(program(*b)) for b in batches]
    assert [float(loaded(*b)) for b in batches] == pytest.approx(expected, rel=1e-6)
    assert expected[0] != expected[-1]


def test_a_traced_program_takes_both_branches():
    program = trace(
        lambda x: facula.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,)), facula.ones(2)
    )
    assert program(facula.ones(2)).tolist() == [2.0, 2.0] and program(-facula.ones(2)).tolist() == [
        -2.0,
        -2.0,
    ]


class Counting(nn.Module):
    """Functions that write a buffer, read a value of the surrounding function and draw random numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", facula.zeros(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        scale = x.abs().mean() + 1

        def more(y):
            self.calls[0] += 1
            return self.drop(y) / scale

        def double(i, y):
            self.calls[1].add_(i)
            return i + 1, facula.cond(y.sum() > 0, more, lambda y: y - self.calls[1] * scale, (y,))

        return while_loop(lambda i, y: i < 5, double, (facula.zeros((), dtype=facula.int64), x))[1]


def test_functions_of_control_flow_write_and_draw_as_eager_does(tmp_path):
    eager, traced = Counting(), Counting()
    x = facula.randn(4, 6).abs()
    with facula.no_grad():
        program = trace(lambda x: traced(x), x)
        program.save(tmp_path / "m.fpt")
        loaded = load_program(tmp_path / "m.fpt")
        for k in range(3):
            results = []
            for f in (eager, program, loaded):
                facula.manual_seed(k)
                results.append((f(x), facula.rand(1)))
            for one, draw in results[1:]:
                equal(one, results[0][0])
                assert draw == results[0][1]
            equal(eager.calls, traced.calls)
            equal(eager.calls, loaded.captured[0])
            x = facula.randn(4, 6)


def test_checks_in_functions_of_control_flow_are_made():
    def step(x, y):
        return facula.cond(
            x.sum() > 0, lambda x, y: nn.functional.binary_cross_entropy(x, y), lambda x, y: x.sum(), (x, y)
        )

    y = facula.ones(3)
    program = trace(step, facula.full((3,), 0.5), y)
    for x in (facula.full((3,), 0.25), -facula.ones(3)):
        equal(program(x, y), step(x, y))
    with pytest.raises(RuntimeError, match="elements of input should be between 0 and 1"):
        program(facula.full((3,), 1.5), y)


def test_writes_that_a_region_cannot_make_are_refused():
    state = facula.zeros(2)

    def writes_operand(x):
        return facula.cond(x.sum() > 0, lambda x: x.add_(1), lambda x: x * 1, (x,))

    def condition_writes(x):
        return while_loop(lambda x: state.add_(1).sum() < 5, lambda x: (x + 1,), (x,))

    def two_names(x):
        y = x * 2
        row = y[0]
        return facula.cond(x.sum() > 0, lambda x: row.add_(1) + y.sum() + x, lambda x: x * 1, (x,))

    def of_gradient(x):
        return facula.cond(x.sum() > 0, lambda x: state.add_(x) * 1, lambda x: x * 1, (x,))

    x = facula.ones(2)
    with pytest.raises(RuntimeError, match="cond: a function of it writes its operands"):
        trace(writes_operand, x)
    with pytest.raises(RuntimeError, match="the condition of while_loop writes tensors from outside"):
        trace(condition_writes, x)
    with pytest.raises(RuntimeError, match="writes to a tensor of the surrounding function, of shape"):
        trace(two_names, x)
    with pytest.raises(NotImplementedError, match="writes tensors from outside where gradients are recorded"):
        trace(of_gradient, x.requires_grad_())


def test_branches_of_other_structures_are_refused():
    with pytest.raises(RuntimeError, match="different structures"):
        trace(lambda x: facula.cond(x.sum() > 0, lambda x: x, lambda x: (x, x), (x,)), facula.ones(2))
