"""Hooks of modules, and histories that cross breaks, in compiled functions as in eager mode."""

import traceback

import pytest
from facula.nn.modules import module as modules

import facula
import facula.nn as nn


def network():
    facula.manual_seed(0)
    inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), inner, nn.Linear(4, 2)).double()


def close(a, b):
    if isinstance(a, facula.Tensor):
        return isinstance(b, facula.Tensor) and a.shape == b.shape and facula.allclose(a, b)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(close, a, b))
    return a == b


# ---- hooks of modules


class Two(nn.Module):
    """A module with two results."""

    def forward(self, a, b):
        return a * b, a + b


class Top(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.two = nn.Linear(4, 4), Two()

    def forward(self, x):
        a, b = self.two(self.first(x), x)
        return a + b


def several(m, log):
    m[0].register_full_backward_hook(lambda m, inputs, outputs: log.append(("first", inputs[0] is None)))
    m[2].register_full_backward_hook(lambda m, inputs, outputs: log.append("inner") or (inputs[0] * 2,))
    m[3].register_full_backward_hook(lambda m, inputs, outputs: log.append(("last", len(outputs))))


def before(m, log):
    m[2].register_full_backward_pre_hook(lambda m, outputs: log.append("pre") or (outputs[0] * 3,))
    m[2].register_full_backward_hook(lambda m, inputs, outputs: log.append("post"))
    m[2].register_full_backward_hook(lambda m, inputs, outputs: log.append("prepended"), prepend=True)


def of_all_modules(m, log):
    post, pre = modules.register_module_full_backward_hook, modules.register_module_full_backward_pre_hook
    return [
        post(lambda m, inputs, outputs: log.append(type(m).__name__)),
        pre(lambda m, outputs: log.append("pre " + type(m).__name__)),
    ]


def beside_others(m, log):
    m[2].register_full_backward_hook(lambda m, inputs, outputs: log.append("inner"))
    m[2][0].weight.register_hook(lambda g: log.append("weight"))
    m[2].register_forward_hook(lambda m, args, out: log.append("forward"))


def of_old_kind(m, log):
    m[2].register_backward_hook(lambda m, inputs, outputs: log.append(len(outputs)))


def reading(m, log):
    m[2].register_full_backward_hook(lambda m, inputs, outputs: log.append(round(float(inputs[0].sum()), 6)))


def without_gradient(m, log):
    m[2].register_full_backward_hook(lambda m, inputs, outputs: (None,))


def with_two_results(m, log):
    m[2] = Top().double()
    m[2].two.register_full_backward_hook(lambda m, inputs, outputs: log.append((len(inputs), len(outputs))))
    m[2].register_full_backward_hook(lambda m, inputs, outputs: log.append("top"))


def too_many(m, log):
    m[2].register_full_backward_hook(lambda m, inputs, outputs: (inputs[0], inputs[0]))


def raising(m, log):
    def hook(m, inputs, outputs):
        log.append(len(log))
        if len(log) > 2:
            raise ValueError("raised")

    m[2].register_full_backward_hook(hook)


CAPTURED = [several, before, of_all_modules, beside_others, of_old_kind]
OTHERS = [reading, without_gradient, with_two_results, too_many, raising]


def trained(register, make_step, compiled):
    """The calls of hooks, the gradients and errors of three steps, and the report of compile."""
    m, log, seen = network(), [], []
    handles = register(m, log)
    run, finish = make_step(m)
    step = facula.compile(run) if compiled else run
    for k in range(3):
        facula.manual_seed(k)
        try:
            finish(step(facula.randn(5, 3).double()))
        except Exception as e:
            frames = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == __file__]
            seen.append((type(e), str(e), frames[-1] if register is raising else None))
        seen.append([None if p.grad is None else p.grad.clone() for p in m.parameters()])
    for h in handles or ():
        h.remove()
    return log, seen, step.report() if compiled else None


def whole_step(m):
    def step(x):
        m.zero_grad()
        loss = m(x).pow(2).sum()
        loss.backward()
        return loss

    return step, lambda loss: None


