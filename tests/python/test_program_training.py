"""Whole steps of training as programs, against the same steps in eager: losses, parameters, states, .grad."""

import contextlib
import random

import pytest
from facula.program import load, trace
from facula.utils.checkpoint import checkpoint
from test_program import same

import facula
from facula import nn, optim
from facula.nn import functional as F


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 4))


def cnn():
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, stride=2, bias=False), nn.BatchNorm2d(6), nn.Flatten(), nn.Linear(6, 4),
    )  # fmt: skip


def step_of(model, optimizer, loss_of=F.cross_entropy):
    def step(x, y):
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def twins(make, optimizer):
    """Two equal models with an optimizer each."""
    pairs = []
    for _ in range(2):
        facula.manual_seed(3)
        model = make()
        pairs.append((model, optimizer(model.parameters())))
    return pairs


def batch(*shape):
    return facula.randn(*shape), facula.arange(shape[0]) % 4


def same_states(a, b, tolerance):
    (model, optimizer), (other, its) = a, b
    same(dict(model.state_dict()), dict(other.state_dict()), tolerance)
    same([p.grad for p in model.parameters()], [p.grad for p in other.parameters()], tolerance)
    one, two = optimizer.state_dict()["state"], its.state_dict()["state"]
    same(one, two, tolerance)


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "Adam": lambda p: optim.Adam(p, lr=0.01, eps=1e-3, amsgrad=True),
    "AdamW": lambda p: optim.AdamW(p, lr=0.01, eps=1e-3),
    "NAdam": lambda p: optim.NAdam(p, lr=0.01, eps=1e-3),
    "Adamax": lambda p: optim.Adamax(p, lr=0.01, eps=1e-3),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, eps=1e-3, momentum=0.5, centered=True),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.01, eps=1e-3, lr_decay=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=1.0, eps=1e-3),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("make, shape", [(mlp, (5, 8)), (cnn, (5, 2, 7, 7))], ids=["mlp", "cnn"])
def test_a_step_of_training_is_a_program(make, shape, optimizer):
    x, y = batch(*shape)
    eager, traced = twins(make, optimizer)
    before = facula.get_rng_state()
    program = trace(step_of(*traced), x, y)
    same(facula.get_rng_state(), before)
    assert all(p.grad is None for p in traced[0].parameters())
    reference = step_of(*eager)
    for k in range(5):
        x, y = batch(*shape)
        losses = []
        for step in (reference, program):
            facula.manual_seed(100 + k)
            losses.append(step(x, y))
        assert not losses[1].requires_grad
        same(losses[0].detach(), losses[1], 1e-5)
        same_states(eager, traced, 1e-4)
    # Steps in eager go on where the program stopped, and the program where they stop.
    own = step_of(*traced)
    for step in (own, program):
        for f in (reference, step):
            facula.manual_seed(7)
            f(x, y)
    same_states(eager, traced, 1e-4)


def test_sparse_adam_steps_the_rows_that_were_taken():
    def made(rows):
        table = nn.Embedding(9, 4, padding_idx=2, sparse=True)
        table.load_state_dict({"weight": rows})
        optimizer = optim.SparseAdam(table.parameters(), lr=0.05)

        def step(i, y):
            loss = ((table(i) + table(i.flip(0))).tanh() - y).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return table, optimizer, step

    rows = facula.randn(9, 4)
    (table, optimizer, eager), (traced_table, traced_optimizer, traced) = made(rows), made(rows)
    first = facula.tensor([1, 1, 2, 7])
    program = trace(traced, first, facula.randn(4, 4))
    assert table.sparse and traced_table.sparse
    for k in range(6):
        i, y = first if k == 0 else facula.randint(0, 8, (4,)), facula.randn(4, 4)
        same(eager(i, y).detach(), (program if k < 4 else traced)(i, y).detach(), 1e-5)
        same(table.weight.detach(), traced_table.weight.detach(), 1e-5)
    states = [next(iter(o.state.values())) for o in (optimizer, traced_optimizer)]
    assert states[0]["step"] == states[1]["step"] == 6
    for name in ("exp_avg", "exp_avg_sq"):
        same(states[0][name], states[1][name], 1e-5)
    assert facula.equal(traced_table.weight[[2, 8]], rows[[2, 8]])  # of padding, and never taken


