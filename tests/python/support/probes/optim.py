"""Optimizers: values after steps, options, state, hooks, errors."""

import copy
import io
import pickle

from . import norm


def probe(torch, P):
    nn, optim = torch.nn, torch.optim

    def trained(make, steps=4, dtype=None, double=True):
        p = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64))
        q = nn.Parameter(torch.tensor([[0.5], [4.0]], dtype=torch.float64))
        o = make([p, q])
        for k in range(steps):
            o.zero_grad()
            ((p * p).sum() * (k + 1) + (q - p[0]).pow(4).sum()).backward()
            o.step()
        return o, p, q

    sgd = {
        "sgd": {"lr": 0.01},
        "sgd_momentum": {"lr": 0.01, "momentum": 0.9},
        "sgd_nesterov": {"lr": 0.01, "momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        "sgd_dampened_maximized": {"lr": 0.01, "momentum": 0.5, "dampening": 0.3, "maximize": True},
        "sgd_foreach": {"lr": 0.01, "foreach": True},
        "sgd_fused": {"lr": 0.01, "momentum": 0.9, "fused": True},
    }
    adam = {
        "plain": {"lr": 0.1},
        "decay": {"lr": 0.1, "weight_decay": 0.3, "betas": (0.8, 0.9), "eps": 1e-3},
        "amsgrad": {"lr": 0.1, "amsgrad": True},
        "maximize": {"lr": 0.1, "maximize": True},
        "fused": {"lr": 0.1, "fused": True},
        "capturable": {"lr": 0.1, "foreach": False},
    }
    cases = {k: (optim.SGD, v) for k, v in sgd.items()}
    cases.update({f"adam_{k}": (optim.Adam, v) for k, v in adam.items()})
    cases.update({f"adamw_{k}": (optim.AdamW, v) for k, v in adam.items()})
    for name, (kind, options) in cases.items():

        def run():
            o, p, q = trained(lambda ps: kind(ps, **options))
            state = o.state_dict()
            return p, q, {k: norm(v) for k, v in state["state"].items()}, state["param_groups"]

        run.__name__ = name
        P(run)

    def resumed(kind, **options):
        o, p, q = trained(lambda ps: kind(ps, **options))
        p2, q2 = nn.Parameter(p.detach().clone()), nn.Parameter(q.detach().clone())
        o2 = kind([p2, q2], lr=5.0)
        o2.load_state_dict(copy.deepcopy(o.state_dict()))
        for opt, a, b in ((o, p, q), (o2, p2, q2)):
            opt.zero_grad()
            (a.sum() ** 2 + (b * b).sum()).backward()
            opt.step()
        return p, p2, q, q2, o2.param_groups[0]["lr"]

    @P
    def resume_adam():
        return resumed(optim.Adam, lr=0.1, amsgrad=True)

    @P
    def resume_sgd():
        return resumed(optim.SGD, lr=0.001, momentum=0.9)

    @P
    def lr_as_tensor():
        o, p, q = trained(lambda ps: optim.AdamW(ps, lr=torch.tensor(0.1)))
        return p, q

    def one(kind=None, **options):
        p = nn.Parameter(torch.ones(2))
        p.grad = torch.ones(2)
        return p, (kind or optim.SGD)([p], **{"lr": 0.1, **options})

    @P
    def no_gradient_no_step():
        p = nn.Parameter(torch.ones(2))
        o = optim.Adam([p])
        o.step()
        return p, o.state_dict()["state"]

    @P
    def closure():
        p, o = one()

        def f():
            o.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        return o.step(f), p

    @P
    def zero_grad():
        p, o = one()
        o.zero_grad(set_to_none=False)
        kept = norm(p.grad)
        o.zero_grad()
        return kept, p.grad

    @P
    def shown():
        return repr(one(optim.Adam)[1])

    @P
    def shown_sgd():
        return repr(one(optim.SGD, momentum=0.5)[1])

    @P
    def groups():
        a, b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
        o = optim.SGD([{"params": a, "lr": 0.5}, {"params": [b], "momentum": 0.9}], lr=0.1)
        o.add_param_group({"params": [nn.Parameter(torch.ones(2))], "weight_decay": 0.1})
        return [{k: v for k, v in g.items() if k != "params"} for g in o.param_groups]

    @P
    def named():
        m = nn.Linear(2, 1)
        o = optim.AdamW(m.named_parameters(), lr=0.1)
        return o.param_groups[0]["param_names"], o.state_dict()["param_groups"][0]["param_names"]

    @P
    def named_mixed():
        optim.SGD([("a", nn.Parameter(torch.ones(1))), nn.Parameter(torch.ones(1))], lr=0.1)

    @P
    def hooks_order():
        p, o = one()
        log = []
        o.register_step_pre_hook(lambda opt, a, k: log.append("pre"))
        h = o.register_step_post_hook(lambda opt, a, k: log.append("post"))
        o.step()
        h.remove()
        o.step()
        return log

    @P
    def state_hooks():
        p, o = one(optim.Adam)
        o.step()
        log = []
        o.register_state_dict_pre_hook(lambda opt: log.append("pre"))
        o.register_state_dict_post_hook(lambda opt, sd: {**sd, "more": 1})
        o.register_load_state_dict_pre_hook(lambda opt, sd: log.append(sorted(sd)))
        o.register_load_state_dict_post_hook(lambda opt: log.append("loaded"))
        sd = o.state_dict()
        o.load_state_dict(sd)
        return sorted(sd), log

    @P
    def pickled():
        p, o = one(optim.Adam)
        o.step()
        o2 = pickle.loads(pickle.dumps(o))
        return o2.state_dict()["state"], type(o2).__name__

    @P
    def saved():
        p, o = one(optim.Adam)
        o.step()
        b = io.BytesIO()
        torch.save(o.state_dict(), b)
        b.seek(0)
        return torch.load(b)

    @P
    def add_group_seen():
        p, o = one()
        o.add_param_group({"params": p})

    @P
    def add_group_no_dict():
        one()[1].add_param_group([1])

    @P
    def load_other_groups():
        p, o = one()
        o.load_state_dict({"state": {}, "param_groups": []})

    @P
    def load_other_sizes():
        p, o = one()
        o.load_state_dict({"state": {}, "param_groups": [{"params": [0, 1]}]})

    @P
    def load_casts_state():
        p, o = one(optim.Adam)
        o.step()
        sd = o.state_dict()
        sd["state"][0]["exp_avg"] = sd["state"][0]["exp_avg"].double()
        o.load_state_dict(sd)
        return o.state[p]["exp_avg"].dtype, o.state_dict()["state"][0]["step"].dtype, p in o.state

    for name, make in {
        "empty": lambda: optim.SGD([], lr=0.1),
        "tensor": lambda: optim.SGD(torch.ones(1), lr=0.1),
        "non_leaf": lambda: optim.SGD([nn.Parameter(torch.ones(1)) * 2], lr=0.1),
        "no_tensor": lambda: optim.SGD([1], lr=0.1),
        "set": lambda: optim.SGD([{"params": {nn.Parameter(torch.ones(1))}}], lr=0.1),
        "bad_lr": lambda: one(lr=-1),
        "bad_momentum": lambda: one(momentum=-1),
        "bad_decay": lambda: one(weight_decay=-1),
        "bad_nesterov": lambda: one(nesterov=True),
        "bad_betas": lambda: one(optim.Adam, betas=(1.0, 0.9)),
        "bad_betas2": lambda: one(optim.Adam, betas=(0.1, 1.9)),
        "bad_eps": lambda: one(optim.AdamW, eps=-1),
        "bad_adam_lr": lambda: one(optim.AdamW, lr=-1),
        "bad_adam_decay": lambda: one(optim.Adam, weight_decay=-1),
        "bad_option": lambda: one(nonsense=1),
        "foreach_and_fused": lambda: one(optim.Adam, foreach=True, fused=True),
        "fused_and_differentiable": lambda: one(optim.Adam, differentiable=True, fused=True),
        "lr_tensor_foreach": lambda: one(optim.Adam, lr=torch.tensor([0.1, 0.2])),
    }.items():

        def run():
            make()

        run.__name__ = "wrong_" + name
        P(run)

    @P
    def scheduler_order():
        p, o = one()
        s = optim.lr_scheduler.StepLR(o, 1)
        o.step()
        s.step()
        return s.get_last_lr(), o.param_groups[0]["lr"], "last_epoch" in s.state_dict()

    @P
    def scheduler_wrong():
        optim.lr_scheduler.StepLR(5, 1)

    @P
    def scheduler_resume_without_initial():
        optim.lr_scheduler.StepLR(one()[1], 1, last_epoch=3)

    @P
    def plateau():
        p, o = one()
        s = optim.lr_scheduler.ReduceLROnPlateau(o, patience=0)
        s.step(1.0)
        s.step(torch.tensor(2.0))
        return s.get_last_lr(), s.num_bad_epochs, "last_epoch" in s.state_dict()
