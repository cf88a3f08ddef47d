"""Python imports this module when it starts a program of `make programs`, with either library.

It gives both libraries the same random numbers, NumPy's, because neither documents its own: equal calls then
have equal results, and the losses that a program prints can be compared. It also ends a program after
``PROGRAM_STEPS`` steps of its optimizers, printing the norm of the parameters: many programs have no setting
for that. The program itself is not changed.
"""

import builtins
import math
import os
import random
import sys
import types

STEPS = int(os.environ.get("PROGRAM_STEPS", 0))
_import = builtins.__import__


def import_and_patch(name, *arguments, **options):
    """The import statement until a program has imported torch, which is then patched."""
    module = _import(name, *arguments, **options)
    torch = sys.modules.get("torch")
    if name.partition(".")[0] == "torch" and not getattr(torch.__spec__, "_initializing", False):
        if hasattr(torch, "nn") and hasattr(torch, "optim"):
            builtins.__import__ = _import
            patch(torch)
    return module


if os.environ.get("PROGRAM_NUMBERS") and "pip" not in sys.argv[:1]:
    builtins.__import__ = import_and_patch


def patch(torch):
    numbers = Numbers(torch)
    random.seed(0)  # of programs that shuffle by Python and NumPy without a seed of their own
    numbers.numpy.random.seed(0)
    places = [torch, getattr(torch._C, "functions", None)]
    for (
        name
    ) in "rand randn randint randperm rand_like randn_like randint_like normal bernoulli multinomial".split():
        for place in places:
            if place is not None and hasattr(place, name):
                setattr(place, name, getattr(numbers, name))
    for name in "normal_ uniform_ random_ bernoulli_ exponential_ log_normal_ multinomial bernoulli".split():
        setattr(torch.Tensor, name, getattr(numbers, "method_" + name)())
    for name in ("dropout", "dropout1d", "dropout2d", "dropout3d"):
        setattr(torch.nn.functional, name, numbers.dropping(name != "dropout"))
    for place in (torch, torch.random):
        place.manual_seed = numbers.seeding(torch.manual_seed)
    if STEPS:
        Limit(torch)
    if os.environ.get("PROGRAM_ACCELERATORS"):
        use_cpu_as_accelerators(torch, int(os.environ["PROGRAM_ACCELERATORS"]))
    if "facula" not in sys.modules:
        define_nms(torch)


def use_cpu_as_accelerators(torch, count):
    """Programs that insist on several GPUs run on the CPU, which counts as so many accelerators."""
    torch.accelerator.is_available = lambda: True
    torch.accelerator.device_count = lambda: count
    torch.accelerator.current_accelerator = lambda check_available=False: torch.device("cpu")
    torch.accelerator.set_device_index = lambda index: None

    def on_cpu(to):
        def move(self, *arguments, **options):
            return to(self, *("cpu" if type(a) is int else a for a in arguments), **options)

        return move

    torch.Tensor.pin_memory = lambda self, device=None: self
    torch.Tensor.to, torch.nn.Module.to = on_cpu(torch.Tensor.to), on_cpu(torch.nn.Module.to)
    parallel = torch.nn.parallel.DistributedDataParallel
    initialize = parallel.__init__
    parallel.__init__ = lambda self, module, device_ids=None, **options: initialize(self, module, **options)


