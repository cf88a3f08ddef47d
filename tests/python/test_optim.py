"""Optimizers against their published update rules in NumPy, and their state."""

import copy
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

import facula as torch

nn = torch.nn


def parameters(seed=0):
    r = np.random.default_rng(seed)
    values = [r.standard_normal(s) for s in [(3,), (4, 1, 3), (2, 5), ()]]
    return values, [nn.Parameter(torch.tensor(v.tolist(), dtype=torch.float64)) for v in values]


def gradients(step):
    r = np.random.default_rng(100 + step)
    return [r.standard_normal(s) for s in [(3,), (4, 1, 3), (2, 5), ()]]


def sgd_rule(p, g, s, lr, momentum=0, dampening=0, weight_decay=0, nesterov=False, maximize=False):
    g = (-g if maximize else g) + weight_decay * p
    if momentum:
        s["b"] = g if "b" not in s else momentum * s["b"] + (1 - dampening) * g
        g = g + momentum * s["b"] if nesterov else s["b"]
    return p - lr * g


def adam_rule(
    p,
    g,
    s,
    lr,
    betas=(0.9, 0.999),
    eps=1e-8,
    weight_decay=0.0,
    amsgrad=False,
    maximize=False,
    decoupled=False,
):
    g = -g if maximize else g
    if decoupled:
        p = p * (1 - lr * weight_decay)
    else:
        g = g + weight_decay * p
    s["t"] = s.get("t", 0) + 1
    s["m"] = betas[0] * s.get("m", 0) + (1 - betas[0]) * g
    s["v"] = betas[1] * s.get("v", 0) + (1 - betas[1]) * g * g
    v = s["v"]
    if amsgrad:
        v = s["vmax"] = np.maximum(s.get("vmax", 0), v)
    m_hat = s["m"] / (1 - betas[0] ** s["t"])
    return p - lr * m_hat / (np.sqrt(v / (1 - betas[1] ** s["t"])) + eps)


CASES = [
    ("SGD", {"lr": 0.1}, sgd_rule),
    ("SGD", {"lr": 0.1, "momentum": 0.9}, sgd_rule),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}, sgd_rule),
    ("SGD", {"lr": 0.1, "momentum": 0.8, "nesterov": True, "maximize": True}, sgd_rule),
    ("Adam", {"lr": 0.01}, adam_rule),
    ("Adam", {"lr": 0.01, "weight_decay": 0.1, "betas": (0.8, 0.95), "eps": 1e-4}, adam_rule),
    ("Adam", {"lr": 0.01, "amsgrad": True, "maximize": True}, adam_rule),
    ("AdamW", {"lr": 0.01, "weight_decay": 0.05}, adam_rule),
]


@pytest.mark.parametrize("name, options, rule", CASES, ids=[f"{c[0]}-{'-'.join(c[1])}" for c in CASES])
def test_steps_follow_the_published_rule(name, options, rule):
    expected, params = parameters()
    optimizer = getattr(torch.optim, name)(params, **options)
    states = [{} for _ in params]
    more = {"decoupled": True} if name == "AdamW" else {}
    for step in range(5):
        for k, g in enumerate(gradients(step)):
            if step == 2 and k == 1:  # no gradient in this step: neither value nor state moves
                params[k].grad = None
                continue
            params[k].grad = torch.tensor(np.asarray(g).tolist(), dtype=torch.float64)
            expected[k] = rule(expected[k], g, states[k], **options, **more)
        optimizer.step()
    for p, e in zip(params, expected):
        np.testing.assert_allclose(p.detach().numpy(), e, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name, options", [(c[0], c[1]) for c in CASES])
def test_a_restored_optimizer_continues_bit_for_bit(tmp_path, name, options):
    def run(optimizer, params, steps):
        for step in steps:
            for p, g in zip(params, gradients(step)):
                p.grad = torch.tensor(np.asarray(g).tolist(), dtype=torch.float64)
            optimizer.step()

    make = getattr(torch.optim, name)
    _, whole = parameters()
    run(make(whole, **options), whole, range(6))
    _, first = parameters()
    optimizer = make(first, **options)
    run(optimizer, first, range(3))
    torch.save({"o": optimizer.state_dict(), "p": first}, tmp_path / "o.pt")
    saved = torch.load(tmp_path / "o.pt")
    second = saved["p"]
    restored = make(second, lr=123.0)
    restored.load_state_dict(saved["o"])
    run(restored, second, range(3, 6))
    for a, b in zip(whole, second):
        assert a.tolist() == b.tolist()


def test_state_dict_has_pytorchs_form():
    _, params = parameters()
    optimizer = torch.optim.Adam([{"params": params[:2]}, {"params": params[2:], "lr": 0.5}], lr=0.1)
    for p in params[1:]:
        p.grad = torch.ones_like(p)
    optimizer.step()
    d = optimizer.state_dict()
    assert [g["params"] for g in d["param_groups"]] == [[0, 1], [2, 3]]
    assert [g["lr"] for g in d["param_groups"]] == [0.1, 0.5]
    assert sorted(d["state"]) == [1, 2, 3]
    assert sorted(d["state"][1]) == ["exp_avg", "exp_avg_sq", "step"]
    assert d["state"][1]["step"].dtype == torch.float32 and d["state"][1]["step"].item() == 1


def test_closure_is_run_with_gradients_and_its_loss_returned():
    p = nn.Parameter(torch.tensor([2.0]))
    optimizer = torch.optim.SGD([p], lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with torch.no_grad():
        assert optimizer.step(closure).item() == 4.0
    assert p.item() == pytest.approx(1.6)


def test_zero_grad():
    p = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.1)
    p.grad = torch.ones(2)
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0, 0]
    optimizer.zero_grad()
    assert p.grad is None


