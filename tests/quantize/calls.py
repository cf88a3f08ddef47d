"""Calls of quantised operators that both libraries compute: ``python calls.py SEED COUNT FILE``.

Call k of a seed is the same everywhere: sizes, scales and numbers are drawn by NumPy. The file has the
results by number: integers with their scale and zero point, or numbers.
"""

from __future__ import annotations

import os
import pickle
import sys
import warnings

import numpy as np
import torch
from torch.nn import functional as F

warnings.simplefilter("ignore")
torch.set_num_threads(1)
Q = torch.ops.quantized
torch.backends.quantized.engine = "x86"


class Draw:
    """The random numbers of one call."""

    def __init__(self, seed, k):
        self.r = np.random.RandomState([seed, k])

    def int(self, low, high):
        return int(self.r.randint(low, high + 1))

    def choice(self, items):
        return items[self.r.randint(len(items))]

    def tensor(self, *sizes, spread=1.0):
        return torch.from_numpy(self.r.randn(*sizes).astype(np.float32) * np.float32(spread))

    def scale(self):
        return float(np.float32(10 ** self.r.uniform(-3, 0)))

    def dtype(self):
        return self.choice([torch.quint8, torch.qint8])

    def parameters(self, dtype):
        low = -128 if dtype == torch.qint8 else 0
        return self.scale(), low + self.choice([0, 128, self.int(0, 255)])

    def quantized(self, *sizes, dtype=None, spread=1.0, contiguous=True):
        """A quantised tensor; of random integers, of numbers that saturate, or not contiguous."""
        dtype = dtype or self.dtype()
        scale, zero_point = self.parameters(dtype)
        x = self.tensor(*sizes) * (scale * self.choice([20, 60, 200]) * spread)
        q = torch.quantize_per_tensor(x, scale, zero_point, dtype)
        if not contiguous or self.r.rand() < 0.7 or len(sizes) < 2:
            return q
        order = list(range(len(sizes)))
        a, b = self.r.choice(len(sizes), 2, replace=False)
        order[a], order[b] = order[b], order[a]
        back = [int(i) for i in np.argsort(order)]
        return q.permute(order).contiguous().permute(back)

    def sizes(self, rank=None, empty=True):
        rank = rank or self.int(1, 4)
        sizes = [self.int(1, 7) for _ in range(rank)]
        if empty and self.r.rand() < 0.03:
            sizes[self.int(0, rank - 1)] = 0
        return sizes


def output(d, q, reals, spread=60):
    """A scale and zero point that fit the numbers of a result, more or less."""
    largest = float(reals.abs().max()) if reals.numel() else 1.0
    scale = max(largest, 1e-4) / d.choice([40, 100, 200])
    low = -128 if q.dtype == torch.qint8 else 0
    return float(np.float32(scale)), low + d.choice([128, 0, 60, 200])


def quantize(d):
    x, dtype = d.tensor(*d.sizes()), d.choice([torch.quint8, torch.qint8, torch.qint32])
    scale, zero_point = d.parameters(dtype if dtype != torch.qint32 else torch.qint8)
    return torch.quantize_per_tensor(x * d.choice([0.1, 1, 100]), scale, zero_point, dtype)


def per_channel(d):
    sizes, dtype = d.sizes(empty=False), d.dtype()
    axis = d.int(0, len(sizes) - 1)
    scales = torch.tensor([d.scale() for _ in range(sizes[axis])], dtype=torch.float64)
    low = -128 if dtype == torch.qint8 else 0
    zeros = torch.tensor([low + d.int(0, 255) for _ in range(sizes[axis])])
    return torch.quantize_per_channel(d.tensor(*sizes), scales, zeros, axis, dtype)


def dynamic(d):
    return torch.quantize_per_tensor_dynamic(
        d.tensor(*d.sizes()) * d.scale(), torch.quint8, bool(d.int(0, 1))
    )


def dequantize(d):
    return d.quantized(*d.sizes()).dequantize()


def unary(name):
    def call(d):
        return getattr(d.quantized(*d.sizes()), name)()

    return call


