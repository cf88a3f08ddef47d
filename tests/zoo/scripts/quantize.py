"""Training that knows of quantisation: fake quantised weights and activations, learned scales, straight-through gradients."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

rng = np.random.RandomState(0)
x = torch.tensor([-2.0, -1.03, -0.5, 0.0, 0.24, 0.26, 1.7, float("nan"), float("inf"), -float("inf")])
x.requires_grad_()
y = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -8, 7)
print(y, y.grad_fn.name())
y.nansum().backward()
print(x.grad)

w = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()
scale = torch.tensor([0.1, 0.2, 0.05])
zero = torch.tensor([0, 2, -1], dtype=torch.int32)
y = torch.fake_quantize_per_channel_affine(w, scale, zero, 0, -8, 7)
print(y)
(g,) = torch.autograd.grad((y * torch.arange(12.0).view(3, 4)).sum(), w)
print(g)
print(torch.fake_quantize_per_channel_affine(w.detach().T, scale, zero.float() + 0.3, 1, -8, 7))
print(torch.fake_quantize_per_tensor_affine(x.detach(), torch.tensor(0.1), torch.tensor(2), 0, 15))
for dtype in (torch.float16, torch.bfloat16, torch.float64):
    print(torch.fake_quantize_per_tensor_affine(x.detach().to(dtype), 0.1, 1, -8, 7))
    print(torch.fake_quantize_per_channel_affine(w.detach().to(dtype), scale, zero, 0, -8, 7)[0])

for wrong in (
    lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 300, 0, 255),
    lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 5, 3),
    lambda: torch.fake_quantize_per_tensor_affine(x.detach().nan_to_num().long(), 0.1, 0, 0, 5),
    lambda: torch.fake_quantize_per_tensor_affine(x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1]), -8, 7),
    lambda: torch.fake_quantize_per_tensor_affine(x, 0.1, 0.5, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale, zero, 1, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale, zero.long(), 0, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale.double(), zero, 0, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale, zero, 2, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale, zero, -2, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale, zero + 100, 0, -8, 7),
    lambda: torch.fake_quantize_per_channel_affine(w, scale[:2], zero, 0, -8, 7),
):
    try:
        print(wrong())
    except Exception as e:
        print(type(e).__name__)


class Observer(nn.Module):
    """The range of what passes, as a moving average, and its scale and zero point."""

    def __init__(self, low, high):
        super().__init__()
        self.low, self.high = low, high
        self.register_buffer("least", torch.tensor(0.0))
        self.register_buffer("most", torch.tensor(0.0))

    def forward(self, x):
        if self.training:
            least, most = x.detach().aminmax()
            self.least.lerp_(torch.minimum(least, torch.zeros(())), 0.1)
            self.most.lerp_(torch.maximum(most, torch.zeros(())), 0.1)
        scale = max((self.most - self.least).item() / (self.high - self.low), 1e-6)
        zero = int(np.clip(self.low - round(self.least.item() / scale), self.low, self.high))
        return torch.fake_quantize_per_tensor_affine(x, scale, zero, self.low, self.high)


class QLinear(nn.Linear):
    def forward(self, x):
        scale = self.weight.detach().abs().amax(1) / 7
        zeros = torch.zeros(len(scale), dtype=torch.int32)
        return F.linear(
            x, torch.fake_quantize_per_channel_affine(self.weight, scale, zeros, 0, -8, 7), self.bias
        )


net = nn.Sequential(Observer(0, 255), QLinear(4, 8), nn.ReLU(), Observer(0, 15), QLinear(8, 2))
for p in net.parameters():
    p.data.copy_(torch.from_numpy(rng.randn(*p.shape) * 0.5))
X = torch.from_numpy(rng.randn(32, 4).astype("f"))
Y = (X[:, 0] * X[:, 1] > 0).long()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
for step in range(20):
    loss = F.cross_entropy(net(X), Y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 5 == 0:
        print(step, f"{loss.item():.2f}")
net.eval()
print(len(torch.fake_quantize_per_tensor_affine(net[1].weight, 0.1, 0, -8, 7).unique()) <= 16)


class Round(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        q = torch.clamp(torch.round(x / scale), -8, 7)
        ctx.save_for_backward(x, scale, q)
        return q * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale, q = ctx.saved_tensors
        inside = (q > -8) & (q < 7)
        return grad * inside, (grad * torch.where(inside, q - x / scale, q)).sum()


s = torch.tensor(0.2, requires_grad=True)
v = torch.linspace(-3, 3, 9, requires_grad=True)
(Round.apply(v, s) - v.detach()).pow(2).sum().backward()
print(s.grad.round(), v.grad.abs())
