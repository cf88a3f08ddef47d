"""A program for many processes, run by one: groups, meshes, tensor-parallel blocks, DDP with and without sync, joins, samplers."""

import os

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

rng = np.random.RandomState(7)
torch.set_printoptions(precision=4, sci_mode=False)
os.environ.setdefault("MASTER_ADDR", "localhost")
os.environ.setdefault("MASTER_PORT", "29517")
dist.init_process_group("gloo", rank=0, world_size=1)
print(dist.get_rank(), dist.get_world_size(), dist.is_initialized())


def tensor(*sizes):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32))


def filled(net):
    for p in net.parameters():
        p.data = tensor(*p.shape) * 0.4
    return net


mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
print(mesh["tp"].size(), mesh.get_local_rank("tp"), mesh.ndim)
big = tensor(4, 6)
d = distribute_tensor(big, mesh, [Shard(0)])
print(
    type(d).__name__, d.shape, d.placements, torch.equal(d.to_local(), big), torch.equal(d.full_tensor(), big)
)
print(
    d.redistribute(mesh, [Replicate()]).placements,
    Partial().is_partial(),
    Shard(1) == Shard(1),
    Shard(1) == Shard(0),
)
print(
    torch.equal((d + d).full_tensor(), big + big), isinstance(d @ d.T, DTensor), (d * 2).sum().full_tensor()
)
local = big.clone().requires_grad_()
loss = DTensor.from_local(local, mesh, [Replicate()]).exp().sum()
loss.to_local().backward()
print(torch.allclose(local.grad, big.exp()))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(dim, hidden, bias=False),
            nn.Linear(hidden, dim, bias=False),
            nn.Linear(dim, hidden, bias=False),
        )

    def forward(self, x):
        return self.w2(torch.nn.functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    def __init__(self, dim=8):
        super().__init__()
        self.norm, self.feed_forward, self.output = nn.LayerNorm(dim), FeedForward(dim, 16), nn.Linear(dim, 5)

    def forward(self, x):
        return self.output(x + self.feed_forward(self.norm(x)))


plain = filled(Block())
block = Block()
block.load_state_dict(plain.state_dict())
plan = {
    "norm": SequenceParallel(use_local_output=True),
    "feed_forward": PrepareModuleInput(
        input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),), use_local_output=True
    ),
    "feed_forward.w1": ColwiseParallel(),
    "feed_forward.w2": RowwiseParallel(),
    "feed_forward.w3": ColwiseParallel(),
    "output": ColwiseParallel(output_layouts=Replicate()),
}
block = parallelize_module(block, mesh, plan)
x, y = tensor(3, 4, 8), torch.from_numpy(rng.randint(0, 5, 12))
print(
    type(block.feed_forward.w1.weight).__name__,
    block.feed_forward.w1.weight.placements,
    block.feed_forward.w2.weight.placements,
)
for model in (plain, block):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    losses = []
    for _ in range(4):
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    print(losses)
state = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in block.state_dict().items()}
print(sorted(state)[:3], all(torch.allclose(state[k], v, atol=1e-5) for k, v in plain.state_dict().items()))
replicated = distribute_module(nn.Linear(2, 2), mesh)
print(
    isinstance(replicated.weight, DTensor),
    isinstance(replicated.weight, nn.Parameter),
    replicated.weight.placements,
)

# ---- data-parallel
net = filled(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)))
ddp = DDP(net, find_unused_parameters=True)
data = TensorDataset(tensor(20, 4), tensor(20, 1))
sampler = DistributedSampler(data, num_replicas=1, rank=0, shuffle=False)
loader = DataLoader(data, batch_size=5, sampler=sampler)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
for epoch in range(2):
    sampler.set_epoch(epoch)
    total = torch.zeros(1)
    for k, (a, b) in enumerate(loader):
        if k % 2 == 0:
            with ddp.no_sync():
                nn.functional.mse_loss(ddp(a), b).div(2).backward()
            continue
        loss = nn.functional.mse_loss(ddp(a), b)
        loss.backward()
        nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        total += loss.detach()
    dist.all_reduce(total)
    print(epoch, round(total.item(), 4), len(sampler))
print(sorted(ddp.state_dict())[0], type(ddp.module).__name__)
torch.save(ddp.state_dict(), "ddp.pt")
dist.barrier()
ddp.load_state_dict(torch.load("ddp.pt", map_location="cpu"))

# ---- collectives
t = torch.arange(3.0)
gathered = [torch.zeros(3) for _ in range(dist.get_world_size())]
dist.all_gather(gathered, t)
dist.broadcast(t, 0)
work = dist.all_reduce(t, op=dist.ReduceOp.MAX, async_op=True)
work.wait()
scattered = torch.zeros(3)
dist.reduce_scatter_tensor(scattered, t)
into = torch.zeros(3)
dist.all_gather_into_tensor(into, t)
objects = [None]
dist.all_gather_object(objects, {"a": 1})
shared = ["config", 3]
dist.broadcast_object_list(shared, src=0)
group = dist.new_group([0])
print(gathered, scattered, into, objects, shared, dist.get_world_size(group), dist.get_backend())
dist.destroy_process_group()
print(dist.is_initialized())
try:
    dist.init_process_group("gloo", rank=0, world_size=1)
    init_device_mesh("cpu", (2,))
except RuntimeError:
    print("RuntimeError")
dist.destroy_process_group()
