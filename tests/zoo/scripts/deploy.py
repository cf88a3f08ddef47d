"""What surrounds a model: compilation, scripting and tracing, replicas, a process group of one, logs, a profile."""

import logging
import os
import tempfile
import warnings
from typing import Dict, List, Optional, Tuple

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.profiler
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

warnings.simplefilter("ignore")
torch.manual_seed(0)
torch.set_num_threads(1)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True)
print(
    torch.are_deterministic_algorithms_enabled(),
    torch.get_float32_matmul_precision(),
    torch.get_num_threads(),
)
torch.use_deterministic_algorithms(False)
print(
    torch.cuda.is_available(),
    torch.cuda.device_count(),
    torch.backends.mps.is_available(),
    torch.version.cuda,
)


class MLP(nn.Module):
    __constants__ = ["scale"]

    def __init__(self, scale: float = 2.0):
        super().__init__()
        self.scale = scale
        self.l1, self.l2 = nn.Linear(4, 8), nn.Linear(8, 1)
        with torch.no_grad():
            for k, p in enumerate(self.parameters()):
                p.copy_(torch.linspace(-0.5, 0.5, p.numel()).view_as(p) * (k + 1))

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> torch.Tensor:
        x = torch.relu(self.l1(x))
        if mask is not None:
            x = x * mask
        return self.l2(x) * self.scale

    @torch.jit.export
    def halves(self, x: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
        a, b = x.chunk(2, dim=-1)
        return a, b

    @torch.jit.ignore
    def describe(self) -> str:
        return "an MLP"


x = torch.arange(20.0).view(5, 4) / 10
y = x.sum(1, keepdim=True)
model = MLP()
scripted = torch.jit.script(MLP())
traced = torch.jit.trace(model, (x,))
print(torch.allclose(scripted(x), model(x)), torch.equal(traced(x), model(x)), scripted.halves(x)[1].shape)
print(scripted(x, torch.ones(8)).shape, model.describe())


@torch.jit.script
def clamp_sum(xs: List[torch.Tensor], limits: Dict[str, float]) -> torch.Tensor:
    total = torch.zeros_like(xs[0])
    for v in xs:
        total += v.clamp(min=limits["low"], max=limits["high"])
    return total


print(clamp_sum([torch.arange(3.0), torch.ones(3)], {"low": 0.5, "high": 1.5}), torch.jit.is_scripting())
compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True, backend="eager")


@torch.compile(backend="eager")
def train_step(model, x, y, optimizer):
    optimizer.zero_grad()
    loss = nn.functional.huber_loss(model(x), y)
    loss.backward()
    optimizer.step()
    return loss


optimizer = torch.optim.SGD(compiled.parameters(), lr=0.05, foreach=True)
for step in range(4):
    print(f"compiled {train_step(compiled, x, y, optimizer).item():.5f}")
print(list(compiled.state_dict())[:2], type(compiled).__name__, torch.compiler.is_compiling())
exported = torch.compiler.disable(model)(x)
print(exported.shape, torch.allclose(checkpoint(model, x, use_reentrant=False), model(x)))
sequence = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
print(torch.allclose(checkpoint_sequential(sequence, 2, x, use_reentrant=False), sequence(x)))

parallel = nn.DataParallel(MLP())
print(parallel(x).shape, list(parallel.state_dict())[0], isinstance(parallel.module, MLP))

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29517")
print(dist.is_available(), dist.is_initialized())
with tempfile.NamedTemporaryFile() as store:
    dist.init_process_group("gloo", init_method=f"file://{store.name}", rank=0, world_size=1)
    print(dist.get_rank(), dist.get_world_size(), dist.get_backend())
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(
        dataset, num_replicas=dist.get_world_size(), rank=dist.get_rank(), shuffle=False
    )
    loader = DataLoader(dataset, batch_size=2, sampler=sampler)
    ddp = DDP(MLP())
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.02)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for k, (inputs, targets) in enumerate(loader):
            with ddp.no_sync() if k == 0 else warnings.catch_warnings():
                loss = nn.MSELoss()(ddp(inputs), targets)
                loss.backward()
            if k:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
        reduced = loss.detach().clone()
        dist.all_reduce(reduced, op=dist.ReduceOp.SUM)
        print(f"epoch {epoch} {reduced.item() / dist.get_world_size():.3f}")
    gathered = [torch.zeros(2)]
    dist.all_gather(gathered, torch.ones(2))
    objects = [{"seed": 3}]
    dist.broadcast_object_list(objects, src=0)
    dist.barrier()
    print(gathered, objects, list(ddp.state_dict())[0], ddp.module.scale, len(sampler))
    dist.destroy_process_group()
print(dist.is_initialized())

with torch.profiler.profile(
    activities=[torch.profiler.ProfilerActivity.CPU],
    schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
    on_trace_ready=lambda p: print("ready", p.step_num),
    record_shapes=True,
) as prof:
    for _ in range(5):
        with torch.profiler.record_function("model_inference"):
            model(x)
        prof.step()
names = {event.key for event in prof.key_averages()}
print("model_inference" in names, any("relu" in name for name in names))
table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=3)
print("Self CPU time total" in table, table.count("\n") > 5)
with torch.autograd.profiler.profile() as old:
    model(x).sum().backward()
print(len(old.function_events) > 0, "Self CPU" in str(old))
log = logging.getLogger("train")
logging.basicConfig(format="%(message)s")
log.info("loss %s", loss)
print(f"{loss.item():.3f} {loss:.2f} {torch.tensor(3)} {x[0]!s} {x.shape} {tuple(x.size())} {x.stride()}")
print(
    repr(torch.device("cpu")),
    torch.float16,
    torch.strided,
    torch.finfo(torch.float32).eps,
    torch.iinfo(torch.int8),
)
print(
    torch.zeros(2, 0),
    torch.tensor([1e-8, 1.0]),
    torch.tensor([float("nan"), -float("inf")]),
    torch.arange(2000),
)
print(
    torch.full((2, 3), 1e6),
    torch.tensor([True]),
    torch.tensor(1 + 2j),
    torch.randn(3, requires_grad=True).shape,
)
ema_state = {k: v.clone() for k, v in model.state_dict().items() if v.dtype.is_floating_point}
with tempfile.TemporaryDirectory() as folder:
    file = os.path.join(folder, "all.pt")
    torch.save({"model": model, "ema": ema_state, "args": {"lr": 0.1}, "rng": torch.get_rng_state()}, file)
    whole = torch.load(file, weights_only=False)
    print(sorted(whole), whole["model"].scale, torch.equal(whole["ema"]["l1.weight"], model.l1.weight))
    try:
        torch.load(file)
    except Exception as error:
        print(type(error).__name__)
    print(
        torch.load(os.path.join(folder, "all.pt"), mmap=True, map_location="meta", weights_only=False)["ema"][
            "l2.bias"
        ]
    )
    try:
        torch.load(os.path.join(folder, "none.pt"))
    except FileNotFoundError as error:
        print(error.errno)
