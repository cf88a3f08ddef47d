"""Adapters by hand: LoRA as layers and as a parametrization, merging, DoRA's norms, prefixes, BitFit, what is trained and what is saved."""

import io
import math
from typing import Dict, List, Optional

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrize as parametrize
from torch import Tensor

rng = np.random.RandomState(5)
torch.set_printoptions(precision=4, sci_mode=False, linewidth=100)


def fill(module, scale=0.3):
    for name, p in module.named_parameters():
        with torch.no_grad():
            p.set_(torch.from_numpy((rng.standard_normal(p.shape) * scale).astype("float32")))
    return module


class LoRALayer:
    def __init__(self, r: int, lora_alpha: int, lora_dropout: float, merge_weights: bool):
        self.r, self.lora_alpha, self.merge_weights = r, lora_alpha, merge_weights
        self.lora_dropout = nn.Dropout(p=lora_dropout) if lora_dropout > 0.0 else (lambda x: x)
        self.merged = False


class Linear(nn.Linear, LoRALayer):
    def __init__(
        self,
        in_features: int,
        out_features: int,
        r: int = 0,
        lora_alpha: int = 1,
        lora_dropout: float = 0.0,
        fan_in_fan_out: bool = False,
        merge_weights: bool = True,
        **kwargs,
    ):
        nn.Linear.__init__(self, in_features, out_features, **kwargs)
        LoRALayer.__init__(
            self, r=r, lora_alpha=lora_alpha, lora_dropout=lora_dropout, merge_weights=merge_weights
        )
        self.fan_in_fan_out = fan_in_fan_out
        if r > 0:
            self.lora_A = nn.Parameter(self.weight.new_zeros((r, in_features)))
            self.lora_B = nn.Parameter(self.weight.new_zeros((out_features, r)))
            self.scaling = self.lora_alpha / self.r
            self.weight.requires_grad = False
        self.reset_parameters()
        if fan_in_fan_out:
            self.weight.data = self.weight.data.transpose(0, 1)

    def reset_parameters(self):
        nn.Linear.reset_parameters(self)
        if hasattr(self, "lora_A"):
            nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
            nn.init.zeros_(self.lora_B)

    def train(self, mode: bool = True):
        T = lambda w: w.transpose(0, 1) if self.fan_in_fan_out else w  # noqa: E731
        nn.Linear.train(self, mode)
        if mode and self.merge_weights and self.merged:
            self.weight.data -= T(self.lora_B @ self.lora_A) * self.scaling
            self.merged = False
        elif not mode and self.merge_weights and not self.merged:
            self.weight.data += T(self.lora_B @ self.lora_A) * self.scaling
            self.merged = True
        return self

    def forward(self, x: Tensor):
        T = lambda w: w.transpose(0, 1) if self.fan_in_fan_out else w  # noqa: E731
        result = F.linear(x, T(self.weight), bias=self.bias)
        if self.r > 0 and not self.merged:
            result += (
                self.lora_dropout(x) @ self.lora_A.transpose(0, 1) @ self.lora_B.transpose(0, 1)
            ) * self.scaling
        return result


def mark_only_lora_as_trainable(model: nn.Module, bias: str = "none") -> None:
    for n, p in model.named_parameters():
        p.requires_grad = "lora_" in n or (bias == "all" and "bias" in n)


def lora_state_dict(model: nn.Module) -> Dict[str, Tensor]:
    return {k: v for k, v in model.state_dict().items() if "lora_" in k}


def print_trainable_parameters(model):
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    print(
        f"trainable params: {trainable:,d} || all params: {total:,d} || trainable%: {100 * trainable / total:.4f}"
    )