def closure_of(model, optimizer, x, y, loss_of=F.mse_loss):
    def closure():
        optimizer.zero_grad()
        loss = loss_of(model(x), y)
        loss.backward()
        return loss

    return closure


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("iterations", [1, 9])
def test_lbfgs_goes_on_between_eager_and_a_program(search, iterations):
    def make():
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 2)).double()

    lr = 0.5 if search is None else 1.0
    eager, traced = twins(
        make, lambda p: optim.LBFGS(p, lr, iterations, history_size=3, line_search_fn=search)
    )

    def step_by(model, optimizer):
        return lambda x, y: optimizer.step(closure_of(model, optimizer, x, y))

    x, y = facula.randn(20, 5).double(), facula.randn(20, 2).double()
    program = trace(step_by(*traced), x, y)
    losses = []
    for k in range(9):
        if k == 5:
            x, y = facula.randn(20, 5).double(), facula.randn(20, 2).double()
        its = program if k % 4 < 2 else step_by(*traced)
        losses.append((step_by(*eager)(x, y).item(), its(x, y).item()))
        assert losses[-1][0] == pytest.approx(losses[-1][1], rel=1e-9)
        same([p.grad for p in eager[0].parameters()], [p.grad for p in traced[0].parameters()], 1e-6)
        one, two = (next(iter(o.state_dict()["state"].values())) for _, o in (eager, traced))
        assert one["func_evals"] == two["func_evals"] and one["n_iter"] == two["n_iter"]
        assert len(one["ro"]) == len(two["ro"]) and one.keys() == two.keys()
        same(one["old_dirs"], two["old_dirs"], 1e-5)
    assert losses[4][0] < 0.9 * losses[0][0]


def test_lbfgs_in_a_program_writes_what_the_closure_writes():
    """Running statistics and draws of each evaluation; gradients of zeros; weights that are not reached."""

    def make():
        return nn.Sequential(
            nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3), nn.Linear(3, 3)
        )

    def step_by(model, optimizer):
        def step(x, y):
            def closure():
                optimizer.zero_grad(set_to_none=False)
                loss = F.cross_entropy(model[:4](x), y)
                loss.backward()
                return loss

            return optimizer.step(closure)

        return step

    eager, traced = twins(make, lambda p: optim.LBFGS(p, 0.1, 4, line_search_fn="strong_wolfe"))
    x, y = facula.randn(16, 6), facula.arange(16) % 3
    for model, optimizer in (eager, traced):  # .grad is there from then on
        facula.manual_seed(1)
        step_by(model, optimizer)(x, y)
    program = trace(step_by(*traced), x, y)
    for k in range(3):
        losses = []
        for step in (step_by(*eager), program):
            facula.manual_seed(k)
            losses.append(step(x, y).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)
        same(dict(eager[0].state_dict()), dict(traced[0].state_dict()), 1e-2)
        assert eager[0][1].num_batches_tracked == traced[0][1].num_batches_tracked
    assert traced[0][4].weight.grad is None


def test_what_would_step_other_rows_than_a_sparse_gradient_has_is_refused():
    table = nn.Embedding(5, 3, sparse=True)
    i = facula.tensor([1, 2])

    def step_with(optimizer, loss_of):
        def step(i):
            loss = loss_of(i)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    with pytest.raises(NotImplementedError, match="Adam: a parameter is the table of an embedding"):
        trace(step_with(optim.Adam(table.parameters()), lambda i: table(i).sum()), i)
    tied = optim.SparseAdam(table.parameters())
    program = trace(step_with(tied, lambda i: (table(i) @ table.weight.t()).sum()), i)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        program(i)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        trace(step_with(tied, lambda i: table.weight.sum() + 0 * i.sum()), i)


def test_random_numbers_are_drawn_as_in_eager():
    def draw(x):
        return F.dropout(x, 0.5) + facula.rand_like(x)

    x = facula.ones(4, 5)
    program = trace(draw, x)
    facula.manual_seed(1)
    expected = [draw(x), draw(x), facula.rand(2)]
    facula.manual_seed(1)
    same([program(x), program(x), facula.rand(2)], expected)