def test_step_hooks_see_the_optimizer_and_can_be_removed():
    p = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([p], lr=0.1)
    seen = []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: seen.append("before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: seen.append(o is optimizer))
    optimizer.step()
    before.remove()
    optimizer.step()
    assert seen == ["before", True, True]


def test_steps_are_not_recorded():
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    for make in (lambda: torch.optim.SGD([p], lr=0.1, momentum=0.9), lambda: torch.optim.AdamW([p])):
        optimizer = make()
        optimizer.step()
        assert p.is_leaf and p.requires_grad and p.grad_fn is None
        assert not any(t.requires_grad for t in optimizer.state[p].values() if torch.is_tensor(t))


def test_a_changed_rate_compiles_nothing():
    p = nn.Parameter(torch.ones(7, 3))
    optimizer = torch.optim.AdamW([p])
    p.grad = torch.ones(7, 3)
    optimizer.step()
    before = torch._C.cache_stats()["compiled"]
    for lr in (0.3, 0.2, 0.1):
        optimizer.param_groups[0]["lr"] = lr
        optimizer.step()
    assert torch._C.cache_stats()["compiled"] == before


def test_deep_copies_are_independent():
    p = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    p.grad = torch.ones(2)
    optimizer.step()
    other = copy.deepcopy(optimizer)
    (q,) = other.param_groups[0]["params"]
    q.grad = torch.ones(2)
    other.step()
    assert p.tolist() != q.tolist()


@pytest.mark.parametrize(
    "make, error, message",
    [
        (lambda: torch.optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
        (lambda: torch.optim.SGD(torch.ones(1), lr=0.1), TypeError, "iterable of Tensors"),
        (lambda: torch.optim.SGD([1.0], lr=0.1), TypeError, "can only optimize Tensors"),
        (lambda: torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=-1), ValueError, "Invalid learning rate"),
        (
            lambda: torch.optim.Adam([nn.Parameter(torch.ones(1))], betas=(1.0, 0.9)),
            ValueError,
            "beta parameter at index 0",
        ),
        (lambda: torch.optim.SGD([nn.Parameter(torch.ones(1))], nesterov=True), ValueError, "Nesterov"),
        (lambda: torch.optim.SGD([nn.Parameter(torch.ones(1)) * 2]), ValueError, "non-leaf"),
    ],
)
def test_wrong_arguments_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_a_state_of_another_shape_is_refused():
    a = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    b = torch.optim.SGD([nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(ValueError, match="doesn't match the size"):
        a.load_state_dict(b.state_dict())
    with pytest.raises(ValueError, match="more than one parameter group"):
        p = nn.Parameter(torch.ones(1))
        torch.optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_a_step_treats_each_parameter_by_itself_however_it_lies(optimizer):
    options = {"lr": 0.1, "weight_decay": 0.1} | ({"momentum": 0.9} if optimizer is torch.optim.SGD else {})
    base = torch.arange(24.0).reshape(2, 3, 4) / 10
    leaves = [
        base.clone(),
        base.permute(2, 0, 1).clone(memory_format=torch.preserve_format),
        base[0].t(),
        base[:, 1, ::2].detach(),
        torch.tensor(0.5),
        torch.zeros(0, 3),
        base.double()[0, 0],
        torch.arange(96.0).reshape(1, 4, 4, 6).contiguous(memory_format=torch.channels_last) / 50,
    ]
    together = [nn.Parameter(t.clone(memory_format=torch.preserve_format)) for t in leaves]
    alone = [nn.Parameter(t.contiguous().clone()) for t in leaves]
    steps = [optimizer(together, **options), *(optimizer([p], **options) for p in alone)]
    for _ in range(3):
        for parameters in (together, alone):
            for p in parameters:
                p.grad = (p.detach() * 3).cos()
        for s in steps:
            s.step()
    for a, b in zip(together, alone, strict=True):
        assert a.tolist() == b.tolist()


# ---- as PyTorch's, recorded

RECORDER = runpy.run_path(str(Path(__file__).parents[1] / "golden/record_optimizers.py"))
RECORDED = json.loads((Path(__file__).parents[1] / "golden/optimizers.json").read_text())


@pytest.mark.parametrize("k", range(len(RECORDED)), ids=lambda k: f"{RECORDED[k][0]}-{k}")
def test_steps_are_pytorchs(k):
    name, options, theirs = RECORDED[k]
    assert json.loads(json.dumps(RECORDER["CASES"][k])) == [name, options]
    ours = RECORDER["moved"](torch, *RECORDER["CASES"][k])
    # Line searches end where rounding makes losses equal.
    bound = 1e-9 if name == "LBFGS" else 2e-14
    for a, b in zip(ours["after"], theirs["after"]):
        for x, y in zip(a, b):
            np.testing.assert_allclose(x, y, rtol=bound, atol=bound)
    assert ours["options"] == theirs["options"]
    if name != "LBFGS":
        assert ours["state"] == theirs["state"]


NAMES = sorted({case[0] for case in RECORDER["CASES"]})


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_a_loaded_state_goes_on_to_the_bit(name, dtype):
    def started():
        torch.manual_seed(0)
        params = [nn.Parameter(torch.randn(shape).to(dtype)) for shape in [(3, 4), (5,), ()]]
        return params, getattr(torch.optim, name)(params, lr=0.05)

    def steps(params, optimizer, begin, end):
        for step in range(begin, end):

            def closure():
                torch.manual_seed(step)
                for p in params:
                    p.grad = (p.detach() + torch.randn(p.shape)).to(dtype)
                return sum((p.detach().double() ** 2).sum() for p in params)

            optimizer.step(closure) if name == "LBFGS" else (closure(), optimizer.step())

    params, optimizer = started()
    steps(params, optimizer, 0, 3)
    saved = copy.deepcopy([p.detach() for p in params]), copy.deepcopy(optimizer.state_dict())
    steps(params, optimizer, 3, 6)
    again, other = started()
    with torch.no_grad():
        for p, value in zip(again, saved[0]):
            p.copy_(value)
    other.load_state_dict(saved[1])
    steps(again, other, 3, 6)
    assert [p.tolist() for p in params] == [p.tolist() for p in again]


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("Adafactor", "LBFGS")])
def test_parts_of_complex_parameters_move_for_themselves(name):
    torch.manual_seed(0)
    z = nn.Parameter(torch.randn(3, 2, dtype=torch.complex128))
    x = nn.Parameter(torch.view_as_real(z.detach()).clone())
    ours, parts = (getattr(torch.optim, name)([p]) for p in (z, x))
    if name == "SGD":
        ours, parts = (torch.optim.SGD([p], lr=0.1, momentum=0.9) for p in (z, x))
    for _ in range(4):
        z.grad = torch.randn(3, 2, dtype=torch.complex128)
        x.grad = torch.view_as_real(z.grad).clone()
        ours.step()
        parts.step()
        np.testing.assert_allclose(torch.view_as_real(z.detach()).numpy(), x.detach().numpy(), rtol=1e-14)


WRONG = [
    ("Adadelta", {"rho": 2}, "Invalid rho value: 2"),
    ("Adagrad", {"lr_decay": -1}, "Invalid lr_decay value: -1"),
    ("Adamax", {"betas": (0, 1)}, "Invalid beta parameter at index 1: 1"),
    ("ASGD", {"lr": -1}, "Invalid learning rate: -1"),
    ("NAdam", {"momentum_decay": -1}, "Invalid momentum_decay value: -1"),
    ("RMSprop", {"alpha": -1}, "Invalid alpha value: -1"),
    ("RMSprop", {"eps": -1}, "Invalid epsilon value: -1"),
    ("Rprop", {"etas": (1, 0.5)}, "Invalid eta values: 1, 0.5"),
    ("Adafactor", {"d": 0.5}, "Clipping threshold d should be >= 1 but is: 0.5"),
    ("Muon", {"lr": -1}, "Learning rate should be >= 0 but is: -1"),
]


@pytest.mark.parametrize("name, options, text", WRONG, ids=[f"{w[0]}-{'-'.join(w[1])}" for w in WRONG])
def test_wrong_options_are_named(name, options, text):
    with pytest.raises(ValueError, match=text):
        getattr(torch.optim, name)([nn.Parameter(torch.ones(2, 2))], **options)


def test_muon_moves_matrices_along_orthogonal_steps():
    torch.manual_seed(0)
    for shape in ((6, 4), (4, 6)):
        p = nn.Parameter(torch.randn(shape))
        optimizer = torch.optim.Muon([p], lr=0.1, weight_decay=0.0)
        before = p.detach().clone()
        p.grad = torch.randn(shape)
        optimizer.step()
        step = (before - p.detach()).numpy() / 0.1 / max(1, shape[0] / shape[1]) ** 0.5
        singular = np.linalg.svd(step, compute_uv=False)
        assert (singular > 0.6).all() and (singular < 1.3).all()
        assert np.sum(step * p.grad.numpy()) > 0
    with pytest.raises(ValueError, match="only supports 2D parameters"):
        torch.optim.Muon([nn.Parameter(torch.ones(2))])


def test_one_call_moves_all_parameters():
    """A step of many parameters is one operator's call, whatever the optimizer."""
    params = [nn.Parameter(torch.ones(3)) for _ in range(20)]
    for name in ("Adam", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "ASGD", "Rprop"):
        optimizer = getattr(torch.optim, name)(params)
        for p in params:
            p.grad = torch.ones(3)
        optimizer.step()
        with torch.profiler.profile() as prof:
            optimizer.step()
        calls = [e for e in prof.events() if e.name.startswith("aten::_") and e.name.endswith("_")]
        assert len(calls) == 1, (name, [e.name for e in calls])


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "NAdam", "ASGD", "Rprop", "Adadelta", "Adafactor"])
def test_numbers_of_a_running_optimizer_are_tensors(name):
    _, params = parameters()
    optimizer = getattr(torch.optim, name)(params, lr=0.1)
    for missing in (None, 1, None):
        for k, p in enumerate(params):
            p.grad = None if k == missing else torch.ones_like(p)
        optimizer.step()
    steps = [optimizer.state[p]["step"] for p in params]
    assert [(s.dtype, s.dim(), s.item()) for s in steps] == [
        (torch.float32, 0, 2.0 if k == 1 else 3.0) for k in range(len(params))
    ]
    # A state_dict has one for each, which other libraries count in place.
    saved = [s["step"] for s in optimizer.state_dict()["state"].values()]
    saved[0] += 7
    assert [s.item() for s in saved[1:]] == [s.item() for s in steps[1:]] and steps[0].item() == 3


