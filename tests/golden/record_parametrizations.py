"""Records what PyTorch's parametrizations and spectral norms do, line by line.

    .peer/bin/python tests/golden/record_parametrizations.py > tests/golden/parametrizations.txt

``test_modules.py`` runs the same behind the alias. Numbers have three digits.
"""

import copy
import warnings

import torch
import torch.nn as nn
import torch.nn.utils.parametrizations as Q
import torch.nn.utils.parametrize as P

warnings.simplefilter("ignore")


def fill(m):
    with torch.no_grad():
        for k, t in enumerate([*m.parameters(), *m.buffers()]):
            if t.is_floating_point():
                t.copy_((torch.arange(t.numel()).reshape(t.shape) * 0.37 + k).sin())
    return m


class S(nn.Module):
    def forward(self, x):
        return x.triu() + x.triu(1).T

    def right_inverse(self, x):
        return x.triu()


class N(nn.Module):
    def forward(self, x):
        return x * 2


out = []


def say(*a):
    for x in a:
        if isinstance(x, torch.Tensor):
            x = [float(f"{float(v):.3g}") for v in x.detach().reshape(-1)]
        out.append(repr(x))


def err(f):
    try:
        f()
        out.append("no error")
    except Exception as e:
        out.append(type(e).__name__ + " " + str(e)[:60])


m = P.register_parametrization(fill(nn.Linear(3, 3)), "weight", S())
say(m, list(m.state_dict()), m.weight)
m.weight = torch.arange(9.0).reshape(3, 3)
say(m.weight, m.parametrizations.weight.original)
P.register_parametrization(m, "weight", N())
say(m.weight, len(m.parametrizations.weight), [n for n, _ in m.named_parameters()])
m(torch.ones(1, 3)).sum().backward()
say(m.parametrizations.weight.original.grad)
c = copy.deepcopy(m)
say(
    type(c) is type(m),
    c.weight,
    P.is_parametrized(c),
    P.is_parametrized(c, "bias"),
    P.type_before_parametrizations(c).__name__,
)
with P.cached():
    say(m.weight is m.weight)
say(m.weight is m.weight)
P.remove_parametrizations(m, "weight")
say(m, type(m).__name__, m.weight, list(m.state_dict()))
for dim in (0, None, 1):
    m = fill(Q.weight_norm(nn.Linear(3, 2), dim=dim))
    say({k: list(v.shape) for k, v in m.state_dict().items()}, m.weight)
    m(torch.ones(2, 3)).sum().backward()
    say(*[p.grad for p in m.parameters()])
    m.weight = torch.ones(2, 3)
    say(m.weight)
    P.remove_parametrizations(m, "weight")
    say(list(m.state_dict()), m.weight)
for make in (Q.spectral_norm, nn.utils.spectral_norm):
    for mod in (nn.Linear(3, 4), nn.Conv2d(2, 3, 2), nn.ConvTranspose2d(2, 3, 2)):
        m = fill(make(mod))
        say({k: list(v.shape) for k, v in m.state_dict().items()})
        x = torch.ones(1, 3) if isinstance(mod, nn.Linear) else torch.ones(1, 2, 4, 4)
        for _ in range(3):
            y = m(x)
        y.sum().backward()
        say(m.weight, *[p.grad for p in m.parameters()])
        m.eval()
        say(m(x))
        say(m(x))
        if make is nn.utils.spectral_norm:
            nn.utils.remove_spectral_norm(m)
        else:
            P.remove_parametrizations(m, "weight")
        say(list(m.state_dict()), m.weight)
m1 = fill(Q.weight_norm(nn.Linear(3, 2)))
m2 = nn.Linear(3, 2)
m2.load_state_dict
P.transfer_parametrizations_and_params(m1, m2)
say(sorted(m2.state_dict()), m2.weight)
err(lambda: P.register_parametrization(nn.Linear(2, 2), "x", S()))
err(lambda: P.remove_parametrizations(nn.Linear(2, 2), "weight"))


class D(nn.Module):
    def forward(self, x):
        return x.double()


class B(nn.Module):
    def forward(self, x):
        return x[0]


err(lambda: P.register_parametrization(nn.Linear(2, 2), "weight", D()))
err(lambda: P.register_parametrization(nn.Linear(2, 2), "weight", B()))
m = P.register_parametrization(nn.Linear(2, 2), "weight", N())
err(lambda: setattr(m, "weight", torch.ones(2, 2)))
err(lambda: copy.copy(m).__getstate__())
err(lambda: P.remove_parametrizations(m, "bias"))
m = nn.BatchNorm1d(3)
P.register_parametrization(m, "running_mean", N())
say(list(m.state_dict()), m.running_mean)
print("\n".join(out))
