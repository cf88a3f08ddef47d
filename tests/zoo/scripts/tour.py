"""First steps as tutorials print them: tensors of every kind, graphs, modules, a training loop, shapes that change in place."""

import math
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

print(
    torch.tensor(5),
    torch.tensor([1, 2]),
    torch.tensor([[1.5, 2], [3, 4]]),
    torch.tensor([True, False]),
    torch.tensor([]),
    torch.tensor(3.0).item(),
)
print(
    torch.zeros(2, 3),
    torch.ones(2, dtype=torch.int8),
    torch.full((2, 2), 7),
    torch.eye(2),
    torch.arange(0, 1, 0.25),
    torch.linspace(0, 1, 5),
    torch.logspace(0, 2, 3),
    sep="\n",
)
print(
    torch.tensor([1e-8, 1.0]),
    torch.tensor([1e8, 1.0]),
    torch.tensor([float("nan"), float("inf"), -float("inf")]),
    torch.tensor([0.1, 100000.0]),
    torch.tensor([1234567.0, 1.0]),
)
print(
    torch.tensor([1 + 2j, 3.5 - 1j]),
    torch.tensor([1, 2], dtype=torch.float16),
    torch.tensor([1.5], dtype=torch.bfloat16),
    torch.tensor([255], dtype=torch.uint8),
    torch.tensor(2**40),
)
print(
    torch.arange(2000),
    torch.arange(24.0).view(2, 3, 4),
    torch.zeros(2, 0),
    torch.zeros(1, 1, 1),
    torch.arange(10000.0).view(100, 100),
    sep="\n",
)
x = torch.ones(2, 2, requires_grad=True)
print(x)
y = x + 2
print(y, y.grad_fn is not None, x.grad_fn, x.is_leaf, y.is_leaf)
z = y * y * 3
out = z.mean()
print(z, out)
out.backward()
print(x.grad, x.grad.grad_fn, y.requires_grad, (x * 2).detach(), x.data)
a = torch.tensor([2.0, 3.0], requires_grad=True)
b = torch.tensor([6.0, 4.0], requires_grad=True)
q = 3 * a**3 - b**2
q.backward(gradient=torch.tensor([1.0, 1.0]))
print(q, 9 * a**2 == a.grad, -2 * b == b.grad)
for step in (q, q.grad_fn.next_functions[0][0], q.grad_fn.next_functions[0][0].next_functions[0][0]):
    print(type(getattr(step, "grad_fn", step)).__name__)
print(q.grad_fn.name(), q.grad_fn.next_functions[1][0].name(), q.grad_fn.metadata, callable(q.grad_fn))
w = torch.randn(5, 3, requires_grad=True)
bias = torch.randn(3, requires_grad=True)
logits = torch.matmul(torch.ones(5), w) + bias
loss = F.binary_cross_entropy_with_logits(logits, torch.zeros(3))
print(
    "Gradient function for z =", type(logits.grad_fn).__name__, "and for loss =", type(loss.grad_fn).__name__
)
with torch.no_grad():
    print((x * 2).requires_grad, torch.is_grad_enabled())


@torch.no_grad()
def doubler(x):
    return x * 2


