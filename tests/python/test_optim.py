"""Optimizers against their published update rules in NumPy, and their state."""

import copy

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