def test_steps_start_from_a_trained_state_and_hidden_layouts():
    """Parameters that eager training left packed or in channels_last."""
    x, y = facula.randn(8, 16, 9, 9), facula.arange(8) % 4

    def make():
        return nn.Sequential(
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, 4),
        )  # fmt: skip

    eager, traced = twins(make, lambda p: optim.SGD(p, lr=0.1, momentum=0.9))
    for _ in range(2):
        for pair in (eager, traced):
            step_of(*pair)(x, y)
    program = trace(step_of(*traced), x, y)
    for _ in range(3):
        same(step_of(*eager)(x, y).detach(), program(x, y), 1e-5)
    same_states(eager, traced, 1e-4)


# ---- .grad


def test_gradients_add_up_where_nothing_zeroes_them():
    w = facula.randn(3, requires_grad=True)
    f = lambda x: (w * x).sum().backward()  # noqa: E731
    x = facula.randn(3)
    program = trace(f, x)
    assert w.grad is None
    program(x)
    same(w.grad, x)
    with pytest.raises(ValueError, match=r"\.grad of a tensor of shape \[3\] was None, and is now a tensor"):
        program(x)
    added = trace(f, x)  # to the tensor that is there
    for _ in range(2):
        added(x)
    same(w.grad, 3 * x, 1e-6)
    w.grad = facula.zeros(3)
    with pytest.raises(ValueError, match="was a certain tensor, and is now another"):
        added(x)


def test_gradients_are_cleared_and_set():
    w = facula.randn(3, requires_grad=True)
    unused = facula.ones(2, requires_grad=True)
    unused.grad = facula.ones(2)
    kept = facula.full((3,), 5.0)

    def f(x):
        unused.grad = None
        w.grad = None
        (w * x).sum().backward()
        (w * w).sum().backward()
        norm = w.grad.norm()
        w.grad = kept
        return norm

    x = facula.randn(3)
    program = trace(f, x)
    assert unused.grad is not None and w.grad is None
    same(program(x), (x + 2 * w).norm().detach(), 1e-6)
    assert unused.grad is None and w.grad is kept
    same(program(x), (x + 2 * w).norm().detach(), 1e-6)


def test_gradients_of_arguments():
    def f(x, y):
        ((x * y).sum() + x.exp().sum()).backward()
        return x.detach() * 2

    x, y = facula.randn(3, requires_grad=True), facula.randn(3, requires_grad=True)
    program = trace(f, x, y.detach())
    same(program(x, y.detach()), x.detach() * 2)
    same(x.grad, y.detach() + x.detach().exp(), 1e-6)
    x.grad = None
    with pytest.raises(ValueError, match="tensor 1 did not require gradients"):
        program(x, y)
    with pytest.raises(ValueError, match="is no leaf that requires gradients"):
        program(x.detach(), y.detach())
    with pytest.raises(ValueError, match="is no leaf that requires gradients"):
        program(x * 1, y.detach())
    assert x.grad is None and y.grad is None


def test_a_failed_trace_leaves_gradients_alone():
    w = facula.randn(3, requires_grad=True)
    w.grad = facula.ones(3)

    def f(x):
        w.grad = None
        (w * x).sum().backward()
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        trace(f, facula.ones(3))
    same(w.grad, facula.ones(3))
    (w * 2).sum().backward()
    same(w.grad, facula.full((3,), 3.0))


# ---- autograd.grad


def test_gradients_of_gradients_inside():
    w = facula.randn(4, requires_grad=True)

    def penalty(x):
        x = x.detach().requires_grad_() if not facula._C.is_tracing() else x
        y = (w * x * x).sum().sin()
        (g,) = facula.autograd.grad(y, x, create_graph=True)
        loss = y + (g * g).sum()
        w.grad = None
        loss.backward(inputs=[w])
        return loss

    x = facula.randn(4, requires_grad=True)
    program = trace(penalty, x)
    for _ in range(2):
        x = facula.randn(4, requires_grad=True)
        ours = program(x)
        mine = w.grad
        same(ours, penalty(x).detach(), 1e-5)
        same(mine, w.grad, 1e-5)


