"""Energies and forces of molecules: batches of graphs, neighbours within a radius, messages gathered in several ways."""

import math
from dataclasses import dataclass, fields

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_default_dtype(torch.float64)
torch.set_printoptions(precision=5)


def filled(module):
    """The same numbers everywhere, whatever the generator."""
    at = 0
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.sin(torch.arange(at, at + p.numel()) * 1.7).view_as(p) / math.sqrt(p.shape[-1]))
            at += p.numel()
    return module


@dataclass
class Molecule:
    z: torch.Tensor
    pos: torch.Tensor
    energy: torch.Tensor
    forces: torch.Tensor
    batch: torch.Tensor = None
    ptr: torch.Tensor = None

    def to(self, *args):
        moved = {f.name: getattr(self, f.name) for f in fields(self)}
        return Molecule(**{k: v.to(*args) if torch.is_tensor(v) else v for k, v in moved.items()})

    def __len__(self):
        return self.z.numel()


def pair_energy(z, pos):
    """What is to be learned: a Morse potential of all pairs."""
    a, b = torch.combinations(torch.arange(len(z)), 2).unbind(1)
    d = (pos[a] - pos[b]).norm(dim=-1)
    depth = (z[a] * z[b]).to(pos.dtype).sqrt() / 4
    return (depth * ((1 - torch.exp(-(d - 1.2))).square() - 1)).sum()


class Molecules(Dataset):
    def __init__(self, count):
        self.items = []
        for k in range(count):
            n = 3 + k % 4
            z = torch.tensor([1, 6, 7, 8])[(torch.arange(n) * (k + 1)) % 4]
            t = torch.arange(n)
            pos = torch.stack([torch.cos(t * 1.3 + k), torch.sin(t * 1.3 + k), t * 0.5], 1) * (1 + 0.05 * k)
            pos = pos.detach().requires_grad_()
            energy = pair_energy(z, pos)
            (gradient,) = torch.autograd.grad(energy, pos)
            self.items.append(Molecule(z, pos.detach(), energy.detach(), -gradient))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    sizes = torch.tensor([len(m) for m in items])
    batch = torch.repeat_interleave(torch.arange(len(items)), sizes)
    ptr = F.pad(sizes.cumsum(0), (1, 0))
    joined = {k: torch.cat([getattr(m, k) for m in items]) for k in ("z", "pos", "forces")}
    return Molecule(energy=torch.stack([m.energy for m in items]), batch=batch, ptr=ptr, **joined)


def radius_graph(pos, batch, r):
    near = (torch.cdist(pos, pos) < r) & (batch[:, None] == batch[None, :])
    near.fill_diagonal_(False)
    return near.nonzero().t()


class GaussianSmearing(nn.Module):
    def __init__(self, start=0.0, stop=4.0, num_gaussians=12):
        super().__init__()
        offset = torch.linspace(start, stop, num_gaussians)
        self.coeff = -0.5 / (offset[1] - offset[0]).item() ** 2
        self.register_buffer("offset", offset)

    def forward(self, dist):
        return torch.exp(self.coeff * torch.pow(dist.view(-1, 1) - self.offset.view(1, -1), 2))