def define_nms(torch):
    """The shared library of torchvision's wheel needs those of GPUs. Without it torchvision still imports if
    these two operators are there, and uses them if its module for that library says so.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

    def nms(dets, scores, iou_threshold):
        kept, left = [], scores.argsort(descending=True, stable=True)
        areas = (dets[:, 2:] - dets[:, :2]).prod(1)
        while len(left):
            best, left = left[0], left[1:]
            kept.append(best)
            low, high = (
                torch.maximum(dets[best, :2], dets[left, :2]),
                torch.minimum(dets[best, 2:], dets[left, 2:]),
            )
            common = (high - low).clamp(min=0).prod(1)
            left = left[~(common / (areas[best] + areas[left] - common) > iou_threshold)]
        return torch.stack(kept) if kept else torch.empty(0, dtype=torch.int64)

    library.impl("nms", nms, "CPU")
    torch._programs_library = library
    extension = sys.modules["torchvision.extension"] = types.ModuleType("torchvision.extension")
    extension._HAS_OPS = False
    extension._has_ops = lambda: False
    extension._assert_has_ops = lambda: None
    extension._check_cuda_version = lambda: -1
    extension._load_library = lambda name: False


class Numbers:
    """Random functions under the library's names, from one generator of NumPy."""

    def __init__(self, torch):
        import numpy

        self.torch, self.numpy = torch, numpy
        self.seed, self.streams = 0, {}

    @property
    def draws(self):
        """The generator of the calling function. Each has its own, as a library may draw ahead of use."""
        name = sys._getframe(1).f_code.co_qualname.partition(".<locals>")[0]
        if name not in self.streams:
            self.streams[name] = self.numpy.random.default_rng([self.seed, *name.encode()])
        return self.streams[name]

    def seeding(self, manual_seed):
        def seed_both(seed):
            self.seed, self.streams = int(seed) % 2**64, {}
            return manual_seed(seed)

        return seed_both

    def tensor(self, array, dtype=None, device=None, requires_grad=False, out=None, **ignored):
        array = self.numpy.ascontiguousarray(array)
        t = self.torch.from_numpy(array.reshape(array.shape)).to(dtype or self.torch.get_default_dtype())
        if out is not None:
            return out.copy_(t)
        t = t.to(device) if device is not None else t
        return t.requires_grad_() if requires_grad else t

    @staticmethod
    def shape(size):
        size = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
        return tuple(int(n) for n in size)

    def rand(self, *size, size_=(), **options):
        size = options.pop("size", None) or size
        return self.tensor(self.draws.random(self.shape(tuple(size))), **options)

    def randn(self, *size, **options):
        size = options.pop("size", None) or size
        return self.tensor(self.draws.standard_normal(self.shape(tuple(size))), **options)

    def randint(self, *bounds, **options):
        low, high = options.pop("low", 0), options.pop("high", None)
        size = options.pop("size", None)
        if size is None:
            *bounds, size = bounds
        if high is None:
            *first, high = bounds
            low = first[0] if first else low
        elif bounds:
            low = bounds[0]
        dtype = options.pop("dtype", None) or self.torch.int64
        if int(high) >= 2**62:  # a seed for another generator
            return self.tensor(self.numpy.full(tuple(size), 7), dtype, **options)
        size = (size,) if isinstance(size, int) else tuple(size)
        return self.tensor(self.draws.integers(int(low), int(high), size), dtype, **options)

    def randperm(self, n, **options):
        return self.tensor(
            self.draws.permutation(int(n)), options.pop("dtype", None) or self.torch.int64, **options
        )

    def like(self, array, t, dtype=None, **options):
        return self.tensor(
            array, dtype or t.dtype, device=t.device, requires_grad=options.get("requires_grad", False)
        )

    def rand_like(self, t, **options):
        return self.like(self.draws.random(tuple(t.shape)), t, **options)

    def randn_like(self, t, **options):
        return self.like(self.draws.standard_normal(tuple(t.shape)), t, **options)

    def randint_like(self, t, low, high=None, **options):
        low, high = (0, low) if high is None else (low, high)
        return self.like(self.draws.integers(int(low), int(high), tuple(t.shape)), t, **options)

    def normal(self, mean=0.0, std=1.0, size=None, **options):
        like = next((x for x in (mean, std) if isinstance(x, self.torch.Tensor)), None)
        if like is None:
            return self.tensor(self.draws.standard_normal(self.shape(tuple(size))) * std + mean, **options)
        pair = self.torch.broadcast_tensors(self.torch.as_tensor(mean), self.torch.as_tensor(std))
        noise = self.tensor(self.draws.standard_normal(tuple(pair[0].shape)), like.dtype)
        with self.torch.no_grad():
            return noise * std + mean

    def bernoulli(self, p, *rest, **options):
        with self.torch.no_grad():
            draws = self.tensor(self.draws.random(tuple(p.shape)), self.torch.float64)
            return (draws < p).to(p.dtype)

    def multinomial(self, weights, num_samples, replacement=False, **options):
        w = weights.detach().to(self.torch.float64).numpy()
        rows, np = w.reshape(-1, w.shape[-1]), self.numpy
        if replacement or num_samples == 1:
            sums = rows.cumsum(1)
            draws = self.draws.random((len(rows), num_samples)) * sums[:, -1:]
            picks = np.stack([np.searchsorted(s, u, side="right") for s, u in zip(sums, draws)])
        else:
            with np.errstate(divide="ignore"):
                picks = (self.draws.standard_exponential(rows.shape) / rows).argsort(1)[:, :num_samples]
        return self.torch.from_numpy(picks.reshape(*w.shape[:-1], num_samples).astype(np.int64))

    def filling(self, draw):
        """A method that writes ``draw(shape, *arguments)`` into its tensor."""
        torch = self.torch

        def fill(t, *arguments, generator=None, **options):
            array = self.numpy.asarray(draw(tuple(t.shape), *arguments, **options))
            with torch.no_grad():
                torch.Tensor.copy_(t, torch.from_numpy(array).to(t.dtype))
            return t

        return fill

    def method_normal_(self):
        def draw(shape, mean=0.0, std=1.0):
            return self.draws.standard_normal(shape) * float(std) + float(mean)

        return self.filling(draw)

    def method_log_normal_(self):
        return self.filling(lambda shape, mean=1.0, std=2.0: self.draws.lognormal(mean, std, shape))

    def method_uniform_(self):
        return self.filling(
            lambda shape, low=0.0, high=1.0, **o: self.uniform(shape, *o.values() or (low, high))
        )

    def uniform(self, shape, low, high):
        return self.draws.random(shape) * float(high - low) + float(low)

    def method_exponential_(self):
        return self.filling(lambda shape, lambd=1.0: self.draws.standard_exponential(shape) / lambd)

    def method_random_(self):
        def draw(shape, low=0, high=None):
            if not shape:
                return 7  # a seed for another generator
            low, high = (0, low) if high is None else (low, high)
            return self.draws.integers(low, high or 2**20, shape)

        return self.filling(draw)

    def method_bernoulli_(self):
        def draw(shape, p=0.5):
            p = p.detach().numpy() if isinstance(p, self.torch.Tensor) else p
            return self.draws.random(shape) < p

        return self.filling(draw)

    def method_multinomial(self):
        return lambda t, *arguments, **options: self.multinomial(t, *arguments, **options)

    def method_bernoulli(self):
        return lambda t, *arguments, **options: self.bernoulli(t)

    def dropping(self, whole_features):
        def dropout(input, p=0.5, training=True, inplace=False):
            if not training or p == 0:
                return input
            shape = tuple(input.shape)
            if whole_features:
                shape = shape[:2] + (1,) * (len(shape) - 2)
            mask = self.tensor((self.draws.random(shape) >= p) / (1 - p), input.dtype)
            return input.mul_(mask) if inplace else input * mask

        return dropout


class Limit:
    """Ends the program after so many steps of all its optimizers."""

    def __init__(self, torch):
        self.left, self.process, self.torch = STEPS, os.getpid(), torch
        torch.optim.Optimizer.__init__ = self.counting(torch.optim.Optimizer.__init__)

    def counting(self, initialize):
        def count(optimizer, *arguments, **options):
            initialize(optimizer, *arguments, **options)
            optimizer.register_step_post_hook(self.after_step)

        return count

    def after_step(self, optimizer, arguments, options):
        self.left -= 1
        if self.left == 0 and os.getpid() == self.process:
            squares = 0.0
            for group in optimizer.param_groups:
                squares += sum(float(p.detach().double().pow(2).sum()) for p in group["params"])
            print(f"\nparameters after {STEPS} steps: {math.sqrt(squares):.6g}", flush=True)
            os._exit(0)