def test_a_program_with_autograd_grad_has_gradients_itself():
    def slope(x):
        with facula.enable_grad():
            (g,) = facula.autograd.grad((x**3).sum(), x, create_graph=True)
        return g

    x = facula.randn(5, requires_grad=True)
    program = trace(slope, x)
    same(program(x).detach(), 3 * x.detach() ** 2, 1e-6)
    program(x).sum().backward()
    same(x.grad, 6 * x.detach(), 1e-5)


def test_unused_inputs_of_grad():
    def f(x, y):
        found = facula.autograd.grad((x * 2).sum(), (x, y), allow_unused=True)
        assert found[1] is None
        return found[0]

    x, y = facula.ones(2, requires_grad=True), facula.ones(3, requires_grad=True)
    same(trace(f, x, y)(x, y), facula.full((2,), 2.0))
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        trace(lambda x, y: facula.autograd.grad((x * 2).sum(), (x, y)), x, y)
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        trace(lambda x: (x.detach() * 2).sum().backward(), x)
    with pytest.raises(RuntimeError, match="can be implicitly created only for scalar outputs"):
        trace(lambda x: (x * 2).backward(), x)


def test_parts_without_gradients():
    w, v = facula.randn(3, requires_grad=True), facula.randn(3, requires_grad=True)

    def f(x):
        w.grad = v.grad = None
        with facula.no_grad():
            a = w * x
        assert not a.requires_grad
        b = (v * x).detach() * v
        c = a * v * w + b
        assert c.requires_grad
        c.sum().backward()

    x = facula.randn(3)
    f(x)
    expected = [w.grad, v.grad]
    trace(f, x)(x)
    same([w.grad, v.grad], expected, 1e-6)


def test_values_that_are_written_after_they_were_read():
    """The gradient of what was read; eager refuses the first of these, as the old numbers are gone."""

    def f(x):
        y = x.exp()
        loss = (y * y).sum()
        y.zero_()
        loss.backward()
        return y

    def views(x):
        y = x * 1
        row = y[0]
        row.mul_(3)
        y[1] = row * 2
        (y * y).sum().backward()

    x = facula.randn(2, 3, requires_grad=True)
    same(trace(f, x)(x), facula.zeros(2, 3))
    same(x.grad, 2 * (2 * x.detach()).exp(), 1e-5)
    x.grad = None
    trace(views, x)(x)
    mine, x.grad = x.grad, None
    views(x)
    same(mine, x.grad, 1e-6)


# ---- several steps, losses and helpers


def test_two_steps_in_one_program_with_clipping():
    x, y = batch(6, 8)
    eager, traced = twins(mlp, OPTIMIZERS["Adam"])
    norms = []

    def of(model, optimizer):
        def steps(x, y):
            total = 0.0
            for part in range(2):
                optimizer.zero_grad(set_to_none=part == 0)
                loss = F.cross_entropy(model(x[part::2]), y[part::2])
                loss.backward()
                norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.1, error_if_nonfinite=True))
                optimizer.step()
                total = total + loss.detach()
            return total

        return steps

    eager[0].eval()
    traced[0].eval()
    program = trace(of(*traced), x, y)
    for _ in range(3):
        same(of(*eager)(x, y), program(x, y), 1e-5)
    same_states(eager, traced, 1e-4)
    with pytest.raises(
        RuntimeError, match="total norm of order 2.0 for gradients from `parameters` is non-finite"
    ):
        program(x * float("inf"), y)


def test_checks_of_losses_are_made_at_each_call():
    program = trace(lambda p, t: F.binary_cross_entropy(p, t), facula.full((3,), 0.5), facula.ones(3))
    same(program(facula.full((3,), 0.25), facula.ones(3)), facula.tensor(0.25).log().neg(), 1e-6)
    with pytest.raises(RuntimeError, match="elements of input should be between 0 and 1"):
        program(facula.full((3,), 1.5), facula.ones(3))
    with pytest.raises(RuntimeError, match="elements of target should be between 0 and 1"):
        program(facula.full((3,), 0.5), facula.full((3,), 2.0))