def clamp(d):
    low, high = sorted([d.r.randn() * 5, d.r.randn() * 5])
    return d.quantized(*d.sizes()).clamp(low, high)


def functional(f, rank=None, **options):
    def call(d):
        return f(d.quantized(*d.sizes(rank)), **options)

    return call


def scaled(name, real, *more):
    def call(d):
        q = d.quantized(*d.sizes())
        return getattr(Q, name)(q, *output(d, q, real(q.dequantize())), *more)

    return call


def leaky(d):
    q = d.quantized(*d.sizes())
    slope = d.choice([0.01, 0.2])
    return Q.leaky_relu(q, slope, False, *output(d, q, F.leaky_relu(q.dequantize(), slope)))


def binary(name, real):
    def call(d):
        sizes, dtype = d.sizes(), d.dtype()
        a, b = d.quantized(*sizes, dtype=dtype), d.quantized(*sizes, dtype=dtype)
        return getattr(Q, name)(a, b, *output(d, a, real(a.dequantize(), b.dequantize())))

    return call


def with_number(name):
    def call(d):
        number = float(np.float32(d.r.randn() * d.choice([0.1, 1, 10])))
        return getattr(Q, name)(d.quantized(*d.sizes()), number)

    return call


def cat(d):
    sizes, dtype = d.sizes(empty=False), d.dtype()
    items = [d.quantized(*sizes, dtype=dtype, contiguous=False) for _ in range(d.int(1, 3))]
    dim = d.int(0, len(sizes) - 1)
    real = torch.cat([q.dequantize() for q in items], dim)
    return Q.cat(items, dim, *output(d, items[0], real))


def matmul(d):
    dtype, n, k, m = d.dtype(), d.int(1, 6), d.int(1, 9), d.int(1, 6)
    a, b = d.quantized(n, k, dtype=dtype, contiguous=False), d.quantized(k, m, dtype=dtype, contiguous=False)
    return Q.matmul(a, b, *output(d, a, a.dequantize() @ b.dequantize()))


def norm(name):
    def call(d):
        channels = 2 * d.int(1, 3)
        q = d.quantized(d.int(1, 3), channels, d.int(2, 5), d.int(2, 5))
        x, eps = q.dequantize(), 1e-5
        if name == "layer_norm":
            shape = list(q.shape[2:])
            w, b = d.tensor(*shape), d.tensor(*shape)
            return Q.layer_norm(q, shape, w, b, eps, *output(d, q, F.layer_norm(x, shape, w, b, eps)))
        w, b = d.tensor(channels), d.tensor(channels)
        if name == "group_norm":
            return Q.group_norm(q, 2, w, b, eps, *output(d, q, F.group_norm(x, 2, w, b, eps)))
        if name == "instance_norm":
            real = F.instance_norm(x, None, None, w, b, True, 0.0, eps)
            return Q.instance_norm(q, w, b, eps, *output(d, q, real))
        mean, var = d.tensor(channels), d.tensor(channels).abs() + 0.1
        real = F.batch_norm(x, mean, var, w, b, False, 0.0, eps)
        return getattr(Q, name)(q, w, b, mean, var, eps, *output(d, q, real))

    return call


def pool(f, rank):
    def call(d):
        q = d.quantized(d.int(1, 3), d.int(1, 4), *(d.int(4, 9) for _ in range(rank)), dtype=torch.quint8)
        # The peer's max_pool1d reads the memory of other layouts as if it were contiguous.
        return f(q.contiguous() if rank == 1 else q, d.int(1, 3), d.int(1, 2))

    return call


def adaptive(rank):
    def call(d):
        q = d.quantized(d.int(1, 3), d.int(1, 4), *(d.int(3, 9) for _ in range(rank)), dtype=torch.quint8)
        return getattr(F, f"adaptive_avg_pool{rank}d")(q, d.int(1, 3))

    return call


def interpolate(d):
    q = d.quantized(d.int(1, 2), d.int(1, 3), d.int(2, 6), d.int(2, 6))
    if d.r.rand() < 0.5:
        return F.interpolate(q, scale_factor=2, mode="nearest")
    return F.interpolate(q, size=[d.int(2, 9), d.int(2, 9)], mode="bilinear", align_corners=bool(d.int(0, 1)))


