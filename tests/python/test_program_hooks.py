"""What a traced function depends on besides its calls: hooks, saved-tensor hooks, retained gradients, modes,
schedules, and the Python objects that it has read. Each gives eager's numbers, or is refused."""

import pytest
from facula.program import Break, trace
from test_program import same
from test_program_training import batch, mlp, step_of, twins

import facula
from facula import nn, optim
from facula.nn import functional as F


def step_gradients(build, *inputs, calls=2):
    """The leaf's gradient and the results of a step in eager and traced, for calls with different numbers."""
    found = []
    for traced in (False, True):
        facula.manual_seed(5)
        w = facula.randn(3, requires_grad=True)
        step = build(w)
        run = trace(step, *inputs) if traced else step
        results = []
        for k in range(calls):
            w.grad = None
            out = run(*[x + k for x in inputs])
            results.append((out.detach(), w.grad.clone()))
        found.append(results)
    same(found[0], found[1], 1e-6)
    return found[0]


def test_a_hook_on_an_intermediate_tensor_changes_the_gradient():
    def build(w):
        def step(x):
            w.grad = None
            y = w * 2
            early = y.exp().sum()
            y.register_hook(lambda g: g * 2)
            loss = (y * x).sum() + early
            loss.backward()
            return loss

        return step

    step_gradients(build, facula.ones(3))
    w = facula.ones(1, requires_grad=True)

    def step(x):
        w.grad = None
        y = w * x
        y.register_hook(lambda g: g * 2)
        (y * 2).sum().backward()

    trace(step, facula.tensor([2.0]))(facula.tensor([2.0]))
    assert w.grad.item() == 8.0  # 4 without the hook


def test_hooks_of_leaves_and_after_accumulation_run_in_the_order_of_eager():
    orders = []
    for traced in (False, True):
        a, b = facula.ones(2, requires_grad=True), facula.full((2,), 3.0, requires_grad=True)
        order = []

        def note(name, factor=None):
            def hook(g):
                order.append(name)
                return None if factor is None else g * factor

            return hook

        a.register_hook(note("a", 2))
        b.register_hook(note("b", 3))
        a.register_post_accumulate_grad_hook(lambda p: order.append("after a") or p.grad.mul_(5))
        b.register_post_accumulate_grad_hook(lambda p: order.append("after b"))

        def step(x):
            a.grad = b.grad = None
            y = a * x
            y.register_hook(note("y", 7))
            z = y * b
            z.register_hook(note("z"))
            z.sum().backward()

        x = facula.tensor([1.0, 2.0])
        (trace(step, x) if traced else step)(x)
        orders.append((order, a.grad, b.grad))
    assert orders[0][0] == orders[1][0] == ["z", "b", "after b", "y", "a", "after a"]
    same(orders[0][1:], orders[1][1:], 1e-6)


def test_an_optimizer_that_steps_in_hooks_after_accumulation():
    def world():
        facula.manual_seed(2)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
        for p in model.parameters():
            own = optim.SGD([p], lr=0.1, momentum=0.9)

            def hook(p, own=own):
                own.step()
                own.zero_grad()

            p.register_post_accumulate_grad_hook(hook)

        def step(x):
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return model, step

    (eager, theirs), (traced, ours) = world(), world()
    x = facula.randn(3, 4)
    program = trace(ours, x)
    for _ in range(3):
        same(theirs(x).detach(), program(x), 1e-6)
    same(dict(eager.state_dict()), dict(traced.state_dict()), 1e-5)


def test_a_hook_that_is_removed_or_removes_itself():
    def build(w):
        def step(x):
            w.grad = None
            y = w * x
            y.register_hook(lambda g: g * 10).remove()
            handle = y.register_hook(lambda g: (handle.remove(), g * 3)[1])
            y.sum().backward(retain_graph=True)
            (y * 2).sum().backward()
            return y.sum()

        return step

    step_gradients(build, facula.ones(3))


