"""`compile(backend=function)`: a backend gets the program's calls as graphs; what it gives runs instead."""

import operator

import pytest
from facula.fx import GraphModule

import facula
import facula.nn as nn


class Backend:
    """Notes the graphs that it is asked for."""

    def __init__(self):
        self.graphs = []

    def __call__(self, module, inputs):
        assert isinstance(module, GraphModule)
        assert len(inputs) == sum(n.op == "placeholder" for n in module.graph.nodes)
        self.graphs.append([n.name for n in module.graph.nodes if n.op not in ("placeholder", "output")])
        return module.forward


def test_a_function_is_one_graph_that_is_compiled_once():
    backend = Backend()
    f = facula.compile(lambda x, y: (x.sin() + y) * 2, backend=backend)
    x, y = facula.rand(3), facula.rand(3)
    for _ in range(3):
        assert facula.equal(f(x, y), (x.sin() + y) * 2)
    assert backend.graphs == [["sin", "add", "mul"]]
    f(facula.rand(4), facula.rand(4))  # of other sizes
    assert len(backend.graphs) == 2


def test_graphs_of_calls_without_gradients_have_no_other_nodes():
    backend = Backend()
    f = facula.compile(lambda x: (x.relu() * 2 + 1).view(-1), backend=backend)
    with facula.no_grad():
        f(facula.ones(2, 2))
    assert backend.graphs == [["relu", "mul", "add"]]  # a last view is made of the result


def test_what_a_backend_gives_runs_instead():
    def backend(module, inputs):
        for node in module.graph.nodes:
            if node.target is facula.ops.aten.sin.default:
                node.target = facula.ops.aten.cos.default
        module.recompile()
        return module

    assert facula.compile(lambda x: facula.sin(x), backend=backend)(facula.zeros(2)).tolist() == [1.0, 1.0]


def test_a_branch_on_elements_ends_a_graph_and_python_runs_once():
    backend, seen = Backend(), []

    def f(x):
        y = x * 2
        seen.append(float(y.sum()))
        if y.sum() > 0:
            seen.append("positive")
            return y + 1
        return y - 1

    compiled = facula.compile(f, backend=backend)
    assert compiled(facula.ones(2)).tolist() == [3.0, 3.0]
    assert compiled(-facula.ones(2)).tolist() == [-3.0, -3.0]
    assert seen == [4.0, "positive", -4.0]
    assert backend.graphs[0] == ["mul", "sum_1"]


def test_a_module_trains_as_in_eager():
    def made():
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 2))
        with facula.no_grad():
            for p in net.parameters():
                p.copy_(facula.linspace(-1, 1, p.numel()).view_as(p))
        return net

    eager, compiled, backend = made(), made(), Backend()
    wrapped = facula.compile(compiled, backend=backend)
    x, target = facula.rand(6, 4), facula.tensor([0, 1, 0, 1, 1, 0])
    for net in (eager, wrapped):
        facula.manual_seed(3)
        optimizer = facula.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), target).backward()
            optimizer.step()
    for name, value in eager.state_dict().items():
        assert facula.equal(value, compiled.state_dict()[name]), name
    assert len(backend.graphs) == 1
    wrapped.eval()
    eager.eval()
    assert facula.equal(eager(x), wrapped(x)) and len(backend.graphs) == 2


def test_inputs_that_are_written_are_written_once_and_views_stay_views():
    def f(cache, row):
        cache[1] = row
        cache.add_(1)
        view = cache.view(-1)
        view.mul_(2)
        return view, cache.sum()

    cache = facula.zeros(2, 2)
    view, total = facula.compile(f, backend=Backend())(cache, facula.tensor([1.0, 2.0]))
    assert cache.tolist() == [[2.0, 2.0], [4.0, 6.0]] and total.item() == 14.0
    view.zero_()
    assert cache.sum() == 0


@pytest.mark.parametrize("inside", [False, True], ids=["inside", "outside"])
def test_random_numbers_are_those_of_eager(inside):
    def f(x):
        if inside:
            facula.manual_seed(7)
        y = nn.functional.dropout(x)
        if inside:
            facula.manual_seed(8)
        return y + facula.rand(3)

    facula.manual_seed(5)
    want = f(facula.ones(3))
    after = facula.rand(2)
    facula.manual_seed(5)
    got = facula.compile(f, backend=Backend())(facula.ones(3))
    assert facula.equal(got, want) and facula.equal(facula.rand(2), after)