def mean(d):
    sizes = d.sizes(d.int(2, 4), empty=False)
    return d.quantized(*sizes).mean([len(sizes) - 1])


def topk(d):
    q = d.quantized(d.int(1, 4), 7, contiguous=False)
    return q.topk(d.int(1, 5))[0]


def weight_of(d, sizes, channels, axis=0):
    w = d.tensor(*sizes)
    if d.r.rand() < 0.5:
        return torch.quantize_per_tensor(w, float(w.abs().max()) / 127, 0, torch.qint8)
    scales = torch.tensor([d.scale() * 0.1 for _ in range(channels)], dtype=torch.float64)
    return torch.quantize_per_channel(w, scales, torch.zeros(channels, dtype=torch.long), axis, torch.qint8)


def linear(name):
    def call(d):
        n, k, m = d.int(1, 6), d.int(1, 40), d.int(1, 20)
        q = d.quantized(n, k, dtype=torch.quint8)
        w = weight_of(d, (m, k), m)
        b = d.tensor(m) if d.r.rand() < 0.7 else None
        packed = Q.linear_prepack(w, b)
        if "dynamic" in name:
            return getattr(Q, name)(q.dequantize(), packed, True)
        real = F.linear(q.dequantize(), w.dequantize(), b)
        return getattr(Q, name)(q, packed, *output(d, q, real))

    return call


