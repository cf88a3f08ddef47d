"""Training steps in a compiled function are one program, with the losses and states of eager mode."""

import copy
import random

import facula.nn.functional as F
import pytest

import facula
import facula.nn as nn

STEPS = 20


def model_of(seed):
    facula.manual_seed(seed)
    # Float64: an optimizer amplifies the rounding of gradients near zero.
    model = nn.Sequential(
        nn.Linear(5, 8),
        nn.LayerNorm(8),
        nn.GELU(),
        nn.Linear(8, 8, bias=False),
        nn.BatchNorm1d(8),
        nn.ReLU(),
        nn.Linear(8, 3),
    )

    return model.double()


def batches(seed, count=STEPS, rows=6):
    facula.manual_seed(seed + 1)
    return [(facula.randn(rows, 5).double(), facula.randn(rows, 3).double()) for _ in range(count)]


def report_of(compiled):
    return compiled.report()


def state_of(optimizer):
    return [
        v
        for s in optimizer.state_dict()["state"].values()
        for v in s.values()
        if isinstance(v, facula.Tensor)
    ]


def close(a, b, rtol, atol=1e-9):
    return a.dtype == b.dtype and a.shape == b.shape and facula.allclose(a, b, rtol=rtol, atol=atol)


def train(make_optimizer, make_step, compiled, seed, data, around=None):
    """Returns losses, parameters and buffers, gradients, states and the step."""
    model = model_of(seed)
    optimizer = make_optimizer(model.parameters())
    step = make_step(model, optimizer)
    run = facula.compile(step) if compiled else step
    losses = []
    for k, (x, y) in enumerate(data):
        losses.append(run(x, y).detach().clone())
        if around:
            around(k, model, optimizer)
    grads = [p.grad for p in model.parameters()]
    return losses, list(model.state_dict().values()), grads, state_of(optimizer), run