def test_gradient_modes_backward_and_custom_functions_are_as_in_eager():
    class Hundred(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return grad * 100

    def f(x):
        y = Hundred.apply(x * 2)
        with facula.no_grad():
            frozen = y * 3
        assert not frozen.requires_grad and y.requires_grad and y.device.type == "cpu" and not y.is_meta
        return y * frozen

    x = facula.ones(2, requires_grad=True)
    facula.compile(f, backend=Backend())(x).sum().backward()
    assert x.grad.tolist() == [1200.0, 1200.0]

    def step(x):
        loss = (x * x).sum()
        loss.backward()
        return x.grad * 1

    y = facula.ones(2, requires_grad=True)
    assert facula.compile(step, backend=Backend())(y).tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: facula.vmap(lambda r: r * 2)(x + 1),
        lambda x: facula.func.grad(lambda t: t.sin().sum())(x),
        lambda x: facula.func.jvp(lambda t: t.sin(), (x,), (facula.ones(4),))[1],
        lambda x: x[x > 1],
        lambda x: facula.unique(x),
        lambda x: [c + 1 for c in x.chunk(2)],
        lambda x: x.T,
        lambda x: {"a": x.max(0), "b": len(x), "c": x.shape},
        lambda x: facula.arange(3, device=x.device) + x[:3],
        lambda x: x.to("cpu").double(),
        lambda x: facula.from_numpy(x.numpy()) + x,
        lambda x: facula.tensor([1.0, 2.0]) * x[:2],
    ],
)
def test_calls_of_every_kind_give_what_they_give_in_eager(f):
    x = facula.tensor([0.5, 1.5, 1.5, 2.5])
    got, want = facula.compile(f, backend=Backend())(x), f(x)
    facula.testing.assert_close(*(facula.utils._pytree.tree_leaves(r) for r in (got, want)))


@pytest.mark.parametrize("name", ["SGD", "AdamW", "LBFGS"])
def test_a_step_of_training_is_that_of_eager(name):
    def trained(wrap):
        net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
        with facula.no_grad():
            for p in net.parameters():
                p.copy_(facula.linspace(-1, 1, p.numel()).view_as(p))
        optimizer = getattr(facula.optim, name)(net.parameters(), lr=0.001 if name == "LBFGS" else 0.05)
        x = facula.linspace(-1, 2, 15).view(5, 3)

        def closure():
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            for p in net.parameters():
                p.grad.mul_(0.5)
            nn.utils.clip_grad_norm_(net.parameters(), 0.7)
            return loss

        def step():
            if name == "LBFGS":
                return optimizer.step(closure)
            loss = closure()
            with facula.no_grad():
                for p in net.parameters():
                    p.add_(0.01)
            optimizer.step()
            for p in net.parameters():
                p.data.mul_(0.99)
            return loss

        run = wrap(step)
        return [run().item() for _ in range(3)] + [v for p in net.parameters() for v in p.flatten().tolist()]

    assert trained(lambda f: f) == pytest.approx(trained(facula.compile(backend=Backend())), rel=1e-5)


def test_memory_that_numpy_shares_is_read_when_it_is_asked_for():
    def f(x):
        array = x.numpy()
        y = x * 2
        array[0] = 100
        z = x * 2
        return y + z

    got = facula.compile(f, backend=Backend())(facula.ones(2))
    assert got.tolist() == [202.0, 4.0]


def test_errors_are_those_of_the_program():
    written = facula.zeros(2)

    def f(x):
        written.add_(1)
        return x @ facula.ones(5)

    with pytest.raises(RuntimeError, match="matmul"):
        facula.compile(f, backend=Backend())(facula.ones(2))
    assert written.tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="gives 2 results, the graph has 1"):
        facula.compile(lambda x: x + 1, backend=lambda m, i: lambda *a: (a[0], a[0]))(facula.ones(2))
    with pytest.raises(TypeError, match="which is no function"):
        facula.compile(lambda x: x + 1, backend=lambda m, i: None)(facula.ones(2))
    with pytest.raises(TypeError, match="expected a function or a module"):
        facula.compile(3, backend=Backend())


def test_a_decorator_with_options():
    given = {}

    def backend(module, inputs, *, options):
        given.update(options)
        return module

    @facula.compile(backend=backend, options={"level": 2})
    def f(x):
        """Twice."""
        return operator.mul(x, 2)

    assert f(facula.ones(1)).item() == 2.0 and given == {"level": 2} and f.__doc__ == "Twice."