# ---- what changes between steps


def test_a_learning_rate_that_is_a_tensor_is_read_at_each_call():
    x, y = batch(5, 8)
    eager, traced = twins(mlp, lambda p: optim.Adam(p, lr=facula.tensor(0.05)))
    schedules = [optim.lr_scheduler.StepLR(o, 1, 0.5) for _, o in (eager, traced)]
    program = trace(step_of(*traced), x, y)
    for k in range(3):
        for step in (step_of(*eager), program):
            facula.manual_seed(k)
            step(x, y)
        for s in schedules:
            s.step()
    assert float(traced[1].param_groups[0]["lr"]) == pytest.approx(0.05 / 8)
    same(dict(eager[0].state_dict()), dict(traced[0].state_dict()), 1e-4)


def test_options_and_states_that_were_fixed():
    x, y = batch(5, 8)
    model = mlp()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    program = trace(step_of(model, optimizer), x, y)
    program(x, y)
    optimizer.param_groups[0]["eps"] = 0.05
    with pytest.raises(ValueError, match="traced when eps of AdamW was 1e-08, and it is 0.05 now"):
        program(x, y)
    optimizer.param_groups[0]["eps"] = 1e-8
    program(x, y)
    optimizer.load_state_dict(optimizer.state_dict())
    with pytest.raises(ValueError, match="the (states|groups) of AdamW"):
        program(x, y)


def test_captured_tensors_that_have_become_others():
    model = nn.Linear(3, 2)
    program = trace(lambda x: model(x), facula.ones(1, 3))
    model.double()
    with pytest.raises(ValueError, match=r"float32\[2, 3\] as captured tensor 0, and is called with float64"):
        program(facula.ones(1, 3))


# ---- refusals


def test_what_a_step_cannot_hold_is_refused_by_name():
    w = facula.randn(3, requires_grad=True)
    x = facula.randn(3)
    inner, outer = w * 2, (w * 2).sum()
    with pytest.raises(RuntimeError, match="computed outside of the traced function"):
        trace(lambda x: (inner * x).sum().backward(), x)
    with pytest.raises(NotImplementedError, match="create_graph=True"):
        trace(lambda x: (w * x).sum().backward(create_graph=True), x)
    with pytest.raises(NotImplementedError, match="a tensor from outside"):
        trace(lambda x: outer.backward(), x)
    rows = nn.Embedding(7, 3, sparse=True)
    with pytest.raises(NotImplementedError, match=r"embedding: has sparse=True"):
        trace(lambda i: rows(i).sum().backward(), facula.tensor([1, 2, 2]))

    def train(x):
        w.grad = None
        (w * x).sum().backward()

    program = trace(train, x)
    with pytest.raises(NotImplementedError, match="is called while another function is traced"):
        trace(lambda x: program(x), x)


# ---- random steps


