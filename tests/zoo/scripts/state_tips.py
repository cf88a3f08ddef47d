"""States of modules: meta devices, assignment, memory maps, skipped initialisation, swapped tensors, hooks, surgery, warm starts."""

import collections
import copy
import io
import os

import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import skip_init

rng = np.random.RandomState(5)
torch.set_printoptions(precision=4, sci_mode=False)


class SomeModule(nn.Module):
    def __init__(self, size=6):
        super().__init__()
        self.linears = nn.ModuleList([nn.Linear(size, size) for _ in range(3)])
        self.norm = nn.BatchNorm1d(size)

    def forward(self, x):
        for linear in self.linears:
            x = linear(x).relu()
        return self.norm(x)


def filled(net):
    for p in net.parameters():
        p.data = torch.from_numpy(rng.randn(*p.shape).astype(np.float32)) * 0.4
    return net


m = filled(SomeModule())
torch.save(m.state_dict(), "checkpoint.pth")
state = torch.load("checkpoint.pth", mmap=True, weights_only=True)
print(list(state), state["linears.0.weight"].untyped_storage().nbytes())
with torch.device("meta"):
    meta = SomeModule()
print(meta.linears[0].weight.device, sum(p.numel() for p in meta.parameters()))
print(
    meta.load_state_dict(state, assign=True),
    meta.linears[0].weight.device,
    meta.norm.num_batches_tracked.device,
)
x = torch.from_numpy(rng.randn(4, 6).astype(np.float32))
m.eval(), meta.eval()
print(
    torch.equal(meta(x), m(x)),
    isinstance(meta.linears[0].weight, nn.Parameter),
    meta.linears[0].weight.requires_grad,
)
optimizer = torch.optim.SGD(meta.parameters(), lr=0.1)
meta.train()(x).sum().backward()
optimizer.step()
print({k: round(v.float().sum().item(), 3) for k, v in meta.state_dict().items()})
with torch.device("meta"):
    again = SomeModule()
again = again.to_empty(device="cpu")
again.load_state_dict(m.state_dict())
print(torch.equal(again.linears[2].bias, m.linears[2].bias))
skipped = skip_init(nn.Linear, 6, 2, bias=False)
with torch.no_grad():
    skipped.weight.fill_(1.0)
print(skipped(torch.ones(1, 6)), skipped)

# ---- what does not fit
small = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 2), b=nn.Linear(2, 1)))
sd = small.state_dict()
del sd["b.bias"]
sd["c.weight"] = torch.ones(1)
result = nn.Sequential(collections.OrderedDict(a=nn.Linear(2, 2), b=nn.Linear(2, 1))).load_state_dict(
    sd, strict=False
)
print(result, result.missing_keys, result.unexpected_keys)
try:
    small.load_state_dict({"a.weight": torch.ones(3, 2)})
except RuntimeError as e:
    print(str(e).replace("\t", "  "))

# ---- hooks on loading and on states


class Versioned(nn.Module):
    _version = 2

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))
        self.register_buffer("count", torch.tensor(0), persistent=False)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *args):
        version = local_metadata.get("version")
        if version is None or version < 2:
            state_dict[prefix + "scale"] = state_dict.pop(prefix + "old_scale") * 10
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *args)

    def get_extra_state(self):
        return {"count": int(self.count)}

    def set_extra_state(self, state):
        self.count.fill_(state["count"])


v = Versioned()
v.count += 3
print(v.state_dict(), v.state_dict()._metadata)
old = collections.OrderedDict(old_scale=torch.full((2,), 0.5), _extra_state={"count": 7})
old._metadata = {"": {"version": 1}}
print(v.load_state_dict(old), v.scale.data, v.count)
handle = v.register_state_dict_post_hook(
    lambda module, state, prefix, meta: state.pop(prefix + "_extra_state") and None
)
print(list(v.state_dict()))
handle.remove()
v.register_load_state_dict_post_hook(lambda module, incompatible: incompatible.missing_keys.clear())
new = collections.OrderedDict(_extra_state={"count": 1})
new._metadata = {"": {"version": 2}}
print(v.load_state_dict(new), list(v.state_dict()), v.count)

# ---- swapped tensors
t1, t2 = torch.arange(2), torch.arange(3)
ids = id(t1), id(t2)
torch.utils.swap_tensors(t1, t2)
print(t1, t2, ids == (id(t1), id(t2)))
mod = nn.Linear(1, 2)
before = mod.weight
torch.__future__.set_swap_module_params_on_conversion(True)
mod.double()
print(before is mod.weight, mod.weight.dtype)
torch.__future__.set_swap_module_params_on_conversion(False)
mod.to(torch.float32)
print(mod.weight.dtype)


class MyQuantized(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


target = nn.Linear(2, 2, bias=False)
target.weight = nn.Parameter(target.weight.detach().as_subclass(MyQuantized))
target.load_state_dict({"weight": torch.eye(2)})
print(type(target.weight).__name__, target.weight.as_subclass(torch.Tensor).detach())

# ---- tied weights, shared storage, copies, files
tied = nn.Sequential(nn.Embedding(4, 3), nn.Linear(3, 4, bias=False))
tied[1].weight = tied[0].weight
buffer = io.BytesIO()
torch.save(tied.state_dict(), buffer)
buffer.seek(0)
loaded = torch.load(buffer)
print(loaded["0.weight"].data_ptr() == loaded["1.weight"].data_ptr(), len(list(tied.parameters())))
copied = copy.deepcopy(tied)
print(copied[0].weight is copied[1].weight, copied[0].weight is tied[0].weight)
torch.save({"epoch": 3, "model": m, "nested": [{"t": torch.ones(2)}]}, "whole.pth")
try:
    torch.load("whole.pth")
except Exception as e:
    print(type(e).__name__)
whole = torch.load("whole.pth", weights_only=False)
print(whole["epoch"], type(whole["model"]).__name__, whole["nested"])
with torch.serialization.safe_globals([collections.Counter]):
    torch.save(collections.Counter("aab"), "counter.pth")
    print(torch.load("counter.pth"))
print(
    os.path.getsize("checkpoint.pth") > 500,
    m.state_dict(prefix="net.", keep_vars=True)["net.norm.weight"].requires_grad,
)
warm = SomeModule()
partial = {k: v for k, v in m.state_dict().items() if k.startswith("linears.")}
print(
    warm.load_state_dict(partial, strict=False).missing_keys,
    torch.equal(warm.linears[1].weight, m.linears[1].weight),
)