class ShiftedSoftplus(nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = math.log(2.0)

    def forward(self, x):
        return F.softplus(x) - self.shift


class Interaction(nn.Module):
    def __init__(self, width, gaussians, cutoff, reduce):
        super().__init__()
        self.cutoff, self.reduce = cutoff, reduce
        self.filter = nn.Sequential(nn.Linear(gaussians, width), ShiftedSoftplus(), nn.Linear(width, width))
        self.pre = nn.Linear(width, width, bias=False)
        self.post = nn.Sequential(nn.Linear(width, width), ShiftedSoftplus(), nn.Linear(width, width))

    def extra_repr(self):
        return f"cutoff={self.cutoff}, reduce={self.reduce!r}"

    def forward(self, h, edge_index, weight, smeared):
        source, target = edge_index
        fade = 0.5 * (torch.cos(weight * math.pi / self.cutoff) + 1.0)
        messages = self.pre(h).index_select(0, source) * self.filter(smeared) * fade.unsqueeze(-1)
        if self.reduce == "add":
            gathered = torch.zeros_like(h).index_add(0, target, messages)
        else:
            where = target.unsqueeze(-1).expand_as(messages)
            gathered = torch.zeros_like(h).scatter_reduce(0, where, messages, self.reduce, include_self=False)
        return h + self.post(gathered)


class SchNet(nn.Module):
    def __init__(self, width=16, layers=("add", "mean", "amax"), cutoff=3.0):
        super().__init__()
        self.cutoff = cutoff
        self.embedding = nn.Embedding(10, width, padding_idx=0)
        self.smearing = GaussianSmearing()
        self.blocks = nn.ModuleList(Interaction(width, 12, cutoff, r) for r in layers)
        self.out = nn.Sequential(nn.Linear(width, width // 2), ShiftedSoftplus(), nn.Linear(width // 2, 1))

    def forward(self, m):
        edge_index = radius_graph(m.pos, m.batch, self.cutoff)
        source, target = edge_index
        weight = (m.pos[source] - m.pos[target]).norm(dim=-1)
        smeared = self.smearing(weight)
        h = self.embedding(m.z)
        for block in self.blocks:
            h = block(h, edge_index, weight, smeared)
        per_atom = self.out(h).squeeze(-1)
        energy = per_atom.new_zeros(len(m.ptr) - 1).scatter_add(0, m.batch, per_atom)
        return energy, edge_index


data = Molecules(12)
loader = DataLoader(data, batch_size=4, collate_fn=collate)
first = next(iter(loader))
print(len(first), first.ptr.tolist(), first.batch.tolist(), first.energy)
print(first.forces.sum(0).abs().max() < 1e-12, first.to(torch.float32).pos.dtype)
model = filled(SchNet())
print(model)
print(sum(p.numel() for p in model.parameters()), [tuple(b.shape) for b in model.buffers()])
energy, edges = model(first)
atoms = torch.sin(first.pos.sum(1))
summed = torch.segment_reduce(atoms, "sum", offsets=first.ptr)
print(torch.allclose(summed, atoms.new_zeros(4).scatter_add(0, first.batch, atoms)), summed)
print(energy, edges.shape, torch.bincount(edges[1], minlength=len(first)))

# The energy does not see rotations, and forces turn with them.
angle = torch.tensor(0.7)
turn = torch.eye(3)
turn[:2, :2] = torch.stack([torch.cos(angle), -torch.sin(angle), torch.sin(angle), torch.cos(angle)]).view(
    2, 2
)
turned = Molecule(first.z, first.pos @ turn.T, first.energy, first.forces @ turn.T, first.batch, first.ptr)
print(torch.allclose(model(turned)[0], energy), torch.linalg.det(turn).item())

optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, amsgrad=True)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, epochs=8, steps_per_epoch=len(loader))
for epoch in range(8):
    total = {"energy": 0.0, "force": 0.0}
    for m in loader:
        m.pos.requires_grad_()
        energy, _ = model(m)
        forces = -torch.autograd.grad(energy.sum(), m.pos, create_graph=True)[0]
        energy_loss, force_loss = F.mse_loss(energy, m.energy), F.l1_loss(forces, m.forces)
        loss = energy_loss + 5 * force_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0, error_if_nonfinite=True)
        optimizer.step()
        schedule.step()
        total["energy"] += energy_loss.item() * len(m.energy)
        total["force"] += force_loss.item() * len(m.energy)
    print(
        epoch,
        *(f"{k} {v / len(data):.5f}" for k, v in total.items()),
        f"norm {norm:.4f} lr {schedule.get_last_lr()[0]:.5f}",
    )

# Relaxing a molecule by its forces, and how it vibrates.
m = collate([data[2]])
pos = m.pos.detach().clone().requires_grad_()
relax = torch.optim.LBFGS([pos], lr=0.1, max_iter=5, line_search_fn="strong_wolfe")


def closure():
    relax.zero_grad()
    value = pair_energy(m.z, pos)
    value.backward()
    return value


for step in range(3):
    print("relaxed", step, f"{relax.step(closure).item():.6f}", f"{pos.grad.abs().max().item():.5f}")
hessian = torch.autograd.functional.hessian(lambda p: pair_energy(m.z, p), pos.detach()).reshape(
    pos.numel(), -1
)
print(torch.linalg.eigvalsh(hessian)[-4:], torch.allclose(hessian, hessian.T))

# Gathering, in more ways.
source, target = edges
scores = torch.sin(torch.arange(edges.shape[1]).double())
highest = torch.full((len(first),), -math.inf).index_reduce_(0, target, scores, "amax")
weights = torch.exp(scores - highest[target])
weights = weights / torch.zeros(len(first)).scatter_add(0, target, weights)[target]
print(weights[:6], torch.zeros(len(first)).scatter_add_(0, target, weights))
order = torch.argsort(target, stable=True)
nodes, counts = torch.unique_consecutive(target[order], return_counts=True)
for reduce in ("max", "min", "mean", "sum", "prod"):
    print(reduce, torch.segment_reduce(scores[order], reduce, lengths=counts)[:5])
adjacency = torch.sparse_coo_tensor(edges, weights, (len(first), len(first))).coalesce()
h = torch.cos(torch.arange(len(first) * 2.0)).view(-1, 2)
print((adjacency @ h)[:3], torch.sparse.sum(adjacency, 0).to_dense()[:4])
print(
    torch.equal(adjacency.to_sparse_csr().to_dense(), adjacency.to_dense()),
    nodes.tolist() == list(range(len(first))),
)