print(doubler(x).requires_grad, x.detach().requires_grad_(), torch.tensor(1.0, requires_grad=True).exp())
n = np.ones(3)
t = torch.from_numpy(n)
np.add(n, 1, out=n)
print(
    t,
    n,
    torch.ones(2).numpy(),
    t.numpy() is n,
    torch.as_tensor(n).data_ptr() == t.data_ptr(),
    np.asarray(torch.ones(2)),
    torch.tensor(n).dtype,
)
t.add_(1)
print(
    n,
    np.mean(t.numpy()),
    torch.tensor(np.float32(3)),
    torch.tensor([np.int64(1)]),
    np.sin(torch.zeros(2)),
    torch.sum(torch.from_numpy(n)).numpy(),
)
m = torch.arange(12).reshape(3, 4)
print(
    m.shape,
    m.size(),
    m.size(0),
    m.dim(),
    m.ndim,
    m.numel(),
    m.dtype,
    m.device,
    m.stride(),
    m.is_contiguous(),
    len(m),
    m.element_size(),
    m.nbytes,
    m.layout,
)
print(
    m[0],
    m[:, -1],
    m[..., -1],
    m[1:, ::2],
    m[m > 5],
    m[[0, 2]],
    m[:, [1, 3]],
    m[1, 2].item(),
    m[-1, -1],
    m.T,
    sep="\n",
)
m[:, 1] = 0
m[0] += 10
m[m == 0] = -1
print(
    m,
    m.tolist(),
    m.t().contiguous().view(-1),
    m.float().mean(0),
    m.max(),
    m.max(dim=1),
    m.argmax(),
    m.sum(dim=0, keepdim=True),
    m.clamp(0, 10),
    sep="\n",
)
print(
    torch.cat([m, m], dim=1).shape,
    torch.stack([m, m]).shape,
    torch.vstack((m, m)).shape,
    m.unsqueeze(1).shape,
    m.view(2, -1).shape,
    m.permute(1, 0).shape,
    m.flatten().shape,
    m.expand(2, 3, 4).shape,
    m.chunk(2, 1)[0].shape,
    m.split([1, 3], 1)[1].shape,
)
print(
    m @ m.T,
    m * m,
    m.matmul(m.T).shape,
    torch.mm(m, m.T).trace(),
    torch.dot(m[0], m[1]),
    m.float().std(),
    m.float().norm(),
    m % 3,
    m // 2,
    m / 2,
    m**2,
    -m,
    abs(-m),
    m > 3,
    ~(m > 3),
    (m > 3) & (m < 9),
    sep="\n",
)
print(
    torch.equal(m, m.clone()),
    torch.allclose(m.float(), m.float() + 1e-9),
    m.eq(m).all(),
    m.any(),
    (m < 0).any(dim=1),
    torch.isnan(torch.tensor([float("nan")])),
    torch.where(m > 5, m, 0),
    m.nonzero().T,
    torch.unique(m),
    m.sort(descending=True).values[0],
    torch.topk(m.flatten(), 3),
    m.cumsum(1),
    sep="\n",
)
print(
    m.type(),
    m.float().type(),
    m.double().dtype,
    m.to(torch.int16).dtype,
    m.bool().sum(),
    m.is_floating_point(),
    torch.float32.is_floating_point,
    torch.finfo(torch.float32),
    torch.iinfo(torch.int8).max,
    torch.get_default_dtype(),
    torch.result_type(m, 1.5),
    torch.promote_types(torch.int8, torch.float16),
    torch.can_cast(torch.float32, torch.int32),
)
print(
    torch.Size([2, 3]),
    torch.Size([2, 3]) + (1,),
    torch.Size([2, 3]).numel(),
    tuple(m.shape),
    m.shape[0],
    m.shape == (3, 4),
    torch.device("cpu"),
    torch.device("cuda:1"),
    torch.device("cuda", 1).index,
    torch.strided,
    torch.channels_last,
    torch.float,
    torch.contiguous_format,
)
s = torch.tensor([[0, 1, 1], [2, 0, 2]])
print(
    torch.sparse_coo_tensor(s, torch.tensor([3.0, 4.0, 5.0]), (2, 3)),
    torch.eye(3).to_sparse(),
    torch.eye(2).to_sparse_csr(),
    sep="\n",
)
torch.set_printoptions(precision=2, threshold=10, edgeitems=2, linewidth=60)
print(torch.arange(100.0).view(10, 10) / 3, torch.arange(20), sep="\n")
torch.set_printoptions(profile="default")
torch.set_printoptions(sci_mode=True)
print(torch.tensor([1.0, 20.0]))
torch.set_printoptions(sci_mode=None)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 5)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, input):
        c1 = F.relu(self.conv1(input))
        s2 = F.max_pool2d(c1, (2, 2))
        c3 = F.relu(self.conv2(s2))
        s4 = F.max_pool2d(c3, 2)
        s4 = torch.flatten(s4, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(s4)))))


