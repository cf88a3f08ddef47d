"""Functions with a gradient of their own (autograd.Function) in traced programs: as in eager, to the bit."""

import random

import pytest
from facula.autograd.function import once_differentiable
from facula.program import load, trace
from facula.utils.checkpoint import checkpoint
from test_program import same

import facula
from facula import nn, optim
from facula.autograd import Function

facula.manual_seed(0)

# Gradients are not those of what forward computes, so that they show who gave them.


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 3


class Exp(Function):
    """Saves its result, whose history is the function's."""

    @staticmethod
    def forward(x):
        return x.exp()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * 0.5


class Scaled(Function):
    """An intermediate, plain values on ctx, an argument that is no tensor, gradients that are None."""

    @staticmethod
    def forward(ctx, x, scale, w=None):
        kept = x.sin() * scale
        ctx.scale, ctx.shape, ctx.has_w = scale, x.shape, w is not None
        ctx.save_for_backward(kept, None, x.t() if x.dim() == 2 else x)
        return kept + 1 if w is None else kept * w

    @staticmethod
    def backward(ctx, g):
        kept, nothing, xt = ctx.saved_tensors
        assert nothing is None and g.shape == ctx.shape
        x = xt.t() if xt.dim() == 2 else xt
        return g * kept * ctx.scale + x, None, g * 2 if ctx.has_w else None


class Wanted(Function):
    """Computes what is wanted."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * 2 if ctx.needs_input_grad[0] else None, g * x * 3 if ctx.needs_input_grad[1] else None


class Half(Function):
    """One of its arguments has no gradient at all."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, g):
        return g * 5, None


class Written(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 7


class WrittenAndSaved(Function):
    @staticmethod
    def forward(ctx, x, y):
        x.add_(y)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x, y)
        return x, x * y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g + h * y * x, h * 2


class Several(Function):
    """A result that carries no gradient, one of integers, one that is no tensor."""

    @staticmethod
    def forward(ctx, x):
        top, at = x.max(-1)
        below = x - top.unsqueeze(-1)
        ctx.mark_non_differentiable(top)
        ctx.save_for_backward(at)
        return below, top, at, "plain"

    @staticmethod
    def backward(ctx, g, g_top, g_at, nothing):
        assert g_top.shape == g_at.shape and nothing is None or True
        return g * 2 + g_top.unsqueeze(-1)