def conv(rank, transposed=False, relu=False):
    def call(d):
        groups = d.choice([1, 1, 2])
        c, o = 2 * d.int(1, 3), 2 * d.int(1, 3)
        kernel, size = [d.int(1, 3) for _ in range(rank)], [d.int(4, 7) for _ in range(rank)]
        stride, padding = [d.int(1, 2)] * rank, [d.int(0, 1)] * rank
        dilation = [1 if transposed else d.int(1, 2)] * rank
        size = [max(s, (k - 1) * dilation[0] + 1) for s, k in zip(size, kernel)]
        q = d.quantized(d.int(1, 3), c, *size, dtype=torch.quint8)
        shape = (c, o // groups, *kernel) if transposed else (o, c // groups, *kernel)
        w = (
            torch.quantize_per_tensor(d.tensor(*shape), 0.02, 0, torch.qint8)
            if transposed
            else weight_of(d, shape, o)
        )
        b = d.tensor(o) if d.r.rand() < 0.7 else None
        base = f"conv{'_transpose' * transposed}{rank}d"
        more = ([0] * rank,) if transposed else ()
        # The peer's oneDNN engine computes other sums than its float convolution where c != o.
        torch.backends.quantized.engine = "fbgemm" if transposed else "x86"
        packed = getattr(Q, base + "_prepack")(w, b, stride, padding, *more, dilation, groups)
        if transposed:
            real = getattr(F, base)(q.dequantize(), w.dequantize(), b, stride, padding, 0, groups, dilation)
        else:
            real = getattr(F, base)(q.dequantize(), w.dequantize(), b, stride, padding, dilation, groups)
        return getattr(Q, base + "_relu" * relu)(q, packed, *output(d, q, real))

    return call


def moved(d):
    q = d.quantized(*d.sizes(3, empty=False))
    kind = d.int(0, 5)
    if kind == 0:
        return q.permute(2, 0, 1)[..., 0]
    if kind == 1:
        return q[:, -1:].reshape(-1)
    if kind == 2:
        return q.flip(1)
    if kind == 3:
        return q.transpose(0, 1).contiguous()
    if kind == 4:
        return q.unsqueeze(0).squeeze()
    return torch.stack([q, q])


def compared(d):
    a, b = d.quantized(*(sizes := d.sizes())), d.quantized(*sizes)
    return d.choice([torch.eq, torch.lt, torch.ge])(a, b)


def copied(d):
    q = d.quantized(*d.sizes(2, empty=False))
    q[0] = float(np.float32(d.r.randn()))
    return q.clone().copy_(d.tensor(*q.shape))


def embedding(d):
    table = d.tensor(9, d.int(1, 8) * 2)
    low, high = table.amin(1), table.amax(1)
    scales = (high - low) / 255
    q = torch.quantize_per_channel(table, scales, -low / scales, 0, torch.quint8)
    packed = Q.embedding_bag_prepack(q)
    indices = torch.from_numpy(d.r.randint(0, 9, 6))
    if d.r.rand() < 0.5:
        return Q.embedding_byte(packed, indices)
    return Q.embedding_bag_byte(packed, indices, torch.tensor([0, 2, 3]), False, 0)


def int_mm(d):
    a = torch.from_numpy(d.r.randint(-128, 128, (d.int(17, 30), 16)).astype(np.int8))
    return torch._int_mm(a, torch.from_numpy(d.r.randint(-128, 128, (16, 8)).astype(np.int8)))


CALLS = {
    "quantize_per_tensor": quantize,
    "quantize_per_channel": per_channel,
    "quantize_per_tensor_dynamic": dynamic,
    "dequantize": dequantize,
    "relu": unary("relu"),
    "sigmoid": unary("sigmoid"),
    "tanh": unary("tanh"),
    "clamp": clamp,
    "relu6": functional(F.relu6),
    "hardtanh": functional(F.hardtanh),
    "hardsigmoid": functional(F.hardsigmoid),
    "threshold": functional(F.threshold, threshold=0.5, value=0.25),
    "hardswish": scaled("hardswish", F.hardswish),
    "elu": scaled("elu", F.elu, 0.9),
    "leaky_relu": leaky,
    "add": binary("add", torch.add),
    "add_relu": binary("add_relu", torch.add),
    "mul": binary("mul", torch.mul),
    "mul_relu": binary("mul_relu", torch.mul),
    "add_scalar": with_number("add_scalar"),
    "mul_scalar": with_number("mul_scalar"),
    "cat": cat,
    "matmul": matmul,
    "layer_norm": norm("layer_norm"),
    "group_norm": norm("group_norm"),
    "instance_norm": norm("instance_norm"),
    "batch_norm2d": norm("batch_norm2d"),
    "max_pool1d": pool(F.max_pool1d, 1),
    "max_pool2d": pool(F.max_pool2d, 2),
    "avg_pool2d": pool(F.avg_pool2d, 2),
    "avg_pool3d": pool(F.avg_pool3d, 3),
    "adaptive_avg_pool2d": adaptive(2),
    "adaptive_avg_pool3d": adaptive(3),
    "interpolate": interpolate,
    "mean": mean,
    "topk": topk,
    "linear": linear("linear"),
    "linear_relu": linear("linear_relu"),
    "linear_dynamic": linear("linear_dynamic"),
    "linear_relu_dynamic": linear("linear_relu_dynamic"),
    "conv1d": conv(1),
    "conv2d": conv(2),
    "conv3d": conv(3),
    "conv2d_relu": conv(2, relu=True),
    "conv_transpose1d": conv(1, True),
    "conv_transpose2d": conv(2, True),
    "conv_transpose3d": conv(3, True),
    "views": moved,
    "comparison": compared,
    "copy": copied,
    "embedding": embedding,
    "_int_mm": int_mm,
}


def plain(result):
    """A result as arrays."""
    if getattr(result, "is_quantized", False):
        if result.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            held = result.q_scale(), result.q_zero_point()
        else:
            held = (
                tuple(result.q_per_channel_scales().tolist()),
                tuple(result.q_per_channel_zero_points().tolist()),
            )
        return "quantized", result.int_repr().numpy().copy(), *held
    return "plain", result.detach().numpy().copy()


def main(seed, count, file):
    names, results = list(CALLS), {}
    for k in range(count):
        name = names[k % len(names)]
        try:
            results[k] = name, plain(CALLS[name](Draw(seed, k)))
        except Exception as e:
            results[k] = name, ("error", f"{type(e).__name__}: {e}"[:300])
    with open(file, "wb") as f:
        pickle.dump(results, f)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), os.path.abspath(sys.argv[3]))