net = Net()
print(net)
params = list(net.parameters())
print(
    len(params),
    params[0].size(),
    [name for name, _ in net.named_parameters()][:3],
    sum(p.numel() for p in params if p.requires_grad),
)
for p in params:
    p.data.fill_(0.01)
input = torch.ones(1, 1, 32, 32)
out = net(input)
print(out)
net.zero_grad()
out.backward(torch.ones(1, 10))
target = torch.arange(10.0).view(1, -1)
criterion = nn.MSELoss()
loss = criterion(net(input), target)
print(loss, criterion)
print(
    loss.grad_fn.name(),
    loss.grad_fn.next_functions[0][0].name(),
    loss.grad_fn.next_functions[0][0].next_functions[0][0] is not None,
)
net.zero_grad()
print("conv1.bias.grad before backward", net.conv1.bias.grad)
loss.backward()
print("conv1.bias.grad after backward", net.conv1.bias.grad)
for f in net.parameters():
    f.data.sub_(f.grad.data * 0.01)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
optimizer.zero_grad()
optimizer.step()
print(
    optimizer,
    net.fc3.bias[:3],
    net.fc3,
    net.conv1.weight[0, 0, 0],
    net.fc2.weight.mean(),
    nn.Parameter(torch.ones(2)),
    sep="\n",
)
model = nn.Sequential(
    nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Dropout(0.1), nn.BatchNorm1d(3), nn.Softmax(dim=1)
)
for layer in model:
    if hasattr(layer, "weight") and layer.weight.dim() > 1:
        nn.init.constant_(layer.weight, 0.1), nn.init.zeros_(layer.bias)
model.eval()
print(model, model[1], model[1:3], len(model), model[1].weight, model(torch.ones(2, 2, 2)), sep="\n")
print(
    f"Model structure: {model[4]}\n",
    [
        f"Layer: {name} | Size: {param.size()} | Values : {param[:1]} \n"
        for name, param in model.named_parameters()
    ][0],
)
probab = nn.Softmax(dim=1)(torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True))
print(
    f"Predicted class: {probab.argmax(1)} {probab.max():>0.1f} {probab} {probab[0, 1]:.3f} {probab.sum().item():>8f}"
)
poly = torch.linspace(-math.pi, math.pi, 200)
p = torch.tensor([1, 2, 3])
xx = poly.unsqueeze(-1).pow(p)
fit = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0, 1))
for q in fit.parameters():
    q.data.zero_()
opt = torch.optim.RMSprop(fit.parameters(), lr=1e-3)
for t in range(300):
    loss = torch.nn.MSELoss(reduction="sum")(fit(xx), torch.sin(poly))
    if t % 100 == 99:
        print(t, round(loss.item(), 2))
    opt.zero_grad()
    loss.backward()
    opt.step()
print(
    f"Result: y = {fit[0].weight[:, 0].item():.2f} x + {fit[0].weight[:, 2].item():.2f} x^3",
    fit[0].weight.shape,
)
v = torch.ones(3)
v.resize_(2, 2)
print(
    v.shape,
    v.storage().size(),
    torch.ones(2, 3).t_().shape,
    torch.ones(3).unsqueeze_(0).shape,
    torch.ones(1, 3).squeeze_().shape,
    torch.arange(4).view(2, 2).swapdims(0, 1),
    sys.getsizeof(torch.ones(1)) > 0,
)
print(
    hash(v) == id(v),
    v.__repr__()[:8],  # the last element is what lies there
    str(v.dtype),
    f"{v.shape}",
    "%s" % v.device,
    repr(torch.float64),
    [*v.shape],
    (1, 1) in {tuple(torch.ones(1, 1).shape)},
    torch.tensor([1]) == torch.tensor([1]),
    bool(torch.tensor([1])),
    int(torch.tensor(3.7)),
    float(torch.tensor(2)),
    2 in torch.tensor([1, 2]),
    torch.tensor(2).__index__(),
    list(torch.arange(3)),
    [1, 2, 3][torch.tensor(1)],
)