@pytest.mark.parametrize("seed", range(40))
def test_random_steps(seed):
    """Layers, losses, accumulation, clipping and optimizers drawn at random, three calls each."""
    r = random.Random(seed)
    facula.manual_seed(seed)
    width = r.choice([3, 8])
    layers = {
        "linear": lambda: nn.Linear(width, width, bias=r.random() < 0.5),
        "norm": lambda: nn.LayerNorm(width),
        "batch": lambda: nn.BatchNorm1d(width),
        "prelu": lambda: nn.PReLU(),
        "tanh": lambda: nn.Tanh(),
        "softmax": lambda: nn.Softmax(-1),
        "glu": lambda: nn.Sequential(nn.Linear(width, 2 * width), nn.GLU()),
        "dropout": lambda: nn.Dropout(0.3),
    }
    chosen = [r.choice(list(layers)) for _ in range(r.randint(1, 5))] + ["linear"]
    options = r.getrandbits(30)

    def make():
        r.seed(options)
        return nn.Sequential(*(layers[name]() for name in chosen))

    eager, traced = twins(make, r.choice(list(OPTIMIZERS.values())))
    parts, clip, keep = r.randint(1, 2), r.random() < 0.3, r.random() < 0.5
    loss_of = r.choice([F.mse_loss, F.smooth_l1_loss, lambda a, b: (a - b).abs().logsumexp(-1).mean()])

    def of(model, optimizer):
        def step(x, y):
            optimizer.zero_grad(set_to_none=keep)
            total = 0.0
            for k in range(parts):
                loss = loss_of(model(x[k::parts]), y[k::parts]) / parts
                loss.backward()
                total = total + loss.detach()
            if clip:
                nn.utils.clip_grad_value_(model.parameters(), 0.05)
            optimizer.step()
            return total

        return step

    x = facula.randn(6, width)
    if not keep:  # .grad is there from then on
        for pair in (eager, traced):
            facula.manual_seed(0)
            of(*pair)(x, x.flip(0))
    program = trace(of(*traced), x, x.flip(0))
    for k in range(3):
        x = facula.randn(6, width)
        losses = []
        for step in (of(*eager), program):
            facula.manual_seed(k)
            losses.append(step(x, x.flip(0)))
        same(losses[0], losses[1], 1e-4)
    same_states(eager, traced, 1e-3)


def test_what_follows_element_by_element_is_computed_again_rather_than_kept():
    channels, layers = 16, 6
    size = 4 * channels * 32 * 32 * 4  # of one activation, in bytes
    model = nn.Sequential(
        *(
            nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.GELU())
            for _ in range(layers)
        )
    )
    optimizer = facula.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    x = facula.rand(4, channels, 32, 32)
    program = facula.program.trace(step, x)
    # Two for each layer: what a convolution gave, and what the next one reads; and what is being computed.
    assert program.memory().peak < (2 * layers + 3) * size
    assert "\n  phase 1\n" in str(program)


def test_gradients_that_a_step_computes_anew_are_freed_before():
    model = nn.Linear(1024, 1024, bias=False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    x = facula.randn(2, 1024)
    program = trace(step, x)
    for _ in range(2):
        program(x)
    held = facula._C.memory_stats()["current_bytes"]
    facula._C.reset_peak_memory()
    program(x)
    assert facula._C.memory_stats()["peak_bytes"] - held < model.weight.nbytes / 2


class Deep(nn.Module):
    """Blocks whose inner values are not kept, each with a draw of its own; checkpoints in checkpoints."""

    def __init__(self, reentrant):
        super().__init__()
        facula.manual_seed(0)
        self.inner = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.3)) for _ in range(4)
        )
        self.outer = nn.ModuleList(nn.Linear(64, 16) for _ in range(4))
        self.reentrant = reentrant

    def forward(self, x, checkpoint=checkpoint):
        def block(x, k):
            h = checkpoint(lambda x: self.inner[k](x).exp(), x, use_reentrant=self.reentrant)
            return F.layer_norm(self.outer[k](h).tanh(), (16,))

        for k in range(4):
            x = checkpoint(block, x, k, use_reentrant=self.reentrant)
        return x


def plainly(f, *args, use_reentrant):
    return f(*args)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_of_a_traced_step_is_computed_again(reentrant, tmp_path):
    def step(model, checkpoint):
        optimizer = optim.SGD(model.parameters(), lr=facula.tensor(0.1))

        def step(x):
            optimizer.zero_grad()
            x.grad = None
            loss = model(x, checkpoint).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    x = facula.randn(32, 16, generator=facula.Generator().manual_seed(1), requires_grad=reentrant)
    again, kept, eager = Deep(reentrant), Deep(reentrant), Deep(reentrant)
    programs = trace(step(again, checkpoint), x), trace(step(kept, plainly), x)
    assert programs[0].memory().peak < 0.8 * programs[1].memory().peak
    assert sum("linear" in s for s in programs[0].steps()) > sum("linear" in s for s in programs[1].steps())
    losses = []
    for call in (*programs, step(eager, checkpoint)):
        facula.manual_seed(7)
        losses.append([call(x).item() for _ in range(5)])
    assert losses[0] == losses[1] == pytest.approx(losses[2], rel=1e-5)
    for a, b, c in zip(again.parameters(), kept.parameters(), eager.parameters()):
        assert a.equal(b)
        facula.testing.assert_close(a, c, rtol=1e-4, atol=1e-6)
    programs[0].save(tmp_path / "step.pt")
    loaded = load(tmp_path / "step.pt")
    assert str(loaded) == str(programs[0]) and loaded.steps() == programs[0].steps()