def test_hooks_with_gradients_of_gradients():
    def build(w):
        def step(x):
            w.grad = None
            y = w * w
            y.register_hook(lambda g: g * y)
            (g,) = facula.autograd.grad((y * x).sum(), w, create_graph=True)
            loss = (g * g).sum()
            loss.backward()
            return loss

        return step

    step_gradients(build, facula.ones(3))


def test_hooks_whose_gradients_leave_the_trace_are_refused():
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 2)
        return y.sum()

    with pytest.raises(NotImplementedError, match="register_hook") as e:
        trace(f, facula.ones(2, requires_grad=True))
    assert e.value.trace_break.reason == "hooks" and "test_program_hooks.py" in e.value.trace_break.line


def test_hooks_that_come_later_are_noticed():
    w = facula.ones(2, requires_grad=True)

    def step(x):
        w.grad = None
        (w * x).sum().backward()

    x = facula.ones(2)
    program = trace(step, x)
    program(x)
    handle = w.register_hook(lambda g: g * 2)
    with pytest.raises(ValueError, match="hooks of a tensor"):
        program(x)
    handle.remove()
    program(x)
    handle = w.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(ValueError, match="hooks of a tensor"):
        program(x)
    handle.remove()
    leaf = facula.ones(2, requires_grad=True)
    of_argument = trace(lambda x: x.exp().sum().backward(), leaf)
    leaf.register_hook(lambda g: g * 2)
    with pytest.raises(ValueError, match="hooks of a tensor"):
        of_argument(leaf)


def test_retained_gradients():
    def build(w):
        def step(x):
            w.grad = None
            y = w * x
            y.retain_grad()
            assert not y.is_leaf and y.retains_grad
            (y * y).sum().backward()
            return y.grad

        return step

    step_gradients(build, facula.ones(3))

    def returned(x):
        y = x * 3
        y.retain_grad()
        y.square().sum().backward()
        return y

    x = facula.ones(2, requires_grad=True)
    y = trace(returned, x)(x)
    same(y.grad, facula.full((2,), 6.0))


def test_leaves_that_a_function_makes():
    def build(w):
        def step(x):
            w.grad = None
            z = (w * x).detach().requires_grad_()
            assert z.is_leaf
            z.exp().sum().backward()
            (w * z.grad).sum().backward()
            return z.grad

        return step

    step_gradients(build, facula.ones(3))


@pytest.mark.parametrize("lossy", [False, True])
def test_saved_tensor_hooks(lossy):
    pack = (lambda t: (t * 4).round() / 4) if lossy else (lambda t: [t])
    unpack = (lambda t: t) if lossy else (lambda box: box[0])

    def build(w):
        def step(x):
            w.grad = None
            with facula.autograd.graph.saved_tensors_hooks(pack, unpack):
                loss = (w * x * w).sum()
            loss = loss + (w * x).sum()
            loss.backward()
            return loss

        return step

    step_gradients(build, facula.full((3,), 0.3))
    with pytest.raises(NotImplementedError, match="saved_tensors_hooks"):

        def forward(x):
            with facula.autograd.graph.saved_tensors_hooks(pack, unpack):
                return x * x

        trace(forward, facula.ones(2, requires_grad=True))


def test_autocast_around_a_call_is_an_assumption():
    m = nn.Linear(4, 4)
    x = facula.randn(2, 4)
    program = trace(lambda x: m(x), x)
    with facula.autocast("cpu", facula.bfloat16):
        with pytest.raises(
            ValueError, match="traced under no autocast, and is called under autocast to bfloat16"
        ):
            program(x)
        inside = trace(lambda x: m(x), x)
        expected = m(x)
        same(inside(x), expected)
        assert inside(x).dtype == facula.bfloat16
    same(inside(x), expected)  # the region is a part of the trace
    same(program(x), m(x), 1e-6)