def forward_alone(m):
    def forward(x):
        m.zero_grad()
        return m(x).pow(2).sum()

    return forward, lambda loss: loss.backward()


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("make_step", [whole_step, forward_alone])
@pytest.mark.parametrize("register", CAPTURED + OTHERS)
def test_backward_hooks_of_modules_are_called_as_in_eager_mode(register, make_step):
    log, seen, _ = trained(register, make_step, False)
    compiled_log, compiled_seen, report = trained(register, make_step, True)
    assert compiled_log == log
    assert close(compiled_seen, seen)
    if register is not raising:
        assert not report["plain_runs"]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("register", CAPTURED)
def test_backward_hooks_of_modules_do_not_divide_a_step(register):
    report = trained(register, whole_step, True)[2]
    assert report["captures"] == 1 and not report["breaks"]


# ---- leaves


def test_gradients_of_leaves_are_accumulated_before_other_nodes_run():
    """The order of PyTorch, whose nodes of leaves have the highest priority."""
    order = []
    w = facula.ones(3, requires_grad=True)
    w.register_hook(lambda g: order.append("leaf"))
    for _ in range(2):
        x = facula.ones(3, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: order.append("inner"))
        (y * w).sum().backward()
    assert order == ["leaf", "inner"] * 2


# ---- breaks


def same_steps(f, *leaves):
    """Calls f three times plain and compiled, with equal results and gradients; returns the report."""
    compiled, seen = facula.compile(f), []
    for run in (f, compiled):
        seen.append([])
        for t in leaves:
            t.grad = None
        for _ in range(3):
            seen[-1].append(run(*leaves))
            seen[-1].append([None if t.grad is None else t.grad.clone() for t in leaves])
    assert close(seen[1], seen[0])
    return compiled.report()


def leaf(*numbers):
    return facula.tensor(numbers, dtype=facula.float64, requires_grad=True)


def test_a_write_through_a_view_behind_a_break_changes_the_history_of_its_base():
    def f(x):
        base = x.sum(-1)
        view = base.view_as(base)
        count = (view > 0).sum().item()
        view.masked_fill_(view > 0, count)
        return base

    for _ in range(2):
        compiled = facula.compile(f)
        x = leaf([1.0, 2.0], [-1.0, -2.0], [3.0, 4.0])
        for _ in range(2):  # the first call is the capture
            x.grad = None
            compiled(x).sum().backward()
            assert x.grad.tolist() == [[0, 0], [1, 1], [0, 0]]


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_history_that_no_pass_has_reached_is_there_behind_a_break(create_graph):
    def f(x, y):
        z = (y * y).sum()
        if create_graph:
            (z,) = facula.autograd.grad(z, y, create_graph=True)
            z = (z * z).sum()
        (x * x).sum().backward()
        factor = x.sum().item()
        (z * factor).backward()
        (g,) = facula.autograd.grad((y * y * factor).sum(), [y], allow_unused=True)
        return g

    report = same_steps(f, leaf(1.0, 2.0), leaf(3.0, 4.0))
    assert not report["plain_runs"]


def test_a_history_that_a_pass_has_retained_is_there_behind_a_break():
    def f(x):
        loss = (x * x).sum()
        loss.backward(retain_graph=True)
        factor = x.sum().item()
        (loss * factor).backward()

    assert not same_steps(f, leaf(1.0, 2.0))["plain_runs"]


def test_a_result_with_another_history_than_the_loss_can_be_differentiated():
    def f(x, y):
        (x * x).sum().backward()
        return (y * y).sum()

    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    compiled = facula.compile(f)
    for _ in range(3):
        y.grad = None
        compiled(x, y).backward()
        assert y.grad.tolist() == [6, 8]
    assert not compiled.report()["plain_runs"]


def test_metrics_of_a_spent_history_do_not_divide_a_step():
    def f(x):
        y = x * x
        y.sum().backward()
        return (y + 1).mean(), y

    report = same_steps(f, leaf(1.0, 2.0))
    assert report["captures"] <= 2 and not report["breaks"]


def test_a_draw_that_fails_behind_its_numbers_moves_the_generator_once():
    def f(x):
        y = x * 2
        part = y.flatten().topk(((y > 0).sum() % 3).item())[0]
        return y.bernoulli_(0.5), part

    states = []
    for run in (f, facula.compile(f)):
        facula.manual_seed(0)
        for _ in range(3):
            run(facula.ones(3, 3))
        states.append(facula.get_rng_state().tolist())
    assert states[0] == states[1]