# ---- operators


def test_make_fx_gives_the_operators_that_run():
    def f(x, w):
        return nn.functional.linear(x, w).relu().sum()

    from facula.fx.experimental.proxy_tensor import make_fx

    x, w = facula.rand(2, 3), facula.rand(4, 3)
    traced = make_fx(f)(x, w)
    assert [str(n.target) for n in traced.graph.nodes] == [
        "x_1", "w_1", "aten.t.default", "aten.mm.default", "aten.relu.default", "aten.sum.default", "output",
    ]  # fmt: skip
    other = facula.rand(2, 3)
    assert facula.equal(traced(other, w), f(other, w))
    step = make_fx(lambda p, x: p - facula.autograd.grad((x @ p).square().mean(), p)[0])
    p, x = facula.rand(3, 2, requires_grad=True), facula.rand(4, 3)
    made = step(p, x)
    q = facula.rand(3, 2, requires_grad=True)
    facula.testing.assert_close(made(q, x), q - facula.autograd.grad((x @ q).square().mean(), q)[0])
    nested = make_fx(lambda d: {"sum": d["a"] + d["b"][0]})({"a": x, "b": [x]})
    assert facula.equal(nested({"a": x, "b": [x]})["sum"], x + x)


def test_make_fx_refuses_what_would_be_a_constant():
    from facula.fx.experimental.proxy_tensor import make_fx

    for f in (lambda x: x + x.item(), lambda x: x + 1 if x > 0 else x, lambda x: x * float(x.sum())):
        with pytest.raises(RuntimeError, match="trying to get value out of a tracing tensor"):
            make_fx(f)(facula.ones(1))
    assert make_fx(lambda x: x * facula.ones(1).item())(facula.ones(2))(facula.ones(3)).tolist() == [1.0] * 3
    with pytest.raises(NotImplementedError, match="symbolic"):
        make_fx(lambda x: x, tracing_mode="symbolic")
    with pytest.raises(NotImplementedError, match="the argument k is 3"):
        make_fx(lambda x, k: x * k)(facula.ones(1), 3)
    written = facula.ones(2)
    make_fx(lambda x: x.add_(1), tracing_mode="fake")(written)
    assert written.tolist() == [1.0, 1.0]


def test_backward_divides_the_graphs_that_a_backend_gets():
    def step(x, w):
        loss = (x * w).square().sum()
        loss.backward()
        w.grad.mul_(0.5)
        with facula.no_grad():
            w.sub_(w.grad)
        return loss

    def trained(f):
        w = facula.tensor([1.0, 2.0], requires_grad=True)
        losses = [f(facula.tensor([0.5, 0.25]), w).item() for _ in range(3)]
        return losses, w.tolist(), w.grad.tolist()

    backend = Backend()
    assert trained(facula.compile(step, backend=backend)) == trained(step)
    assert [g[:2] for g in backend.graphs[:2]] == [["mul", "square"], ["mul", "sub"]]
    with pytest.raises(RuntimeError, match="whose graphs hold no gradients"):
        trained(facula.compile(step, backend=Backend(), fullgraph=True))
    with pytest.raises(RuntimeError, match="whose graphs hold no gradients"):
        x = facula.ones(2, requires_grad=True)
        facula.compile(lambda x: facula.autograd.grad(x.sum(), x), backend=Backend(), fullgraph=True)(x)


def test_a_custom_function_without_gradients_is_part_of_a_graph():
    class Square(facula.autograd.Function):
        @staticmethod
        def forward(ctx, x, notes):
            ctx.save_for_backward(x)
            notes.append(x.dim())
            return x * x

        @staticmethod
        def backward(ctx, grad):
            raise AssertionError("it is not called")

    def f(x):
        notes = []
        with facula.no_grad():
            y = Square.apply(x + 1, notes) + 1
        return y, notes

    backend, x = Backend(), facula.ones(2, requires_grad=True)
    run = facula.compile(f, backend=backend, fullgraph=True)
    for k in range(3):
        y, notes = run(x.detach() + k)
        assert y.tolist() == [(2 + k) ** 2 + 1] * 2 and notes == [1] and not y.requires_grad
    assert len(backend.graphs) == 1 and backend.graphs[0][0] == "add"
    assert not run(x)[0].requires_grad
