"""A small framework as people write theirs: a registry, hooks and callbacks, seeds of workers, metrics, a profiler with a schedule, event files, signals, resumption."""

import abc
import contextlib
import copy
import dataclasses
import enum
import functools
import io
import json
import logging
import os
import random
import signal
import sys
import tempfile
import typing as t
import warnings
import weakref
from collections import Counter, OrderedDict, defaultdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn, optim
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile, record_function, schedule
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)

logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("trainer")
REGISTRY: t.Dict[str, t.Type[nn.Module]] = {}


def register(name: str):
    def wrap(cls):
        if name in REGISTRY:
            raise KeyError(f"{name} is registered")
        REGISTRY[name] = cls
        return cls

    return wrap


class Phase(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


@dataclasses.dataclass
class Config:
    model: str = "mlp"
    optimizer: t.Dict[str, t.Any] = dataclasses.field(
        default_factory=lambda: {"name": "SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True}
    )
    scheduler: t.Optional[t.Dict[str, t.Any]] = None
    epochs: int = 3
    batch_size: int = 8
    seed: int = 7
    device: torch.device = torch.device("cpu")
    precision: torch.dtype = torch.float32

    def dump(self) -> str:
        return json.dumps(dataclasses.asdict(self), default=str, sort_keys=True)


def seed_everything(seed: int) -> torch.Generator:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(True, warn_only=True)
    g = torch.Generator()
    g.manual_seed(seed)
    return g


def seed_worker(worker_id):
    worker_seed = torch.initial_seed() % 2**32
    np.random.seed(worker_seed)
    random.seed(worker_seed)


class Blobs(Dataset):
    def __init__(self, n=48):
        k = np.arange(n)
        self.y = k % 3
        angle = 2 * np.pi * self.y / 3
        self.x = np.stack(
            [np.cos(angle) + 0.2 * np.sin(k * 1.7), np.sin(angle) + 0.2 * np.cos(k * 2.3)], 1
        ).astype(np.float32)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i: int) -> t.Dict[str, t.Any]:
        return {"x": self.x[i], "y": int(self.y[i]), "name": f"s{i}", "meta": (i, float(i) / 2)}

    def __getitems__(self, indices):
        return [self[i] for i in indices]


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        start, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(start, 10, step)


@register("mlp")
class MLP(nn.Module):
    labels: t.ClassVar[t.List[str]] = ["a", "b", "c"]

    def __init__(self, width: int = 8):
        super().__init__()
        self.net = nn.Sequential(
            OrderedDict(
                fc1=nn.Linear(2, width), act=nn.Mish(), norm=nn.LayerNorm(width), fc2=nn.Linear(width, 3)
            )
        )
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.seen += len(x)
        return self.net(x)

    def get_extra_state(self):
        return {"labels": self.labels}

    def set_extra_state(self, state):
        log.info("extra state %s", state)


class Callback(abc.ABC):
    def __getattr__(self, name):
        if name.startswith("on_"):
            return lambda *a, **k: None
        raise AttributeError(name)


class History(Callback):
    def __init__(self):
        self.rows = defaultdict(list)

    def on_epoch_end(self, trainer, logs):
        for k, v in logs.items():
            self.rows[k].append(round(float(v), 4))


class EarlyStopping(Callback):
    def __init__(self, patience=1, delta=0.0):
        self.best, self.wait, self.patience, self.delta = float("inf"), 0, patience, delta

    def on_epoch_end(self, trainer, logs):
        if logs["eval/loss"] < self.best - self.delta:
            self.best, self.wait, self.state = logs["eval/loss"], 0, copy.deepcopy(trainer.model.state_dict())
        else:
            self.wait += 1
            trainer.stop = self.wait >= self.patience


class Confusion:
    def __init__(self, classes):
        self.matrix = torch.zeros(classes, classes, dtype=torch.long)

    def update(self, pred: Tensor, target: Tensor):
        n = len(self.matrix)
        self.matrix += torch.bincount(target * n + pred, minlength=n * n).reshape(n, n)

    def compute(self):
        m = self.matrix.double()
        precision, recall = m.diag() / m.sum(0).clamp_min(1), m.diag() / m.sum(1).clamp_min(1)
        f1 = torch.nan_to_num(2 * precision * recall / (precision + recall))
        return {"accuracy": (m.trace() / m.sum()).item(), "f1": f1.mean().item()}


class Trainer:
    def __init__(self, config: Config, callbacks: t.Sequence[Callback] = ()):
        self.config, self.callbacks, self.stop, self.step = config, list(callbacks), False, 0
        self.generator = seed_everything(config.seed)
        self.model = REGISTRY[config.model]().to(config.device, config.precision)
        rng = np.random.default_rng(3)
        for p in self.model.parameters():
            if p.dim() > 1:
                p.data.copy_(torch.from_numpy(rng.normal(0, 0.5, p.shape)))
            elif p.data.ne(1).any():
                p.data.zero_()
        options = dict(config.optimizer)
        self.optimizer = getattr(optim, options.pop("name"))(self.groups(), **options)
        self.scheduler = optim.lr_scheduler.ChainedScheduler(
            [
                optim.lr_scheduler.LinearLR(self.optimizer, 0.5, total_iters=4),
                optim.lr_scheduler.ExponentialLR(self.optimizer, 0.98),
            ]
        )
        self.norms = []
        self.handles = [
            self.model.register_forward_hook(self.count),
            *(m.register_full_backward_hook(self.note) for m in self.model.net if isinstance(m, nn.Linear)),
        ]
        self.calls = Counter()

    def groups(self):
        named = dict(self.model.named_parameters())
        return [{"params": [p for n, p in named.items() if p.ndim > 1], "weight_decay": 1e-3, "name": "decay"},
                {"params": [p for n, p in named.items() if p.ndim <= 1], "weight_decay": 0.0, "name": "rest"}]  # fmt: skip

    def count(self, module, args, output):
        self.calls[type(module).__name__] += 1

    def note(self, module, grad_input, grad_output):
        self.norms.append(grad_output[0].norm().item())

    def emit(self, event, *args):
        for c in self.callbacks:
            getattr(c, event)(self, *args)

    @contextlib.contextmanager
    def phase(self, phase: Phase):
        before = self.model.training
        self.model.train(phase is Phase.TRAIN)
        with torch.set_grad_enabled(phase is Phase.TRAIN):
            yield phase
        self.model.train(before)

    def run(self, loader, phase):
        total, confusion = 0.0, Confusion(3)
        with self.phase(phase):
            for batch in loader:
                out = self.model(batch["x"])
                loss = F.cross_entropy(out, batch["y"], reduction="sum") / len(batch["y"])
                if phase == "train":
                    self.optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_value_(self.model.parameters(), 0.5)
                    self.optimizer.step()
                    self.scheduler.step()
                    self.step += 1
                total += loss.item() * len(batch["y"])
                confusion.update(out.argmax(-1), batch["y"])
        return {
            f"{phase.value}/loss": total / len(loader.dataset),
            **{f"{phase.value}/{k}": v for k, v in confusion.compute().items()},
        }

    def fit(self, train, val):
        self.emit("on_fit_start")
        for self.epoch in range(self.config.epochs):
            logs = {
                **self.run(train, Phase.TRAIN),
                **self.run(val, Phase.EVAL),
                "lr": self.scheduler.get_last_lr()[0],
            }
            self.emit("on_epoch_end", logs)
            log.info("epoch %d %s", self.epoch, {k: round(v, 4) for k, v in logs.items()})
            if self.stop:
                break

    def state_dict(self):
        parts = ("model", "optimizer", "scheduler")
        return {
            **{p: getattr(self, p).state_dict() for p in parts},
            "step": self.step,
            "rng": torch.get_rng_state(),
            "numpy": np.random.get_state()[1][:3].tolist(),
            "config": self.config.dump(),
        }

    def load_state_dict(self, state):
        for p in ("model", "optimizer", "scheduler"):
            getattr(self, p).load_state_dict(state[p])
        self.step = state["step"]
        torch.set_rng_state(state["rng"])


if __name__ == "__main__":
    config = Config(epochs=4)
    print(config.dump())
    history, stopping = History(), EarlyStopping()
    trainer = Trainer(config, [history, stopping])
    data = Blobs()
    train, val = Subset(data, range(0, 36)), Subset(data, range(36, 48))
    loader = DataLoader(
        train,
        config.batch_size,
        shuffle=False,
        num_workers=2,
        worker_init_fn=seed_worker,
        generator=trainer.generator,
        drop_last=False,
        prefetch_factor=1,
    )
    trainer.fit(loader, DataLoader(val, 12))
    print(
        dict(history.rows), trainer.calls, len(trainer.norms), f"{sum(trainer.norms):.4f}", trainer.model.seen
    )
    batch = next(iter(DataLoader(data, 3)))
    print({k: (v if isinstance(v, list) else tuple(v.shape)) for k, v in batch.items()}, batch["y"].dtype)
    print(
        sorted(DataLoader(Stream(), batch_size=None, num_workers=2)),
        [b.tolist() for b in DataLoader(Stream(), batch_size=4)],
    )
    parts = random_split(range(10), [0.7, 0.3], generator=torch.Generator().manual_seed(0))
    sampler = WeightedRandomSampler([0.0, 1.0, 0.0], 4, replacement=True)
    print([len(p) for p in parts], sorted(i for p in parts for i in p), list(sampler))

    buffer = io.BytesIO()
    torch.save(trainer.state_dict(), buffer)
    buffer.seek(0)
    again = Trainer(dataclasses.replace(config, epochs=1))
    again.load_state_dict(torch.load(buffer, weights_only=False))
    print(
        again.step,
        again.scheduler.get_last_lr() == trainer.scheduler.get_last_lr(),
        all(map(torch.equal, again.model.parameters(), trainer.model.parameters())),
    )
    again.run(DataLoader(train, 36), Phase.TRAIN), trainer.run(DataLoader(train, 36), Phase.TRAIN)
    print(
        all(map(torch.equal, again.model.state_dict().values(), trainer.model.state_dict().values()))
        if False
        else all(map(torch.equal, again.model.parameters(), trainer.model.parameters()))
    )
    for h in trainer.handles:
        h.remove()
    alive = weakref.ref(again.model)
    del again
    __import__("gc").collect()
    print("collected", alive() is None)

    with tempfile.TemporaryDirectory() as folder:
        steps = []

        def ready(p):
            steps.append(p.step_num)
            p.export_chrome_trace(str(Path(folder, f"trace{p.step_num}.json")))

        with profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
            on_trace_ready=ready,
            record_shapes=True,
        ) as prof:
            for k in range(9):
                with record_function("forward pass"):
                    trainer.model(torch.ones(2, 2))
                prof.step()
        events = json.loads(Path(folder, "trace4.json").read_text())["traceEvents"]
        print(
            "profiled", steps, any(e.get("name") == "forward pass" for e in events), len(os.listdir(folder))
        )
        with contextlib.suppress(ModuleNotFoundError, ImportError):
            from torch.utils.tensorboard import SummaryWriter

            with SummaryWriter(folder) as writer:
                writer.add_scalars("loss", {"a": 1.0}, 0)

    interrupted = []
    before = signal.signal(signal.SIGTERM, lambda s, f: interrupted.append(signal.Signals(s).name))
    os.kill(os.getpid(), signal.SIGTERM)
    signal.signal(signal.SIGTERM, before)
    print(interrupted)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        schedulers = optim.lr_scheduler.StepLR(optim.SGD(trainer.model.parameters(), lr=1.0), 1)
        schedulers.step()
    print(
        [str(w.message)[:58] for w in caught], isinstance(trainer.scheduler, optim.lr_scheduler.LRScheduler)
    )
    try:
        register("mlp")(MLP)
    except KeyError as e:
        print(e)
    memo = functools.lru_cache(None)(lambda n: torch.full((n,), 1.0 / n).cumsum(0)[-1].item())
    print([round(memo(n), 6) for n in (3, 7, 3)], memo.cache_info().hits)
    torch.use_deterministic_algorithms(False)
