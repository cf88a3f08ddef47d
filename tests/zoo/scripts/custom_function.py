"""Functions with gradients of one's own, checked by finite differences; saved tensors, anomalies, optimizers by hand."""

import math
import warnings

import torch
from torch import nn
from torch.autograd import Function, gradcheck, gradgradcheck
from torch.autograd.function import once_differentiable

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


class LegendrePolynomial3(Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return 0.5 * (5 * input**3 - 3 * input)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        return grad_output * 1.5 * (5 * input**2 - 1)


x = torch.linspace(-math.pi, math.pi, 200)
y = torch.sin(x)
a, b, c, d = (torch.full((), v, requires_grad=True) for v in (0.0, -1.0, 0.0, 0.3))
for t in range(200):
    P3 = LegendrePolynomial3.apply
    y_pred = a + b * P3(c + d * x)
    loss = (y_pred - y).pow(2).sum()
    if t % 50 == 49:
        print(t, round(loss.item(), 6))
    loss.backward()
    with torch.no_grad():
        for p in (a, b, c, d):
            p -= 5e-6 * p.grad
            p.grad = None
print(f"Result: y = {a.item():.6f} + {b.item():.6f} * P3({abs(c.item()):.6f} + {d.item():.6f} x)")
print(y_pred.grad_fn.name(), type(loss.grad_fn.next_functions[0][0]).__name__)


class Linear(Function):
    @staticmethod
    def forward(input, weight, bias):
        return input.mm(weight.t()) + bias

    @staticmethod
    def setup_context(ctx, inputs, output):
        input, weight, bias = inputs
        ctx.save_for_backward(input, weight)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, grad_output):
        if grad_output is None:
            return None, None, None
        input, weight = ctx.saved_tensors
        grad_input = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_input = grad_output.mm(weight)
        if ctx.needs_input_grad[1]:
            grad_weight = grad_output.t().mm(input)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_output.sum(0)
        return grad_input, grad_weight, grad_bias


inputs = (
    torch.randn(4, 3, requires_grad=True),
    torch.randn(2, 3, requires_grad=True),
    torch.randn(2, requires_grad=True),
)
print(gradcheck(Linear.apply, inputs, eps=1e-6, atol=1e-4), gradgradcheck(Linear.apply, inputs))


class Clamp(Function):
    """The straight-through estimator; and wrong on purpose below."""

    @staticmethod
    def forward(ctx, x, low, high):
        ctx.mark_non_differentiable()
        ctx.low = low
        return x.clamp(low, high)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        return grad.clone(), None, None


v = torch.tensor([-2.0, 0.5, 3.0], requires_grad=True)
out = Clamp.apply(v, -1.0, 1.0)
print(out, torch.autograd.grad(out.sum(), v))
try:
    gradcheck(Clamp.apply, (v, -1.0, 1.0))
except RuntimeError as error:
    print(str(error).splitlines()[0])
print(gradcheck(Clamp.apply, (v, -1.0, 1.0), raise_exception=False))
with torch.enable_grad():
    grad = torch.autograd.grad(Clamp.apply(v * v, 0.0, 1.0).sum(), v, create_graph=True)[0]
try:
    grad.sum().backward()
except RuntimeError as error:
    print(str(error).splitlines()[0])


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result

    @staticmethod
    def jvp(ctx, t):
        return t


print(Exp.apply(torch.zeros(2, requires_grad=True)), Exp.__name__)
sizes = []
with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
    Exp.apply(torch.zeros(5, requires_grad=True)).sum().backward()
print(sizes)


class Broken(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad, grad


def attempt(f):
    try:
        print("result", f())
    except Exception as error:
        print(type(error).__name__)


attempt(lambda: Broken.apply(torch.ones(2, requires_grad=True)).sum().backward())
attempt(lambda: torch.ones(2, requires_grad=True).backward())
attempt(lambda: torch.ones(2).sum().backward())
leaf = torch.ones(2, requires_grad=True)
attempt(lambda: leaf.add_(1))
twice = (leaf * leaf).sum()
twice.backward()
attempt(twice.backward)
attempt(lambda: leaf.numpy())
attempt(lambda: torch.autograd.grad((leaf * 2).sum(), torch.ones(1, requires_grad=True)))
attempt(lambda: Exp()(leaf))
changed = leaf * 1.0
squared = changed**2
changed.add_(1)
attempt(lambda: squared.sum().backward())
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    with torch.autograd.detect_anomaly():
        attempt(lambda: torch.sqrt(torch.zeros(1, requires_grad=True) * 0 - 1).sum().backward())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print((leaf * 2).grad)
    print(str(caught[0].message)[:75], caught[0].category.__name__)


class SignSGD(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, beta=0.9):
        if lr < 0.0:
            raise ValueError("Invalid learning rate: {}".format(lr))
        super().__init__(params, dict(lr=lr, beta=beta))

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["momentum"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                state["step"] += 1
                state["momentum"].mul_(group["beta"]).add_(p.grad, alpha=1 - group["beta"])
                p.add_(state["momentum"].sign(), alpha=-group["lr"])
        return loss


class Every(torch.optim.lr_scheduler.LRScheduler):
    def get_lr(self):
        if self.last_epoch == 0 or self.last_epoch % 5:
            return [group["lr"] for group in self.optimizer.param_groups]
        return [group["lr"] * 0.5 for group in self.optimizer.param_groups]


w = nn.Parameter(torch.tensor([1.0, -3.0]))
optimizer = SignSGD([w], lr=0.2)
scheduler = Every(optimizer)
w.register_hook(lambda g: g * 2)
w.register_post_accumulate_grad_hook(lambda p: counted.append(p.grad.clone()))
counted = []
for _ in range(20):
    optimizer.zero_grad()
    value = optimizer.step(
        lambda: (lambda s: (s.backward(), s)[1])((w - torch.tensor([0.5, 0.25])).square().sum())
    )
    scheduler.step()
print(w, f"{value.item():.4f}", scheduler.get_last_lr(), len(counted), counted[0])
print(optimizer)
print(
    optimizer.state_dict()["state"][0]["step"],
    optimizer.state[w].keys(),
    scheduler.state_dict()["last_epoch"],
)
attempt(lambda: SignSGD([w], lr=-1.0))
attempt(lambda: SignSGD([]))
attempt(lambda: SignSGD(w))
attempt(lambda: SignSGD([torch.ones(1, requires_grad=True) * 2]))
attempt(lambda: optimizer.add_param_group({"params": [w]}))