def plain_step(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def compare(
    make_optimizer, make_step=plain_step, around=None, breaks=0, captures=1, data=None, rtol=1e-8, atol=1e-9
):
    seed = random.randrange(10**6)
    print("seed", seed)
    data = data or batches(seed)
    want = train(make_optimizer, make_step, False, seed, data, around)
    got = train(make_optimizer, make_step, True, seed, data, around)
    for a, b in zip(got[:4], want[:4]):
        assert len(a) == len(b)
        for x, y in zip(a, b):
            assert (x is None) == (y is None)
            assert x is None or close(x, y, rtol, atol), (x, y)
    report = report_of(got[4])
    assert len(report["breaks"]) == breaks and not report["plain_runs"], report["breaks"]
    assert report["captures"] == captures, report["captures"]
    return report


OPTIMIZERS = {
    "SGD": lambda ps: facula.optim.SGD(ps, lr=0.05),
    "SGD with momentum": lambda ps: facula.optim.SGD(
        ps, lr=0.02, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam": lambda ps: facula.optim.Adam(ps, lr=0.01),
    "Adam with amsgrad": lambda ps: facula.optim.Adam(ps, lr=0.01, amsgrad=True, weight_decay=0.1),
    "AdamW": lambda ps: facula.optim.AdamW(ps, lr=0.01),
    "Adagrad": lambda ps: facula.optim.Adagrad(ps, lr=0.05),
    "Adadelta": lambda ps: facula.optim.Adadelta(ps),
    "Adamax": lambda ps: facula.optim.Adamax(ps, lr=0.01),
    "ASGD": lambda ps: facula.optim.ASGD(ps, lr=0.01),
    "RAdam": lambda ps: facula.optim.RAdam(ps, lr=0.01),
    "NAdam": lambda ps: facula.optim.NAdam(ps, lr=0.01),
    "RMSprop": lambda ps: facula.optim.RMSprop(ps, lr=0.005, momentum=0.5),
    "Rprop": lambda ps: facula.optim.Rprop(ps, lr=0.001),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_one_program(name):
    compare(OPTIMIZERS[name])


def test_learning_rates_are_operands():
    def around(k, model, optimizer):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 / (k + 1)

    for name in ("SGD", "AdamW"):
        compare(OPTIMIZERS[name], around=around)


def test_a_scheduler_changes_the_rate_without_a_capture():
    schedulers = {}

    def around(k, model, optimizer):
        if k == 0:
            schedulers[optimizer] = facula.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        schedulers[optimizer].step()

    compare(OPTIMIZERS["Adam"], around=around)


def test_other_options_groups_and_states_are_noticed():
    def around(k, model, optimizer):
        if k == 4:
            optimizer.param_groups[0]["weight_decay"] = 0.3
        if k == 8:
            optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        if k == 12:
            state = optimizer.state[model[0].weight]
            state["exp_avg"] = state["exp_avg"] * 2

    compare(OPTIMIZERS["Adam"], around=around, captures=4)


def test_a_parameter_that_is_replaced_is_noticed():
    def around(k, model, optimizer):
        weight = nn.Parameter(model[0].weight.detach().clone())
        if k == 6:
            optimizer.param_groups[0]["params"][0] = model[0].weight = weight
        if k == 12:  # the optimizer has another parameter than the model
            model[0].weight = weight

    compare(OPTIMIZERS["SGD"], around=around, captures=4)  # .grad of the other is None once


def test_a_parameter_that_is_frozen_or_missing_is_noticed():
    def around(k, model, optimizer):
        if k in (5, 10):
            model[0].weight.requires_grad_(k == 10)
            model[0].weight.grad = None
        if k == 15:
            model[0].bias.register_hook(lambda g: g * 2)

    compare(OPTIMIZERS["SGD"], around=around, captures=3)


def test_gradients_accumulate_over_calls_and_in_a_call():
    def make_step(model, optimizer):
        def step(x, y):
            for part, target in ((x[:3], y[:3]), (x[3:], y[3:])):
                (F.mse_loss(model(part), target) / 2).backward()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss

        return step

    def around(k, model, optimizer):
        if k % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()

    compare(OPTIMIZERS["SGD"], make_step, around, captures=2)


def test_gradients_that_are_zeroed_in_place_and_clipped():
    def make_step(model, optimizer):
        def step(x, y):
            optimizer.zero_grad(set_to_none=False)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            nn.utils.clip_grad_value_(model.parameters(), 0.3)
            optimizer.step()
            return loss

        return step

    compare(OPTIMIZERS["AdamW"], make_step, captures=2)


def test_gradients_are_the_same_objects_outside():
    w = facula.ones(3, requires_grad=True)

    def f(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad, w.grad * 2

    compiled = facula.compile(f, fullgraph=True)
    for k in range(4):
        grad, double = compiled(facula.ones(3) * k)
        assert grad is w.grad
        grad.add_(1)
        assert w.grad.tolist() == [k + 1.0] * 3 and double.tolist() == [2.0 * k] * 3


def test_autograd_grad_with_and_without_a_graph():
    def make_step(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            x = x.detach().clone()
            loss = F.mse_loss(model(x), y)
            ps = list(model.parameters())
            grads = facula.autograd.grad(loss, ps, create_graph=True)
            penalty = sum((g * g).sum() for g in grads)
            (loss + 0.01 * penalty).backward()
            optimizer.step()
            return loss + penalty

        return step

    data = batches(random.randrange(10**6), 8)
    compare(lambda ps: facula.optim.SGD(ps, lr=0.01), make_step, data=data)


def test_steps_under_autocast():
    def make_step(model, optimizer):
        model.float()
        model[5] = nn.Tanh()  # a ReLU's gradient jumps where rounding changes a sign

        def step(x, y):
            optimizer.zero_grad()
            with facula.autocast("cpu", dtype=facula.bfloat16):
                loss = F.mse_loss(model(x).float(), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    data = [(x.float(), y.float()) for x, y in batches(random.randrange(10**6), 4)]
    # A fused chain of operators rounds to bfloat16 less often than eager mode.
    compare(OPTIMIZERS["SGD"], make_step, rtol=2e-2, atol=5e-2, data=data)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    from facula.utils.checkpoint import checkpoint

    def make_step(model, optimizer):
        first, middle, last = model[0], list(model[1:4]), model[4:]

        def step(x, y):
            optimizer.zero_grad()
            h = first(x)
            for layer in middle:
                h = checkpoint(layer, h, use_reentrant=reentrant)
            loss = F.mse_loss(last(h), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    compare(OPTIMIZERS["AdamW"], make_step)


@pytest.mark.parametrize("optimizer", ["SGD with momentum", "Adam", "ASGD"])
def test_a_scaled_step_is_one_program_that_skips_steps_with_infinities(optimizer):
    scalers = []

    def make_step(model, optimizer):
        scaler = facula.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        scalers.append(scaler)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            return loss

        return step

    data = batches(random.randrange(10**6), 12)
    for k in (0, 7):  # the first step has no state
        data[k] = (data[k][0], data[k][1] * float("inf"))
    compare(OPTIMIZERS[optimizer], make_step, data=data)
    plain, compiled = (s.state_dict() for s in scalers)
    assert plain == compiled and plain["scale"] == 2.0**10 / 4 * 8


class Scaled(facula.autograd.Function):
    """The product of a square and a number, with a gradient of its own."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * ctx.k, None


def test_custom_functions():
    def make_step(model, optimizer):
        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(Scaled.apply(model(x), 0.5), y)
            loss.backward()
            optimizer.step()
            return loss

        return step

    compare(OPTIMIZERS["SGD"], make_step)


def hooked_inner_tensors(model, optimizer, seen, register=lambda h, hook: h.register_hook(hook)):
    def step(x, y):
        optimizer.zero_grad()
        h = model[0](x)
        register(h, lambda g: seen.append("hook") or g * 2)
        loss = F.mse_loss(model[1:](h), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def hooked_by_the_class(model, optimizer, seen):
    return hooked_inner_tensors(model, optimizer, seen, facula.Tensor.register_hook)


def hooked_leaves(model, optimizer, seen):
    for k, p in enumerate(model.parameters()):
        p.register_hook(lambda g, k=k: seen.append(k) or g * (k + 1))
    return plain_step(model, optimizer)


def stepping_hooks(model, optimizer, seen):
    optimizers = {p: facula.optim.SGD([p], lr=0.01) for p in model.parameters()}
    names = {p: k for k, p in enumerate(model.parameters())}

    def hook(p):
        optimizers[p].step()
        optimizers[p].zero_grad()
        seen.append(names[p])

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return step


def hooked_modules(model, optimizer, seen):
    model[0].register_forward_hook(lambda m, args, out: seen.append("forward") or out * 1.5)
    model[1].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    return plain_step(model, optimizer)


def hooked_steps(model, optimizer, seen):
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: seen.append("after"))
    return plain_step(model, optimizer)


def packed_tensors(model, optimizer, seen):
    def pack(t):
        return t * 2

    def step(x, y):
        optimizer.zero_grad()
        with facula.autograd.graph.saved_tensors_hooks(pack, lambda t: t / 2):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


HOOKS = [
    hooked_inner_tensors,
    hooked_by_the_class,
    hooked_leaves,
    stepping_hooks,
    hooked_modules,
    hooked_steps,
    packed_tensors,
]


@pytest.mark.parametrize("hooked", HOOKS)
def test_hooks_are_parts_of_the_program(hooked):
    seen = []  # of the plain steps, then of the compiled ones

    def make_step(model, optimizer):
        seen.append([])
        return hooked(model, optimizer, seen[-1])

    compare(OPTIMIZERS["SGD"], make_step)
    if hooked in (hooked_leaves, stepping_hooks):  # the parameters of one operator have no order
        seen = [sorted(calls) for calls in seen]
    assert seen[0] == seen[1]


def test_a_hook_that_cannot_be_captured_leaves_no_effects_of_its_first_part():
    seen = []

    def make_step(model, optimizer):
        own = []
        seen.append(own)

        def hook(g):
            own.append("called")
            own.append(round(float(g.abs().sum()), 6))

        model[0].weight.register_hook(hook)
        return plain_step(model, optimizer)

    compare(OPTIMIZERS["SGD"], make_step, breaks=1, captures=2)
    assert seen[0] == seen[1] and len(seen[0]) == 2 * STEPS


def test_other_values_in_the_closure_of_a_hook_are_noticed():
    scale = [1.0]

    def around(k, model, optimizer):
        scale[0] = 1.0 if k == STEPS - 1 else 1.0 + k // 5

    def make_step(model, optimizer):
        model[0].weight.register_hook(lambda g: g * scale[0])
        return plain_step(model, optimizer)

    seed = random.randrange(10**6)
    print("seed", seed)
    data = batches(seed)
    want, got = (train(OPTIMIZERS["SGD"], make_step, c, seed, data, around) for c in (False, True))
    assert all(close(a, b, 1e-8) for a, b in zip(got[1], want[1]))


def test_a_loss_whose_gradients_are_spent_raises_as_in_eager_mode():
    w = facula.ones(3, requires_grad=True)

    def f(x):
        loss = (w * x).sum()
        loss.backward()
        return loss

    compiled = facula.compile(f, fullgraph=True)
    for _ in range(3):
        w.grad = None
        loss = compiled(facula.ones(3))
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


def test_a_backward_pass_into_history_from_outside_is_a_break():
    def f(x, h):
        loss = (x * h).sum()
        loss.backward()
        return loss

    compiled = facula.compile(f)
    for _ in range(3):
        x, y = facula.ones(3, requires_grad=True), facula.ones(3, requires_grad=True)
        compiled(x, y * 2)
        assert x.grad.tolist() == [2.0] * 3 and y.grad.tolist() == [2.0] * 3


class Counter:
    def __init__(self):
        self.calls, self.scale = 0, 0.5


def test_numbers_that_change_are_operands():
    state = Counter()

    def f(x, n, y):
        state.calls += 1
        return x * state.scale + n / 2 - state.calls * y

    compiled = facula.compile(f, fullgraph=True)
    x = facula.tensor([1.0, 2.0, 3.0])
    for k in range(40):
        state.scale = 0.25 * k
        want_calls = k + 1
        want = x * state.scale + (3 * k) / 2 - want_calls * (0.5 + k)
        assert facula.equal(compiled(x, 3 * k, 0.5 + k), want)
        assert state.calls == want_calls and type(state.calls) is int
    assert compiled.report()["captures"] <= 3


def test_numbers_are_fixed_where_python_needs_them():
    def f(x, n, table):
        m = n + 1
        if m > 3:
            x = x + 1
        values = [m, n]
        return x * table[n % 2] + len(values), str(m), max(values), {n: m}, m

    plain, compiled = f, facula.compile(f, fullgraph=True)
    x, table = facula.tensor([1.0, 2.0]), [2, 3]
    for n in [1, 2, 3, 4, 1, 3, 10**20, 2, True, 2.0, 5]:
        if type(n) is float:
            continue
        want, got = plain(x, n, table), compiled(x, n, table)
        assert facula.equal(got[0], want[0]) and got[1:] == want[1:]
        assert [type(v) for v in got[1:]] == [type(v) for v in want[1:]]


def growing(f, make_inputs, sizes, captures=2):
    """Compares calls with these sizes; returns the report."""
    compiled = facula.compile(f, fullgraph=True)
    for n in sizes:
        inputs = make_inputs(n)
        want, got = f(*(t.clone() for t in inputs)), compiled(*inputs)
        for a, b in zip(*map(facula.utils._pytree.tree_leaves, (got, want))):
            if isinstance(b, facula.Tensor):
                assert close(a, b, 1e-5, 1e-6) and a.stride() == b.stride(), n
            else:
                assert type(a) is type(b) and a == b, (n, a, b)
    report = compiled.report()
    assert report["captures"] <= captures and not report["plain_runs"], report["captures"]
    return report


SIZES = [4, 7, 3, 16, 9, 33, 2, 5, 6, 8, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20]


def test_batch_sizes_become_symbols():
    model = model_of(0).float().eval()

    def f(x):
        return model(x), x

    growing(f, lambda n: (facula.randn(n, 5),), SIZES)
    growing(f, lambda n: (facula.randn(n, 5),), [1, 4, 1, 7, 3, 1, 9], captures=3)


def test_sizes_are_numbers_for_python_and_symbols_for_operators():
    def f(x):
        b, t, c = x.shape
        assert x.size(0) == b and isinstance(b, int) and len(x.shape) == 3
        y = x.view(b, t, 2, c // 2).transpose(1, 2)
        z = y.reshape(b * 2, t, -1)[:, : t - 1]
        mask = facula.ones(t, t).tril()[: t - 1, : z.shape[1]]
        flat = x.view(*x.shape[:-1], c)
        return mask @ z, flat + facula.arange(t)[:, None], z.shape, x.shape, b * t, z.numel() / b

    growing(f, lambda n: (facula.randn(n, 3 + n % 4, 4),), [2, 3, 4, 5, 6, 9, 3, 8], captures=3)


def test_a_branch_on_a_size_is_a_guard():
    def f(x):
        if x.shape[0] > 6:
            return x * 2
        return x + x.shape[0]

    growing(f, lambda n: (facula.randn(n, 3),), [3, 4, 9, 5, 12, 6, 7, 8, 2], captures=3)


def test_writes_to_arguments_of_changing_sizes():
    def f(x):
        x.mul_(2)
        x[1:] += 1
        return x, x.sum()

    compiled = facula.compile(f, fullgraph=True)
    for n in (3, 4, 5, 6, 5):
        x = facula.randn(n, 2)
        want, other = x.clone(), x.clone()
        want_sum = f(want)[1]
        got, total = compiled(other)
        assert got is other and facula.equal(other, want) and facula.allclose(total, want_sum)
    assert compiled.report()["captures"] == 2


def test_training_with_batches_of_changing_sizes():
    data = [batches(k, 1, rows)[0] for k, rows in enumerate([6, 4, 7, 9, 3, 12, 5, 8])]
    compare(OPTIMIZERS["AdamW"], data=data, captures=2)


def test_dynamic_decides_whether_sizes_are_symbols():
    x = [facula.randn(n, 10) for n in (3, 4, 5, 6)]
    for dynamic, captures in ((True, 1), (False, 4), (None, 2)):
        compiled = facula.compile(lambda x: x.sum(0) * 2, dynamic=dynamic)
        for y in x:
            assert facula.allclose(compiled(y), y.sum(0) * 2, atol=1e-5)
        assert compiled.report()["captures"] == captures


def test_marks_decide_which_sizes_are_symbols():
    def calls(mark, sizes):
        compiled = facula.compile(lambda x: x.sum(0) * 2)
        for n in sizes:
            y = facula.randn(n, 10)
            mark(y)
            assert facula.allclose(compiled(y), y.sum(0) * 2, atol=1e-5)
        return compiled.report()["captures"]

    assert calls(lambda y: facula._dynamo.mark_dynamic(y, 0), (3, 4, 5, 6)) == 1
    assert calls(lambda y: facula._dynamo.mark_dynamic(y, (0, -1)), (3, 4, 1, 6)) == 2
    assert calls(lambda y: facula._dynamo.mark_static(y, 0), (3, 4, 5, 6)) == 4
    with pytest.raises(IndexError, match="no dimension 2"):
        facula._dynamo.mark_dynamic(facula.ones(2, 2), 2)


def test_two_captures_serve_all_batches_and_lengths():
    layers = facula.nn.LSTM(3, 4, 2)
    embedding = facula.nn.Embedding(7, 3)

    def f(tokens, h, c, scale):
        length, batch = tokens.shape
        y, (h, c) = layers(embedding(tokens), (h, c))
        return y.reshape(batch * length, -1) * scale[:, None], h, c, f"{4}"

    # At first the number of layers, the batch and the length are equal.
    sizes = [(2, 2), (3, 2), (3, 3), (2, 5), (5, 5), (4, 3), (6, 2)]
    sizes += [(2 + 7 * k % 11, 2 + 5 * k % 13) for k in range(8)]

    def inputs(size):
        n, batch = size
        states = [facula.randn(2, batch, 4) for _ in range(2)]
        return facula.randint(0, 7, (n, batch)), *states, facula.randn(batch * n)

    growing(f, inputs, sizes)


def test_numbers_behind_a_break_are_free():
    def f(x):
        for y in (x, x + 1, x + 2):
            x = x * y.sum().item()
        return x

    compiled = facula.compile(f)
    for n in range(1, 6):
        x = facula.randn(3) + n
        assert facula.allclose(compiled(x), f(x))
    assert compiled.report()["captures"] <= 4


@pytest.mark.parametrize("mode", [facula.no_grad, facula.enable_grad])
def test_a_break_within_a_block_of_a_gradient_mode(mode, capsys):
    w = facula.ones(2, requires_grad=True)

    def f(x):
        with mode():
            y = x * w
            print("a")
            with facula.no_grad():
                z = y * 2
                print("b")
            y = y + z
        return y, x * w, facula.is_grad_enabled()

    compiled, x = facula.compile(f), facula.randn(2)
    for outer in (True, True, True, False, False, True):
        with facula.set_grad_enabled(outer):
            want, got = f(x), compiled(x)
        assert [t.requires_grad for t in got[:2]] == [t.requires_grad for t in want[:2]]
        assert all(map(facula.equal, got[:2], want[:2])) and got[2] is want[2] is outer
        assert facula.is_grad_enabled()
    capsys.readouterr()
    report = compiled.report()
    assert report["captures"] <= 6 and not report["plain_runs"], report["captures"]


def test_an_error_of_a_capture_restores_the_gradient_mode():
    def f(x):
        with facula.no_grad():
            return x.sum().item()

    with pytest.raises(RuntimeError, match="fullgraph=True"):
        facula.compile(f, fullgraph=True)(facula.ones(2))
    assert facula.is_grad_enabled()


def test_breaks_between_sizes(capsys):
    def f(x):
        y = x * 2
        print(y.shape[0])
        return y + x.shape[0]

    compiled = facula.compile(f)
    for n in (3, 4, 5, 6, 4):
        x = facula.randn(n, 2)
        assert facula.equal(compiled(x), x * 2 + n)
        assert capsys.readouterr().out == f"{n}\n"


@pytest.mark.parametrize(
    "show", ["'%d of %s' % (n, [1])", "'%(n)d' % {'n': n}", "f'{n}'", "str([n])", "'{}'.format((n,))"]
)
def test_texts_show_the_number_of_each_call(show):
    compiled = facula.compile(eval(f"lambda x, n: (x + 1, {show})"))
    for n in (1, 1, 2, 3, 0, 2):
        assert compiled(facula.ones(2), n)[1] == eval(show, {"n": n})


@pytest.mark.parametrize("compare", ["(n, 1) == (2, 1)", "{'a': n} == {'a': 2}", "[n] < [2]", "n in {1, 2}"])
def test_comparisons_see_the_number_of_each_call(compare):
    compiled = facula.compile(eval(f"lambda x, n: (x + 1, {compare})"))
    for n in (1, 1, 2, 3, 0, 2):
        assert compiled(facula.ones(2), n)[1] == eval(compare, {"n": n})


def test_numbers_that_are_too_large_for_operands():
    def f(x, n):
        return x * n

    compiled = facula.compile(f, fullgraph=True)
    x = facula.tensor([1.0, 2.0])
    for n in (1, 2, 3, 2**62, 2**63, 10**18, 5):
        assert facula.equal(compiled(x, n), f(x, n))


@pytest.mark.parametrize("alias", ["detach", "Tensor", "view", "data", "index"])
def test_aliases_of_arguments_show_the_arguments_of_each_call(alias):
    def f(x):
        y = {
            "detach": lambda x: x.detach(),
            "Tensor": lambda x: facula.Tensor(x),
            "view": lambda x: x.view_as(x),
            "data": lambda x: x.data,
            "index": lambda x: x[:],
        }[alias](x)
        return y.clone() * 2

    compiled = facula.compile(f)
    for k in range(4):
        x = facula.tensor([1.0, 2.0]) * (k + 1)
        assert facula.equal(compiled(x), x * 2)