def test_modes_of_the_thread_are_assumptions():
    x = facula.ones(2, requires_grad=True)
    with facula.no_grad():
        program = trace(lambda x: x * 2, x)
        same(program(x), facula.full((2,), 2.0))
    with pytest.raises(ValueError, match="traced while gradients were disabled"):
        program(x)
    made = trace(lambda x: x + facula.ones(2), facula.ones(2))
    facula.set_default_dtype(facula.float64)
    try:
        with pytest.raises(ValueError, match="default dtype was float32, and it is float64 now"):
            made(facula.ones(2, dtype=facula.float32))
    finally:
        facula.set_default_dtype(facula.float32)


class Marked(facula.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result * 2 if getattr(func, "__name__", "") in ("exp", "exp_") else result


def test_subclasses_of_tensor_keep_their_class():
    def f(x):
        return x.exp(), facula.ones(2)

    x = facula.zeros(2).as_subclass(Marked)
    x.tag = "here"
    seen = []
    program = trace(lambda x: (seen.append(x.tag), f(x))[1], x)
    a, b = program(x)
    assert seen == ["here"] and type(a) is Marked and type(b) is facula.Tensor
    same(a.as_subclass(facula.Tensor), facula.full((2,), 2.0))
    with pytest.raises(ValueError, match="traced with"):
        program(facula.zeros(2))
    plain = trace(f, facula.zeros(2))
    with pytest.raises(ValueError, match="traced with"):
        plain(x)


# ---- optimizers and schedules


def test_a_learning_rate_is_read_at_each_call():
    x, y = batch(5, 8)
    eager, traced = twins(lambda: mlp().eval(), lambda p: optim.Adam(p, lr=0.05))
    program = trace(step_of(*traced), x, y)
    for lr in (0.05, 0.01, 0.2):
        for (_, o), step in ((eager, step_of(*eager)), (traced, program)):
            o.param_groups[0]["lr"] = lr
            step(x, y)
    same(dict(eager[0].state_dict()), dict(traced[0].state_dict()), 1e-4)
    assert traced[1].param_groups[0]["lr"] == 0.2


@pytest.mark.parametrize("lr", [0.1, facula.tensor(0.1)], ids=["number", "tensor"])
@pytest.mark.parametrize(
    "schedule",
    [
        lambda o: optim.lr_scheduler.StepLR(o, 1, 0.5),
        lambda o: optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 2),
        lambda o: optim.lr_scheduler.SequentialLR(
            o, [optim.lr_scheduler.ConstantLR(o), optim.lr_scheduler.ExponentialLR(o, 0.5)], [2]
        ),
    ],
    ids=["step", "restarts", "sequential"],
)
def test_a_schedule_inside_of_a_step(schedule, lr):
    x, y = batch(5, 8)
    make = lambda p: optim.SGD(p, lr=lr.clone() if isinstance(lr, facula.Tensor) else lr, momentum=0.9)  # noqa: E731
    eager, traced = twins(lambda: mlp().eval(), make)
    steps = []
    for model, optimizer in (eager, traced):
        scheduler, plain = schedule(optimizer), step_of(model, optimizer)

        def step(x, y, plain=plain, scheduler=scheduler):
            loss = plain(x, y)
            scheduler.step()
            return loss

        steps.append(step)
    program = trace(steps[1], x, y)
    for _ in range(5):
        same(steps[0](x, y).detach(), program(x, y), 1e-5)
        assert float(eager[1].param_groups[0]["lr"]) == pytest.approx(float(traced[1].param_groups[0]["lr"]))
    same(dict(eager[0].state_dict()), dict(traced[0].state_dict()), 1e-4)


def test_what_a_schedule_changes_is_not_read_again_by_the_same_program():
    model = nn.Linear(2, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 1)

    def twice(x):
        for _ in range(2):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            scheduler.step()

    with pytest.raises(NotImplementedError, match="read after a schedule has changed it") as e:
        trace(twice, facula.ones(1, 2))
    assert e.value.trace_break.reason == "python"
    plateau = optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    with pytest.raises(NotImplementedError, match="ReduceLROnPlateau"):
        trace(lambda x: plateau.step(x.sum()), facula.ones(2))


