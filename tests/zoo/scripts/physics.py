"""Laws of motion: a network for an equation's solution, one for a Hamiltonian, an ODE's solver, transforms of functions."""

import math

import torch
from torch import nn
from torch.autograd.functional import hessian as autograd_hessian
from torch.autograd.functional import jacobian
from torch.autograd.functional import vjp as autograd_vjp
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vjp, vmap

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


def deterministic(module, scale=1.0):
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel()) * (k + 1.3) + k).view_as(p) * scale)
    return module


class FCN(nn.Module):
    def __init__(self, n_input, n_output, n_hidden, n_layers):
        super().__init__()
        self.fcs = nn.Sequential(nn.Linear(n_input, n_hidden), nn.Tanh())
        hidden = [nn.Sequential(nn.Linear(n_hidden, n_hidden), nn.Tanh()) for _ in range(n_layers - 1)]
        self.fch = nn.Sequential(*hidden)
        self.fce = nn.Linear(n_hidden, n_output)

    def forward(self, x):
        return self.fce(self.fch(self.fcs(x)))


# The damped oscillator u'' + mu u' + k u = 0, from u(0) = 1 at rest.
d, w0 = 2, 8
mu, k = 2 * d, w0**2
pinn = deterministic(FCN(1, 1, 16, 2), 0.4)
t_boundary = torch.tensor(0.0).view(-1, 1).requires_grad_(True)
t_physics = torch.linspace(0, 1, 30).view(-1, 1).requires_grad_(True)
optimiser = torch.optim.Adam(pinn.parameters(), lr=1e-2)
for i in range(61):
    optimiser.zero_grad()
    u = pinn(t_boundary)
    loss1 = (torch.squeeze(u) - 1) ** 2
    dudt = torch.autograd.grad(u, t_boundary, torch.ones_like(u), create_graph=True)[0]
    loss2 = (torch.squeeze(dudt) - 0) ** 2
    u = pinn(t_physics)
    dudt = torch.autograd.grad(u, t_physics, torch.ones_like(u), create_graph=True)[0]
    d2udt2 = torch.autograd.grad(dudt, t_physics, torch.ones_like(dudt), create_graph=True)[0]
    loss3 = torch.mean((d2udt2 + mu * dudt + k * u) ** 2)
    loss = loss1 + 1e-1 * loss2 + 1e-4 * loss3
    loss.backward()
    optimiser.step()
    if i % 20 == 0:
        print(f"{i} {loss.item():.6f} {loss3.item():.5f}")


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = deterministic(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2)), 0.2)

    def forward(self, t, y):
        return self.net(y**3)


def rk4(func, y, t):
    out = [y]
    for t0, t1 in zip(t[:-1], t[1:]):
        h = t1 - t0
        k1 = func(t0, y)
        k2 = func(t0 + h / 2, y + h * k1 / 2)
        k3 = func(t0 + h / 2, y + h * k2 / 2)
        k4 = func(t1, y + h * k3)
        y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        out.append(y)
    return torch.stack(out)


true_A = torch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
t = torch.linspace(0.0, 2.0, 21)
with torch.no_grad():
    true_y = rk4(lambda t, y: torch.mm(y**3, true_A), torch.tensor([[1.2, 0.3]]), t)
func = ODEFunc()
optimizer = torch.optim.RMSprop(func.parameters(), lr=5e-3)
for itr in range(1, 31):
    optimizer.zero_grad()
    loss = torch.mean(torch.abs(rk4(func, true_y[0], t) - true_y))
    loss.backward()
    optimizer.step()
    if itr % 10 == 0:
        print("Iter {:04d} | Total Loss {:.6f}".format(itr, loss.item()))


class HNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.energy = deterministic(
            nn.Sequential(nn.Linear(2, 16), nn.Softplus(), nn.Linear(16, 1, bias=False)), 0.3
        )

    def time_derivative(self, x):
        with torch.enable_grad():
            x = x.requires_grad_()
            dH = torch.autograd.grad(self.energy(x).sum(), x, create_graph=True)[0]
        q_dot, p_dot = dH.chunk(2, dim=-1)[::-1]
        return torch.cat([q_dot, -p_dot], -1)


hnn = HNN()
angles = torch.linspace(0, 2 * math.pi, 17)[:-1]
states = torch.stack([angles.cos(), angles.sin()], -1)
targets = torch.stack([angles.sin(), -angles.cos()], -1)
optimizer = torch.optim.Adam(hnn.parameters(), lr=2e-2)
for step in range(41):
    loss = nn.functional.mse_loss(hnn.time_derivative(states.clone()), targets)
    optimizer.zero_grad(), loss.backward(), optimizer.step()
    if step % 20 == 0:
        print("hnn", step, f"{loss:.6f}")


def rosenbrock(x):
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


x = torch.tensor([1.3, 0.7, 0.8])
print(grad(rosenbrock)(x), hessian(rosenbrock)(x), autograd_hessian(rosenbrock, x), sep="\n")
f = lambda v: torch.stack([v.prod(), v.sum() ** 2, torch.sin(v[0])])  # noqa: E731
print(torch.allclose(jacrev(f)(x), jacfwd(f)(x)), jacobian(f, x))
value, pushed = jvp(f, (x,), (torch.ones(3),))
value2, pull = vjp(f, x)
print(value, pushed, pull(torch.ones(3)), autograd_vjp(f, x, torch.ones(3))[1])
model = deterministic(nn.Linear(3, 2), 0.5)
params = dict(model.named_parameters())


def loss_of(params, sample, target):
    return nn.functional.mse_loss(functional_call(model, params, (sample.unsqueeze(0),)), target.unsqueeze(0))


samples, goals = torch.arange(12.0).view(4, 3) / 10, torch.arange(8.0).view(4, 2) / 10
per_sample = vmap(grad(loss_of), in_dims=(None, 0, 0))(params, samples, goals)
print({n: tuple(g.shape) for n, g in per_sample.items()}, per_sample["bias"])
models = [deterministic(nn.Linear(3, 2), s) for s in (0.1, 0.2, 0.3)]
stacked, buffers = stack_module_state(models)
ensemble = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,)), in_dims=(0, 0, None))
print(ensemble(stacked, buffers, x).detach())
print(
    vmap(torch.dot)(samples, samples),
    vmap(lambda a: a.sort().values, in_dims=1, out_dims=1)(samples.flip(0))[0],
)
try:
    vmap(lambda a: a.item())(samples[:, 0])
except RuntimeError as error:
    print(type(error).__name__)