def test_a_pass_needs_only_what_its_own_history_has_saved():
    def f(x, y):
        first, second = (x * x).sum(), (y * y).sum()
        first.backward()
        with facula.no_grad():
            x.mul_(1.5)  # behind the pass that needs it
        factor = y.sum().item()
        (second * factor).backward()

    for run in (f, facula.compile(f)):
        x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
        for _ in range(3):
            x.grad = y.grad = None
            run(x, y)
        assert x.grad.tolist() == [4.5, 9] and y.grad.tolist() == [42, 56]


def test_a_differentiable_pass_needs_only_what_its_own_history_has_saved():
    def f(x, y):
        largest = x.flip(0).max()
        z = y * 2
        print(end="")  # a break: largest and z are results of one program
        with facula.no_grad():
            x.mul_(1)
        (g,) = facula.autograd.grad((z * z).sum(), y, create_graph=True)
        return g, facula.autograd.grad(g.sum(), y)[0], largest.detach()

    same_steps(f, leaf(1.0, 2.0), leaf(3.0, 4.0))


def test_a_constant_gradient_belongs_to_the_result_that_depends_on_its_input():
    def f(x, y):
        a, b = x * 1, y.sign()
        print(end="")  # a break: a and b are results of one program
        of_b = facula.autograd.grad(b.sum(), [x, y], allow_unused=True, retain_graph=True)
        return of_b, facula.autograd.grad(a.sum(), [x, y], allow_unused=True)

    same_steps(f, leaf(1.0, 2.0), leaf(3.0, 4.0))


def test_a_gradient_whose_elements_share_memory_is_copied_into_its_slot():
    def f(x):
        x.sum().backward()

    compiled = facula.compile(f)
    x, y = leaf([1.0, 2.0], [3.0, 4.0]), leaf([1.0, 2.0], [3.0, 4.0])
    for _ in range(3):
        compiled(x)
        f(y)
        assert x.grad.stride() == y.grad.stride() == (2, 1)
        x.grad.mul_(2)
        y.grad.mul_(2)
        assert x.grad.tolist() == y.grad.tolist()


def kept_by_a_hook(a, b):
    u, kept = a + b, []
    u.register_hook(kept.append)
    (u * u).sum().backward()
    return kept[0]


def seen_by_a_hook(a, b):
    u, kept = a + b, []
    u.register_hook(lambda g: kept.append(g * 3))
    (u * u).sum().backward()
    return kept[0]


def from_outside(a, b, seed):
    (a + b).backward(seed)
    return seed


def of_a_value(a, b):
    seed = (a * b).detach()
    (a + b).backward(seed)
    return seed


def of_a_slot(a, b):
    (a * a).sum().backward()
    b.backward(a.grad)
    return a.grad


def clipped(a, b):
    (a + b).square().sum().backward()
    nn.utils.clip_grad_norm_([a, b], 0.5)


@pytest.mark.parametrize(
    "step",
    [
        lambda a, b: (a + b).square().sum().backward(),
        lambda a, b: (a + b.view(3, 1).T).square().sum().backward(),
        lambda a, b: (a.view(3, 1) + b.view(3, 1)).square().sum().backward(),
        kept_by_a_hook,
        seen_by_a_hook,
        from_outside,
        of_a_value,
        of_a_slot,
        clipped,
    ],
)
def test_gradients_have_memory_of_their_own(step):
    seen = []
    for run in (step, facula.compile(step)):
        for _ in range(3):
            a, b = leaf(1.0, 2.0, 3.0), leaf(3.0, 4.0, 5.0)
            given = (a, b, facula.tensor([1.0, 2.0, 4.0]).double())[: step.__code__.co_argcount]
            result = run(*given)
            a.grad.mul_(2)
            b.grad.add_(1)
            seen.append([a.grad.clone(), b.grad.clone(), result])
    assert all(close(x, seen[0]) for x in seen[1:])


def test_a_recurrent_layer_has_a_gradient_of_each_bias():
    facula.manual_seed(0)
    layer, x = nn.LSTM(2, 3), facula.randn(4, 2, 2)

    def step():
        layer.zero_grad()
        layer(x)[0].sum().backward()

    norms = []
    for run in (step, facula.compile(step)):
        for _ in range(3):
            run()
            nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
            norms.append(layer.bias_hh_l0.grad.norm().item())
    assert norms == pytest.approx(norms[:1] * 6)