class Two(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2, x.exp()

    @staticmethod
    def backward(ctx, g, h):
        return g * 3 + h * 4


class Missing(Function):
    """As Two, where a gradient that does not arrive is None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x.exp()

    @staticmethod
    def backward(ctx, g, h):
        if g is None:
            return h * 4
        return g * 3 if h is None else g * 3 + h * 4


class Same(Function):
    """Gives its argument back: another tensor over the same memory."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class Part(Function):
    """Gives a view of its argument."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x[0]

    @staticmethod
    def backward(ctx, g):
        return g.expand(ctx.shape) * 2


class Inner(Function):
    """Differentiates in its backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with facula.enable_grad():
            z = x.detach().requires_grad_()
            return facula.autograd.grad(z.tanh() * 2, z, g)[0]


class Nested(Function):
    """Calls another function in forward and in backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Square.apply(x) + 1

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * Square.apply(x)


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.cos() * 2


class Attribute(Function):
    """Keeps tensors as attributes."""

    @staticmethod
    def forward(ctx, x):
        ctx.y, ctx.mask = x.relu(), x > 0
        return ctx.y

    @staticmethod
    def backward(ctx, g):
        return facula.where(ctx.mask, g, g * 0.25) + ctx.y


class Given(Function):
    """Arguments by keyword, and defaults."""

    @staticmethod
    def forward(x, factor=2.0):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor * 2, None


def dirty_view(x):
    y = x * 1
    Written.apply(y[1:])
    return y * y


def aliased(x):
    y = x * 1
    z = Same.apply(y)
    u = z[1]
    with facula.no_grad():
        y.add_(1)  # is seen in z, whose history stays
    return z * 2 + u


def closure(x):
    scale = x.detach().sum() + 1

    class Local(Function):
        @staticmethod
        def forward(ctx, x):
            return x * scale

        @staticmethod
        def backward(ctx, g):
            return g * scale * 2

    return Local.apply(x)


PROGRAMS = {
    "square": lambda x, y: Square.apply(x * y),
    "result": lambda x, y: Exp.apply(x) * y,
    "intermediate": lambda x, y: Scaled.apply(x, 0.5) + Scaled.apply(x, 2, y),
    "wanted": lambda x, y: (
        Wanted.apply(x, y) + Wanted.apply((x * 1).detach(), y) + Wanted.apply(x, (y * 1).detach())
    ),
    "half": lambda x, y: Half.apply(x, y) * y,
    "written": lambda x, y: Written.apply(x * y) * y,
    "written and saved": lambda x, y: WrittenAndSaved.apply(x * 1, y),
    "written view": lambda x, y: dirty_view(x) + y,
    "several": lambda x, y: [t * 1.5 for t in Several.apply(x)[:2]] + [y],
    "integers": lambda x, y: Several.apply(x)[2].unsqueeze(-1) + y,
    "two": lambda x, y: Two.apply(x)[0] * y + Two.apply(y)[1],
    "missing": lambda x, y: (
        Missing.apply(x)[0] * y + Missing.apply(y)[1] + sum(Missing.apply(x * y)) + Missing.apply(y)[0]
    ),
    "same": lambda x, y: Same.apply(x) * Same.apply(y),
    "aliased": lambda x, y: aliased(x) + y,
    "part": lambda x, y: Part.apply(x) * y,
    "inner": lambda x, y: Inner.apply(x) * y,
    "nested": lambda x, y: Nested.apply(x) * y,
    "once": lambda x, y: Once.apply(x) * y,
    "attribute": lambda x, y: Attribute.apply(x) * y,
    "given": lambda x, y: Given.apply(x) * Given.apply(y, factor=3.0),
    "closure": lambda x, y: closure(x) * y,
    "twice": lambda x, y: (lambda z: z * Square.apply(z))(Square.apply(x)) + y,
    "checkpoint": lambda x, y: checkpoint(
        lambda a, b: Exp.apply(Square.apply(a) * b), x, y, use_reentrant=False
    ),
    "without history": lambda x, y: (Square.apply(x.detach()) + y, no_grad(x)),
}


@facula.no_grad()
def no_grad(x):
    return Square.apply(x) + Same.apply(x)


def gradients(outputs, inputs, create_graph=False, weights=None):
    outputs = [t for t in outputs if t.requires_grad]
    return facula.autograd.grad(
        outputs, inputs, weights or [facula.ones_like(t) * 0.5 for t in outputs],
        create_graph=create_graph, allow_unused=True,
    )  # fmt: skip


def as_list(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def compare(f, p, shapes=((3, 4), (3, 4)), second=True, tolerance=0.0):
    """Results, gradients, and gradients of gradients of the two, of all inputs and of each alone."""
    values = [facula.randn(s) for s in shapes]
    for wanted in ((True, True), (True, False), (False, True), (False, False)):
        found = []
        for g in (f, p):
            inputs = [v.clone().requires_grad_(w) for v, w in zip(values, wanted)]
            leaves = [t for t in inputs if t.requires_grad]
            outputs = as_list(g(*inputs))
            row = [[t.detach() for t in outputs], [t.requires_grad for t in outputs]]
            if any(t.requires_grad for t in outputs):
                row.append(gradients(outputs, leaves))
            if second and any(t.requires_grad for t in outputs):
                first = [
                    t for t in gradients(as_list(g(*inputs)), leaves, create_graph=True) if t is not None
                ]
                found_second = [None] * len(leaves)
                if any(t.requires_grad for t in first):
                    found_second = gradients([t * t for t in first if t.requires_grad], leaves)
                # A gradient that is zero may be None.
                row.append([facula.zeros_like(x) if t is None else t for t, x in zip(found_second, leaves)])
            found.append(row)
        same(found[1], found[0], tolerance)


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, tmp_path):
    f = PROGRAMS[name]
    second = name not in ("once",)
    example = (facula.randn(3, 4), facula.randn(3, 4))
    for required in ((True, True), (False, False), (True, False)):
        p = trace(f, *[x.clone().requires_grad_(r) for x, r in zip(example, required)])
        compare(f, p, second=second)
    p.save(tmp_path / "program")
    loaded = load(tmp_path / "program")
    assert str(loaded) == str(p)
    compare(f, loaded, second=second)


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_a_step_of_training(name):
    f = PROGRAMS[name]
    found = []
    values = facula.randn(3, 4), facula.randn(3, 4), facula.randn(3, 4)
    for traced in (False, True):
        w, v = (x.clone().requires_grad_() for x in values[:2])
        optimizer = optim.SGD([w, v], lr=0.01)

        def step(x, w=w, v=v, optimizer=optimizer):
            optimizer.zero_grad()
            outputs = as_list(f(w * x, v)) + as_list(f(x, w))
            loss = sum((t * t).sum() for t in outputs if t.requires_grad)
            loss.backward()
            optimizer.step()
            return loss.detach()

        g = trace(step, values[2]) if traced else step
        found.append(
            [[g(x * 0.1), w.grad.clone(), v.grad.clone()] for x in values] + [w.detach(), v.detach()]
        )
    same(found[1], found[0], 1e-6)


def test_a_gradient_inside_of_the_program_has_one_itself():
    def f(x, y):
        return facula.autograd.grad((Exp.apply(x) * Wanted.apply(x, y)).sum(), x, create_graph=True)[0]

    x, y = (facula.randn(3, 4, requires_grad=True) for _ in range(2))
    p = trace(f, x, y)
    expected, found = (gradients([g(x, y)], (x, y)) for g in (f, p))
    same(found, expected)


class Twice(Function):
    """Its backward calls it again."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return Twice.apply(g)


def test_a_backward_that_calls_its_function_again_is_traced_for_a_few_orders():
    def f(x, order):
        y = Twice.apply(x).pow(4)
        for _ in range(order):
            (y,) = facula.autograd.grad(y.sum(), x, create_graph=True)
        return y

    x = facula.randn(3, requires_grad=True)
    for order in range(5):
        p, compiled = trace(lambda x: f(x, order), x), facula.compile(f)  # noqa: B023
        for g in (p, lambda x: compiled(x, order), lambda x: compiled(x, order)):  # noqa: B023
            same(g(x), f(x, order), 1e-5)
            if order < 3:
                same(gradients([g(x)], [x]), gradients([f(x, order)], [x]), 1e-5)


def test_what_forward_and_backward_see():
    """needs_input_grad is what it is in eager, and backward runs outside of autocast."""
    seen = []

    class Look(Function):
        @staticmethod
        def forward(ctx, x, y, n):
            seen.append(ctx.needs_input_grad)
            return x @ y

        @staticmethod
        def backward(ctx, g):
            seen.append((ctx.needs_input_grad, facula.is_autocast_enabled(), g.dtype))
            return g * 2, g * 3, None

    def f(x, w):
        with facula.autocast("cpu"):
            return Look.apply(x, w, 2)

    w = facula.randn(3, 3, requires_grad=True)

    def step(x):
        f(x, w).sum().backward()

    trace(step, facula.randn(3, 3))
    low = facula.bfloat16
    assert seen == [
        (False, True, False),
        ((False, True, False), False, low),
        ((True, True, False), False, low),
    ]
    x = facula.randn(3, 3, requires_grad=True)
    p = trace(f, x, w)
    expected, found = (gradients([g(x, w)], (x, w)) for g in (f, p))
    same(found, expected)


def test_a_function_is_applied_to_captured_tensors():
    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(facula.randn(4, 4))
            self.register_buffer("calls", facula.zeros(()))

        def forward(self, x):
            self.calls += 1
            return x @ Square.apply(self.weight) * Part.apply(self.weight)

    layers = Layer(), Layer()
    layers[1].load_state_dict(layers[0].state_dict())
    x = facula.randn(2, 4)
    p = trace(layers[1], x)
    for _ in range(2):
        for g in (layers[0], p):
            g(x).sum().backward()
    same(layers[1].weight.grad, layers[0].weight.grad)
    same(layers[1].calls, layers[0].calls)


def test_written_arguments():
    x = facula.randn(3, 4)
    for f in (lambda x: Written.apply(x), lambda x: Written.apply(x[1:]) * 2):
        p = trace(f, x)
        found = []
        for g in (f, p):
            leaf = x.clone().requires_grad_()
            given = leaf * 1
            y = g(given)
            found.append([y.detach(), given.detach(), *gradients([y, given], [leaf])])
        same(found[1], found[0])


def test_a_written_result_of_one_that_gives_its_argument_back_is_refused():
    def f(x):
        y = Same.apply(x * 1)
        y.mul_(2)
        return y

    with pytest.raises(
        NotImplementedError, match=r"mul_: writes to a result of a custom function.*\n.*clone"
    ):
        trace(f, facula.ones(3))


def test_what_a_backward_cannot_do_is_told_when_its_gradient_is_wanted():
    counter = facula.zeros(())

    def function(backward, forward=lambda ctx, x: x * 2):
        return type(
            "Bad", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        )

    def written(ctx, g):
        counter.add_(1)
        return g

    def into_grad(ctx, g):
        z = g.detach().requires_grad_()
        (z * 2).sum().backward()
        return z.grad

    def broken(ctx, g):
        raise KeyError("of mine")

    cases = [
        (
            written,
            NotImplementedError,
            r"Bad: its backward cannot be part of a program: add_: writes.*outside of it",
        ),
        (lambda ctx, g: g * facula.rand(3), RuntimeError, "draws random numbers"),
        (lambda ctx, g: g * g.sum().item(), NotImplementedError, "looks at the elements of a tensor"),
        (into_grad, NotImplementedError, r"backward: is called in the backward of a custom function"),
        (broken, RuntimeError, "of mine"),
        (lambda ctx, g: (g, g), RuntimeError, r"incorrect number of gradients \(expected 1, got 2\)"),
    ]
    for backward, kind, text in cases:
        p = trace(function(backward).apply, facula.ones(3, requires_grad=True))
        same(p(facula.ones(3)), facula.full((3,), 2.0))
        with pytest.raises(kind, match=text):
            p(facula.ones(3, requires_grad=True))
    assert counter == 0
    kept = []
    leaks = function(lambda ctx, g: kept.append(g * 2) or g)

    def leaking(x):
        leaks.apply(x)
        return kept[-1] + 1

    with pytest.raises(NotImplementedError, match="from the backward of a custom function is read outside"):
        trace(leaking, facula.ones(3, requires_grad=True))

    def late(x):
        state = x * 2
        y = function(lambda ctx, g: g * state).apply(x)
        with facula.no_grad():
            state.add_(1)
        return y

    with pytest.raises(
        NotImplementedError, match="Bad: has a backward that reads a tensor which is written behind"
    ):
        trace(late, facula.ones(3, requires_grad=True))


class Doubling(facula.autograd.Function):
    """Rows one after another, twice."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return facula.cat([x * scale, x]).flatten()

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        first, second = (part.view_as(x) for part in g.view(2, -1))
        return first * scale + second + facula.ones_like(x), first.sum(0) * 2


@pytest.mark.parametrize("f", [
    lambda x, s: Square.apply(x).sum(0) * s,
    lambda x, s: Doubling.apply(x, s) * Square.apply(s).sum(),
    lambda x, s: Square.apply(Doubling.apply(x[1:], s).view(-1, 3)).exp().mean(),
], ids=["square", "doubling", "both"])  # fmt: skip
def test_gradients_follow_sizes(f, tmp_path):
    made = [facula.randn(4, 3, requires_grad=True), facula.randn(3, requires_grad=True)]
    p = trace(f, *made, dynamic=True)
    p.save(tmp_path / "p")
    read = facula.program.load(tmp_path / "p")
    for rows in (4, 3, 7, 4):
        inputs = [facula.randn(rows, 3, requires_grad=True), facula.randn(3, requires_grad=True)]
        expected = gradients([f(*inputs)], inputs, create_graph=True)
        twice = gradients(expected, inputs)
        for program in (p, read):
            found = gradients([program(*inputs)], inputs, create_graph=True)
            same(found, expected)
            same(gradients(found, inputs), twice)


def test_a_step_with_a_custom_function_follows_sizes():
    def net():
        facula.manual_seed(0)
        model = facula.nn.Linear(3, 4)
        optimizer = facula.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = Square.apply(model(x)).mean()
            loss.backward()
            optimizer.step()
            return loss

        return model, step

    (ours, step), (theirs, eager) = net(), net()
    step(facula.ones(4, 3)), eager(facula.ones(4, 3))
    program = trace(step, facula.randn(4, 3), dynamic=True)
    for rows in (4, 9, 2, 9):
        x = facula.randn(rows, 3)
        same([program(x)], [eager(x)])
    same(list(ours.parameters()), list(theirs.parameters()))


def test_differentiating_once():
    x = facula.randn(3, requires_grad=True)
    p = trace(lambda x: Once.apply(x), x)
    same(gradients([p(x)], [x]), gradients([Once.apply(x)], [x]))
    with pytest.raises(RuntimeError, match="marked with @once_differentiable"):
        gradients(gradients([p(x)], [x], create_graph=True), [x])


def test_vmap_and_forward_mode():
    x = facula.randn(2, 3)

    def f(x):
        return Exp.apply(x) * 2

    def gradient(f):
        return facula.func.vmap(facula.func.grad(lambda x: f(x).sum()))(x)

    p = trace(f, x[0].clone().requires_grad_())
    same(facula.func.vmap(p)(x), facula.func.vmap(f)(x))
    same(gradient(p), gradient(f))
    with pytest.raises(NotImplementedError, match="Exp.apply is called inside of vmap"):
        trace(lambda x: facula.func.vmap(f)(x), x)
    with pytest.raises((NotImplementedError, RuntimeError)):
        facula.func.jvp(p, (x[0],), (x[1],))


def step_of(pick):
    """A random function of two tensors: custom functions between operators, views, writes, checkpoints."""
    unary = [Square, Exp, Inner, Nested, Attribute, Same, Missing, Two, Several, Written, Once, Part, Given]
    binary = [Wanted, Half, WrittenAndSaved]
    plan = [(pick.randrange(1 << 30), pick.random()) for _ in range(pick.randrange(2, 9))]

    def f(x, y):
        alive = [x * 1, y * 1]
        for number, kind in plan:
            t, u = alive[number % len(alive)], alive[number // 7 % len(alive)]
            if kind < 0.45:
                made = unary[number // 3 % len(unary)]
                if made is Written:  # of memory that nobody reads for a gradient
                    alive.append(made.apply(t * 0.5))
                    continue
                results = as_list(made.apply((t * 0.25).tanh().expand(3, 4)))[: 1 + number % 2]
                alive += [v for v in results if isinstance(v, facula.Tensor) and v.shape != (3,)]
            elif kind < 0.65:
                made = binary[number // 3 % len(binary)]
                alive += as_list(made.apply(t * 0.5, u.tanh()))
            elif kind < 0.75:
                alive.append(checkpoint(lambda a: Square.apply(a.sin()) * 0.5, t, use_reentrant=False))
            elif kind < 0.85:
                with facula.no_grad():
                    alive.append(Square.apply(t.tanh()))
            elif kind < 0.95:
                alive.append(t[..., 1:2] * u[:1])
            else:
                alive.append((t * u).detach().tanh())
        return tuple(t * 1 for t in alive)

    return f


@pytest.mark.parametrize("part", range(4))
def test_random_programs_of_functions(part):
    for seed in range(part, 48, 4):
        f = step_of(random.Random(seed))
        required = (True, True) if seed % 3 else (False, False)
        p = trace(f, *[facula.randn(3, 4).requires_grad_(r) for r in required])
        compare(f, p, second=False, tolerance=1e-6)