class Block(nn.Module):
    def __init__(self, dim=8, heads=2, r=2):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.q, self.v = (
            Linear(dim, dim, r=r, lora_alpha=4),
            Linear(dim, dim, r=r, lora_alpha=4, fan_in_fan_out=True),
        )
        self.k, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim)

    def forward(self, x, mask: Optional[Tensor] = None):
        b, n, d = x.shape
        h = self.norm(x)
        q, k, v = (f(h).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        return x + self.o(out.transpose(1, 2).reshape(b, n, d))


model = fill(nn.Sequential(Block(), Block(), nn.Linear(8, 3)))
for block in list(model)[:2]:
    block.q.lora_B.data.zero_(), block.v.lora_B.data.zero_()
print(model)
print_trainable_parameters(model)
mark_only_lora_as_trainable(model)
print_trainable_parameters(model)
print([n for n, p in model.named_parameters() if p.requires_grad])
x, y = torch.from_numpy(rng.randn(6, 5, 8).astype("f")), torch.from_numpy(rng.randint(0, 3, (6,)))
frozen = {n: p.detach().clone() for n, p in model.named_parameters() if not p.requires_grad}
optimizer = torch.optim.AdamW(
    filter(lambda p: p.requires_grad, model.parameters()), lr=2e-2, weight_decay=0.01
)
model.train()
for step in range(12):
    loss = F.cross_entropy(model(x)[:, -1], y, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 4 == 0:
        print(f"step {step:2d} loss {loss:.4f}")
print("frozen", all(torch.equal(p, dict(model.named_parameters())[n]) for n, p in frozen.items()))
with torch.no_grad():
    before = model(x)
    model.eval()
    print("merged", torch.allclose(before, model(x), atol=1e-5), model[0].q.merged)
    model.train()
    print("unmerged", torch.allclose(model[1].v.weight, frozen["1.v.weight"], atol=1e-6))
buffer = io.BytesIO()
torch.save(lora_state_dict(model), buffer)
buffer.seek(0)
fresh = nn.Sequential(Block(), Block(), nn.Linear(8, 3))
missing, unexpected = fresh.load_state_dict(torch.load(buffer), strict=False)
print(len(missing), unexpected, fresh.load_state_dict(model.state_dict()))
try:
    fresh.load_state_dict(
        {**lora_state_dict(model), "0.q.lora_A": torch.zeros(3, 8), "extra": torch.zeros(1)}
    )
except RuntimeError as error:
    print(str(error).replace("\n", " | ").replace("\t", "  ")[:400])


class LoRAParametrization(nn.Module):
    def __init__(self, features_in, features_out, rank=1, alpha=1, device="cpu"):
        super().__init__()
        self.lora_A = nn.Parameter(torch.from_numpy(rng.randn(rank, features_out).astype("f")).to(device))
        self.lora_B = nn.Parameter(torch.zeros((features_in, rank)).to(device))
        self.scale = alpha / rank
        self.enabled = True

    def forward(self, original_weights):
        if self.enabled:
            return (
                original_weights
                + torch.matmul(self.lora_B, self.lora_A).view(original_weights.shape) * self.scale
            )
        return original_weights


net = fill(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)))
for layer in net:
    if isinstance(layer, nn.Linear):
        parametrize.register_parametrization(layer, "weight", LoRAParametrization(*layer.weight.shape))
for name, p in net.named_parameters():
    if "lora" not in name:
        p.requires_grad = False
print(net)
print(
    [n for n, _ in net.named_parameters()],
    type(net[0]).__name__,
    parametrize.is_parametrized(net[0], "weight"),
)
x4 = torch.from_numpy(rng.randn(16, 4).astype("f"))
optimizer = torch.optim.SGD(
    [p for p in net.parameters() if p.requires_grad], lr=0.1, momentum=0.9, nesterov=True
)
for step in range(5):
    with parametrize.cached():
        loss = F.mse_loss(net(x4), x4[:, :2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(
    f"{loss.item():.4f}",
    net[0].weight.grad_fn is not None,
    net[0].parametrizations.weight[0].lora_B.grad.norm(),
)
with torch.no_grad():
    with_adapter = net(x4)
    for layer in (net[0], net[2]):
        layer.parametrizations["weight"][0].enabled = False
    print(
        (net(x4) - with_adapter).abs().max() > 1e-3,
        torch.equal(net[0].weight, net[0].parametrizations.weight.original),
    )
    for layer in (net[0], net[2]):
        layer.parametrizations["weight"][0].enabled = True
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
    print(torch.allclose(net(x4), with_adapter), net[0], [n for n, _ in net.named_parameters()])

directed = nn.utils.parametrizations.weight_norm(fill(nn.Linear(4, 3)), dim=0)
print(
    directed.parametrizations.weight.original0.shape,
    torch.allclose(
        directed.weight.norm(dim=1, keepdim=True), directed.parametrizations.weight.original0.abs()
    ),
)
bitfit = [n for n, p in model.named_parameters() if n.endswith("bias")]
print(len(bitfit), bitfit[:3])
prefix = nn.ParameterDict({f"layer{i}": nn.Parameter(torch.full((2, 8), 0.1 * i)) for i in range(2)})
prefix.update({"head": nn.Parameter(torch.ones(3))})
print(prefix, list(prefix.keys()), "head" in prefix, prefix.pop("head").shape)
adapter = nn.Sequential(nn.Linear(8, 2), nn.GELU(approximate="tanh"), nn.Linear(2, 8))
handle = model[0].o.register_forward_hook(lambda m, a, out: out + adapter(out) * 0)
print(torch.allclose(model(x), before, atol=1e-5))
handle.remove()
groups: List[dict] = [
    {"params": [p for n, p in model.named_parameters() if "lora_B" in n], "lr": 16e-4},
    {"params": [p for n, p in model.named_parameters() if "lora_A" in n]},
]
print(torch.optim.AdamW(groups, lr=1e-4))