def test_a_count_of_steps_that_somebody_sets_is_gone_on_from():
    _, params = parameters()
    optimizer = torch.optim.Adam(params, lr=0.1)
    for value in (torch.tensor(9.0), 9, 9.0):
        for p in params:
            p.grad = torch.ones_like(p)
            optimizer.state[p].update(step=value) if optimizer.state[p] else None
        optimizer.step()
    assert [optimizer.state[p]["step"].item() for p in params] == [10.0] * len(params)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_line_search_goes_as_far_as_it_may_on_a_line(sign):
    p = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([p], line_search_fn="strong_wolfe")
    count = 0

    def closure():
        nonlocal count
        count += 1
        optimizer.zero_grad()
        loss = sign * (p * torch.tensor([1.0, 2.0])).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 0
    # 1 / 3, and 22 steps each ten times as far: PyTorch's -3.0602e22 after 26 evaluations; ours keeps to 25
    assert count == 25 and torch.isfinite(p).all()
    assert (p[1] / p[0]).item() == pytest.approx(2) and (sign * p < -1e20).all()


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
@pytest.mark.parametrize("most", [2, 3, 5, 8, 13])
def test_lbfgs_evaluates_the_closure_at_most_max_eval_times(search, most):
    p = torch.tensor([-1.2, 1.0], requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [p], lr=1 if search else 1e-2, max_iter=50, max_eval=most, line_search_fn=search
    )
    losses = []

    def closure():
        optimizer.zero_grad()
        loss = 100 * (p[1] - p[0] ** 2) ** 2 + (1 - p[0]) ** 2
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
    assert len(losses) == most == optimizer.state[p]["func_evals"]
    assert closure().item() <= losses[0]