def test_a_checkpoint_of_a_traced_function_is_computed_again_by_its_gradient():
    model = Deep(False)
    x = facula.randn(8, 16, requires_grad=True)
    program = trace(lambda x: model(x), x)
    facula.manual_seed(3)
    program(x).square().sum().backward()
    found, x.grad = x.grad, None
    facula.manual_seed(3)
    model(x).square().sum().backward()
    facula.testing.assert_close(found, x.grad, rtol=1e-4, atol=1e-6)
    with pytest.raises(NotImplementedError, match="context_fn"):
        contexts = (contextlib.nullcontext(), contextlib.nullcontext())
        trace(lambda x: checkpoint(F.relu, x, use_reentrant=False, context_fn=lambda: contexts), x)
    assert "checkpoint" not in str(trace(lambda x: x + 1, x))  # the one that failed has ended


def packed_cnn():
    return nn.Sequential(
        nn.Conv2d(3, 16, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.Conv2d(32, 16, 1), nn.ReLU(), nn.Conv2d(16, 16, (1, 3), padding=(0, 1)), nn.Flatten(1),
        nn.Linear(16 * 64, 4),
    )  # fmt: skip


def clipped(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    return step


@pytest.mark.parametrize("make_step", [step_of, clipped])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_weights_of_convolutions_stay_packed(name, make_step):
    """As in eager: libraries lay them out in blocks, and the optimizer's step leaves them so."""
    C = facula._C
    make = {"SGD": lambda p: optim.SGD(p, 0.05, momentum=0.9), "AdamW": lambda p: optim.AdamW(p, 0.01)}[name]
    (model, optimizer), (eager, its) = twins(packed_cnn, make)
    program = trace(make_step(model, optimizer), *batch(4, 3, 16, 16))
    other, counts = make_step(eager, its), []
    for _ in range(5):
        x, y = batch(4, 3, 16, 16)
        losses = []
        for f in (other, program):
            before = C.layout_counts()
            losses.append(f(x, y).item())
            after = C.layout_counts()
            counts.append({k: after[k] - before[k] for k in after})
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    packed, its_packed = (
        sum(C.physical_order(p) is not None for p in m.parameters()) for m in (model, eager)
    )
    if make_step is step_of:  # the norm of all gradients reads the logical layout
        assert packed >= its_packed
        assert counts[-1]["restored"] == 0
    same_states((model, optimizer), (eager, its), 1e-4)
    # Plain memory that somebody asked for in between is found by the next step.
    for m in (model, eager):
        with facula.no_grad():
            m[3].weight.view(-1)[7] = 0.25
            m[6].weight.numpy()[0, 0, 0, 0] = -0.5
    for _ in range(2):
        assert program(x, y).item() == pytest.approx(other(x, y).item(), rel=1e-3)
    same_states((model, optimizer), (eager, its), 1e-3)


@pytest.mark.parametrize("make", [optim.AdamW, optim.RMSprop, optim.NAdam])
def test_parameters_that_get_their_first_gradient_later_in_a_step_are_counted_by_themselves(make):
    def world():
        facula.manual_seed(0)
        a, b = facula.randn(2, 3, requires_grad=True), facula.randn(3, 3, requires_grad=True)
        optimizer = make([a, b], lr=0.01)

        def step(x):
            optimizer.zero_grad()
            (a * a).sum().backward()
            optimizer.step()
            (b.tanh() * x).sum().backward()
            optimizer.step()

        return step, a, b

    (ours, *found), (theirs, *expected) = world(), world()
    x = facula.randn(3, 1)
    program = trace(ours, x)
    for _ in range(3):
        program(x), theirs(x)
        for p, q in zip(found, expected):
            same(p.detach(), q.detach(), 1e-6)