def test_hooks_of_optimizers_are_refused_and_noticed():
    x, y = batch(5, 8)
    model = mlp()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    handle = optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(NotImplementedError, match=r"SGD\.step: has step hooks") as e:
        trace(step_of(model, optimizer), x, y)
    assert isinstance(e.value.trace_break, Break) and e.value.trace_break.reason == "hooks"
    handle.remove()
    program = trace(step_of(model, optimizer), x, y)
    program(x, y)
    optimizer.register_step_pre_hook(lambda *_: None)
    with pytest.raises(ValueError, match="the step hooks of SGD"):
        program(x, y)


# ---- Python objects


SCALE = 2.0


def test_numbers_from_closures_globals_and_modules_are_assumptions():
    global SCALE
    factor = 3.0

    def f(x):
        return x * factor * SCALE

    x = facula.ones(2)
    program = trace(f, x)
    same(program(x), facula.full((2,), 6.0))
    factor = 4.0
    with pytest.raises(ValueError, match="traced when factor was 3.0, and it is 4.0 now"):
        program(x)
    factor = 3.0
    SCALE = 5.0
    with pytest.raises(ValueError, match="traced when SCALE was 2.0"):
        program(x)
    SCALE = 2.0
    program(x)


def test_what_modules_contain_is_an_assumption():
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    x = facula.randn(2, 3)

    def fails(match):
        with pytest.raises(ValueError, match=match):
            program(x)

    program = trace(lambda x: model(x), x)
    program(x)
    model.eval()
    fails("training of Sequential was True")
    model.train()
    program(x)
    model[1].p = 0.1
    fails("p of Dropout was 0.5, and it is 0.1 now")
    model[1].p = 0.5
    old = model[0].weight
    model[0].weight = nn.Parameter(old * 2)
    fails("weight of Linear")
    model[0].weight = old
    handle = model[0].register_forward_hook(lambda m, a, out: out * 2)
    fails("the number of forward_hooks of Linear")
    handle.remove()
    linear = model[0]
    model[0] = nn.Linear(3, 3)
    fails("0 of Sequential")
    model[0] = linear
    program(x)


def test_counters_that_the_function_itself_changes_are_no_assumptions():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return F.relu(x)

    model = Counting()
    program = trace(model, facula.ones(2))
    for _ in range(2):
        program(facula.ones(2))


# ---- breaks and lines


def test_a_refusal_says_why_where_and_what_to_do():
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    with pytest.raises(RuntimeError) as e:
        trace(f, facula.ones(2))
    b = e.value.trace_break
    assert b.reason == "reads_elements" and b.fix
    line = f.__code__.co_firstlineno + 1
    assert b.line.endswith(f"test_program_hooks.py:{line}")
    with pytest.raises(RuntimeError) as e:
        trace(lambda x: x.numpy(), facula.ones(2))
    assert e.value.trace_break.reason == "reads_elements"
    with pytest.raises(ZeroDivisionError) as e:
        trace(lambda x: x * (1 // 0), facula.ones(2))
    assert not hasattr(e.value, "trace_break")


def test_each_call_knows_its_line():
    w = facula.ones(2, requires_grad=True)

    def f(x):
        y = w * x
        z = F.gelu(y)
        z.sum().backward()

    first = f.__code__.co_firstlineno
    lines = trace(f, facula.ones(2)).text(lines=True).splitlines()
    calls = [line for line in lines if " = " in line and "gradient of" not in line]
    assert calls and all("test_program_hooks.py:" in line for line in calls)
    assert any(f":{first + 1}" in line for line in calls) and any(f":{first + 2}" in line for line in calls)
    assert "#" not in trace(f, facula.ones(2)).text().replace("backward#", "").replace("gelu#", "")
