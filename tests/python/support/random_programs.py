"""Functions of tensors drawn at random, as Python source, against the programs that are traced of them.

    python tests/python/support/random_programs.py --count 3000     seeds 0 to 2999
    python tests/python/support/random_programs.py --first 17       one seed, with its source and its graph
    python tests/python/support/random_programs.py --compiled ...   functions compiled in place of traced ones

Exact ones compute with small multiples of 1/16, which no order of rounding changes: their programs give eager's bits in
every dtype. The others compute elementary functions, and are compared to a tolerance.
"""

# ruff: noqa: E501, E731, F401 (what is imported is for the source that is drawn)

import argparse
import collections
import dataclasses
import itertools
import math
import os
import random
import re
import sys
import tempfile
import time
import traceback

from facula.program import load, trace
from facula.utils.checkpoint import checkpoint

import facula
from facula import nn, optim
from facula.autograd import Function
from facula.nn import functional as F

# ---- functions with a gradient of their own, which shows who gave it


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 3


class Pair(Function):
    """Two results, and gradients for what is wanted."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x + y, x * 2

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return g + h * y if ctx.needs_input_grad[0] else None, g * x if ctx.needs_input_grad[1] else None


class Doubled(Function):
    """Writes its argument."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 5


class Largest(Function):
    """A result that carries no gradient, and one of integers."""

    @staticmethod
    def forward(ctx, x):
        top, at = x.max(-1)
        ctx.mark_non_differentiable(top)
        ctx.save_for_backward(at)
        return x - 1, top, at

    @staticmethod
    def backward(ctx, g, *rest):
        return g + ctx.saved_tensors[0].unsqueeze(-1)


class Scaled(Function):
    """An argument that is no tensor, and gradients that may be missing."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.set_materialize_grads(False)
        ctx.scale, ctx.shape = scale, x.shape
        return x * scale, x.sum()

    @staticmethod
    def backward(ctx, g, h):
        if g is None:
            return None if h is None else h.expand(ctx.shape) * 2, None
        own = g * ctx.scale * 3
        return own if h is None else own + h * 2, None


class Same(Function):
    """Gives its argument back."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g * 3


# ---- tensors


def made(shape, dtype, key, run=0, exact=True, special=False):
    """A tensor that follows from its key and the number of the call."""
    pick, places = random.Random(f"{key} {run}"), random.Random(key)
    if dtype == "bool":
        draw = lambda: pick.random() < 0.5  # noqa: E731
    elif dtype == "int64":
        draw = lambda: pick.randint(-3, 3)  # noqa: E731
    elif dtype == "complex64":
        draw = lambda: complex(pick.randint(-2, 2), pick.randint(-2, 2))  # noqa: E731
    elif exact:
        draw = lambda: pick.randint(-4, 4) / pick.choice([1, 1, 2])  # noqa: E731
    else:
        draw = lambda: pick.gauss(0, 1)  # noqa: E731
    numbers = [draw() for _ in range(math.prod(shape))]
    if special and dtype not in ("bool", "int64", "complex64"):
        for k in range(len(numbers)):
            if places.random() < 0.2:
                numbers[k] = places.choice([math.nan, math.inf, -math.inf, -0.0, 0.0])
    return facula.tensor(numbers, dtype=getattr(facula, dtype)).reshape(shape)


def flat(x):
    return [e for part in x for e in flat(part)] if isinstance(x, list) else [x]


def numbers_of(t):
    return flat(t.detach().tolist())


def bits(x):
    """Equal for equal numbers, NaN among them; 0 is not -0."""
    if isinstance(x, complex):
        return (bits(x.real), bits(x.imag))
    return x.hex() if isinstance(x, float) else x


# ---- programs as source


@dataclasses.dataclass
class Source:
    seed: int
    exact: bool
    special: bool
    step: bool  # of training: it calls backward(), and its results have no history
    dynamic: bool
    setup: list
    inputs: list
    lines: list
    results: list

    def text(self):
        return "\n".join([*self.setup, self.function()])

    def function(self):
        body = [*self.lines, f"return ({', '.join(self.results)}{',' * (len(self.results) == 1)})"]
        indented = [f"    {row}" for line in body for row in line.split("\n")]
        return "\n".join([f"def f({', '.join(self.inputs)}):", *indented])

    def environment(self, run=0, other_sizes=False, function=True):
        names = dict(globals())
        names["n"] = (lambda k: OTHER.get(k, k)) if other_sizes else (lambda k: k)
        names["make"] = lambda shape, dtype, key: made(shape, dtype, key, run, self.exact, self.special)
        facula.manual_seed(self.seed + 1000 * run)
        exec("\n".join(self.setup), names)
        if function:
            exec(self.function(), names)
        return names


OTHER = {2: 6, 3: 7, 4: 2, 5: 3}  # sizes of a call with other ones
FLOATS = ["float32", "float64", "float32", "float64", "float16", "bfloat16"]
LARGEST = {
    "float32": 2**12,
    "float64": 2**20,
    "float16": 8,
    "bfloat16": 8,
    "complex64": 2**10,
    "complex128": 2**20,
}

POINTWISE = [
    "-{a}", "{a}.abs()", "{a}.relu()", "{a}.sign()", "{a}.clamp(-2, 3)", "{a} * 2", "{a} + 1", "1 - {a}", "{a} * {a}",
    "{a} / 2", "{a} > 0", "{a}.floor()", "{a}.round()", "{a}.isnan()", "{a}.logical_not()", "{a}.nan_to_num(0.5, 1.0, -1.0)",
    "F.leaky_relu({a}, 0.5)", "F.hardtanh({a})", "{a}.conj()", "{a}.clone()", "{a}.fmod(3)", "~{a}",
]  # fmt: skip
PAIRS = [
    "{a} + {b}", "{a} - {b}", "{a} * {b}", "facula.maximum({a}, {b})", "facula.minimum({a}, {b})",
    "facula.where({a} > {b}, {a}, {b})", "facula.add({a}, {b}, alpha=2)", "{a}.masked_fill({b} > 0, 2)", "{a} == {b}",
    "{a}.lerp({b}, 0.5)", "{a}.logical_and({b})", "facula.addcmul({a}, {b}, {b}, value=2)", "{a}.copysign({b})",
    "facula.where({b} > 0, {a}, 1)", "{a} & {b}", "{b} < {a}", "facula.where({a}.isnan(), {b}, {a})",
]  # fmt: skip
SMOOTH = [
    "{a}.sin()", "{a}.tanh()", "{a}.sigmoid()", "{a}.exp()", "F.gelu({a})", "F.silu({a})", "F.softplus({a})",
    "(1 + {a} * {a}).sqrt()", "(1 + {a}.square()).log()", "{a} / (2 + {a}.cos())", "{a}.softmax(-1)",
    "{a}.log_softmax(-1)", "F.layer_norm({a}, {a}.shape[-1:])", "{a}.mean()", "{a}.mean({d})", "{a}.var({d})",
    "{a}.logsumexp({d})", "{a}.sinh()", "{a}.erf()", "(2 + {a}.sin()).pow(1.5)", "F.normalize({a}, dim={d})", "{a} * 0.3",
]  # fmt: skip
REDUCTIONS = [
    "{a}.sum()", "{a}.sum({d})", "{a}.sum({d}, keepdim=True)", "{a}.amax({d})", "{a}.amin({d}, keepdim=True)",
    "{a}.cumsum({d})", "{a}.any()", "{a}.all({d})", "{a}.argmax({d})", "{a}.max({d})", "{a}.min({d})", "{a}.sort({d})",
    "{a}.count_nonzero()", "{a}.prod({d})", "{a}.max()", "{a}.cummax({d})", "facula.topk({a}, 1, {d})", "{a}.logcumsumexp({d})",
]  # fmt: skip
VIEWS = [
    "{a}.transpose({d}, -1)", "{a}[{i}]", "{a}[{i}]", "{a}[{i}]", "{a}.unsqueeze({d})", "{a}.squeeze()", "{a}.flatten()",
    "{a}.reshape(-1)", "{a}.view({a}.shape)", "{a}.unsqueeze(0).expand(3, *{a}.shape)", "{a}.diagonal()", "{a}.detach()",
    "{a}.movedim({d}, 0)", "{a}.mT", "{a}.narrow({d}, 0, 1)", "{a}.select({d}, -1)", "{a}.split(2, {d})[0]", "{a}.unbind({d})[0]",
    "{a}.chunk(2, {d})[-1]", "{a}.view_as({a})", "{a}.unflatten({d}, (1, -1))", "facula.view_as_real({a})", "{a}.real", "{a}.imag",
    "{a}.unfold({d}, 2, 1)", "{a}.permute(*range({a}.dim() - 1, -1, -1))", "{a}.expand_as({b})", "{a}.T", "{a}[None]",
    "{a}.as_strided((2,), (1,))", "{a}.view(-1)", "{a}.swapaxes(0, {d})", "{a}.contiguous()", "{a}.unsafe_split(1, {d})[0]",
    "{a}.ravel()", "{a}.squeeze({d})", "facula.broadcast_to({a}, (2, *{a}.shape))",
]  # fmt: skip
INDICES = [
    "0",
    "-1",
    "1:",
    "::2",
    "..., 0",
    "..., 1:",
    ":, 0",
    ":, 1:",
    "None, 0",
    "..., None",
    ":1",
    "1:, ..., ::2",
    "..., -1:",
    "0:0",
]
WRITES = [
    "{a}.add_({b})", "{a}.mul_({b})", "{a}.sub_({b}, alpha=2)", "{a}.copy_({b})", "{a}.zero_()", "{a}.fill_(3)", "{a}.neg_()",
    "{a}.clamp_(-2, 2)", "{a}.mul_(0.5)", "{a}.add_(1)", "{a} += {b}", "{a}.masked_fill_({b} > 0, 1)", "{a}.relu_()",
    "{a}.transpose_(0, -1)", "{a}.unsqueeze_(0)", "{a}.squeeze_()", "{a}.detach().add_(1)",
    "{a}.addcmul_({b}, {b})", "{a}.lerp_({b}, 0.5)", "{a}.index_add_({d}, i0[:1], {a}.narrow({d}, 0, 1) * 2)", "{a}.index_fill_({d}, i0, 2)",
    "{a}.scatter_({d}, {a}.long() * 0, 5)", "{a}.tril_()", "{a}.copy_({b} + {a})", "{a}.swapaxes_(0, -1)", "{a} *= 2",
    "{a}.index_put_((i0,), {a}[:1] * 0 + 1, accumulate=True)", "{a}.square_()", "{a}.sub_({a}.sum())", "{a}.cumsum_({d})",
    "{a}.index_copy_({d}, i0[:1], {a}.narrow({d}, 0, 1) * 2)", "{a}.masked_fill_({a} != {a}, 0)", "{a}.logical_not_()", "{a}.sin_()",
    "{a}.fill_diagonal_(1)", "{a}.copy_({b}.sum())", "{a}.fill_({b}.sum())", "{a}.detach_()",
]  # fmt: skip
SETS = [
    "{a}[{i}] = {s}", "{a}[{i}] = {a}[{i}] * 2", "{a}[{i}] += 1", "{a}[{i}].mul_({s})", "{a}[{i}] = {b}", "{a}[{i}].copy_({b}.sum())",
    "{a}[i0] = {s}", "{a}[{a} > 1] = {s}", "{a}[{i}][{j}] = {s}", "{a}[...] = {b}", "{a}[{i}].zero_()", "{a}[i0] += 1",
    "{a}[{i}] = {a}.sum()", "{a}[{i}].add_({a}[{i}])", "{a}[{a} != {a}] = 0", "{a}.diagonal().add_(1)", "{a}.mT[{i}] -= 2",
    "{a}.view(-1)[{j}] = {s}", "{a}.detach()[{i}] = 2",
]  # fmt: skip
OUTS = [
    "facula.add({a}, {b}, out={c})", "facula.mul({a}, {b}, out={c})", "facula.neg({a}, out={c})", "facula.sum({a}, {d}, out={c})",
    "facula.maximum({a}, {b}, out={c})", "facula.where({a} > 0, {a}, {b}, out={c})", "facula.abs({a}, out={c}[{i}])",
    "facula.amax({a}, {d}, out={c})", "facula.cumsum({a}, {d}, out={c})", "facula.mm({a}, {a}.mT, out={c})",
    "facula.cat([{a}, {b}], out={c})", "facula.sort({a}, {d}, out=({c}, {a}.long()))", "facula.gt({a}, 0, out={c})",
]  # fmt: skip
MOVES = [
    "facula.cat([{a}, {b}])", "facula.cat([{a}, {a}], {d})", "facula.stack([{a}, {b}])", "{a}.flip({d})", "{a}.roll(1, {d})",
    "F.pad({a}, (1, 1))", "{a}.tril()", "{a}[i0]", "{a}.index_select({d}, i0)", "{a}.gather({d}, {a}.long() * 0)", "{a}.repeat(2, *[1] * ({a}.dim() - 1))",
    "{a}.index_add({d}, i0[:1], {a}.narrow({d}, 0, 1))", "F.embedding(i0 % 1, {a})", "facula.stack([{a}, {b}], -1)", "{a}.repeat_interleave(2, {d})",
    "{a}.diag_embed()", "facula.cat([{a}.flatten(), {b}.flatten()])", "{a}.scatter_add({d}, {a}.long() * 0, {a})", "{a}[{i}]", "{a}.take(i0 % 1)",
    "facula.tensor_split({a}, 2, {d})[1]", "{a}[:, i0]", "{a}[i0, ..., 0]",
]  # fmt: skip
PRODUCTS = [
    "{a} @ {a}.mT", "{a}.flatten() @ {a}.flatten()", "{a} @ {b}", "F.linear({a}, {b})", "facula.einsum('...i,...j->...ij', {a}, {a})",
    "facula.mm({a}, {b})", "facula.addmm({b}, {a}, {a}.mT)", "facula.outer({a}.flatten()[:3], {b}.flatten()[:3])", "F.conv1d({a}, {b})",
    "F.conv1d({a}.reshape(1, 1, -1), {a}.new_ones(1, 1, 1), padding=1)", "F.avg_pool1d({a}, 2)", "F.max_pool1d({a}, 2)", "facula.bmm({a}, {a}.mT)",
    "F.scaled_dot_product_attention({a}, {a}, {b})", "F.linear({a}, {b}, {a}.sum())", "facula.baddbmm({b}, {a}, {a}.mT, beta=2)",
]  # fmt: skip
SHAPES = ["(2, 3)", "(3,)", "()", "{a}.shape", "{a}.shape", "(0, 2)", "(1, 4)"]
DRAWS = [
    "facula.randint(0, 4, {shape})", "(facula.rand({shape}) * 4).floor()", "F.dropout({a}, 0.5)", "(facula.rand({a}.shape) * 4).floor().to({a})",
    "facula.randperm(4)", "(facula.rand({shape}, generator=g0) * 4).floor()",
    "{a}.bernoulli_(0.5)", "{a}.random_(0, 4)", "facula.randn({shape}).sign()", "facula.randint_like({a}, 3)", "F.dropout({a}, 0.5, inplace=True)",
    "{a}[{i}].random_(0, 4)", "F.alpha_dropout({a}, 0.0)", "facula.rand({shape}, dtype=facula.float64).round()", "{a}.bernoulli_(0.5, generator=g0)",
]  # fmt: skip
CASTS = [
    "{a}.to(facula.{dtype})", "{a}.double()", "{a}.float()", "{a}.long()", "{a}.bool()", "{a}.to({b})", "{a}.type_as({b})", "{a}.half()",
    "{a}.to(facula.complex64)", "facula.complex({a}.float(), {a}.float() * 2)", "{a}.view(facula.int32)", "{a}.bfloat16()", "{a}.to(copy=True, dtype=facula.float32)",
]  # fmt: skip
FUNCTIONS = [
    "Square.apply({a})", "Pair.apply({a}, {b})", "Doubled.apply({a})", "Doubled.apply({a} * 1)", "Largest.apply({a})", "Scaled.apply({a}, 2)",
    "Scaled.apply({a}, 2)[1]", "Same.apply({a})", "Square.apply({a}[{i}])", "Pair.apply({a}, {b})[1]", "Square.apply(Square.apply({a}))",
]  # fmt: skip
CHECKPOINTS = [
    "checkpoint(lambda t: t * t + 1, {a}, use_reentrant=False)", "checkpoint(lambda t: F.dropout(t, 0.5) * t, {a}, use_reentrant=False)",
    "checkpoint(lambda t, u: Square.apply(t).sum() * u, {a}, {b}, use_reentrant=False)", "checkpoint(lambda t: t.relu() * 2, {a}, use_reentrant=True)",
]  # fmt: skip
SHAPED = [
    "{a} * {a}.shape[0]", "facula.zeros({a}.shape)", "{a}.new_ones({a}.size(-1))", "facula.full_like({a}, 2)", "facula.arange({a}.size(0))",
    "facula.ones({shape})", "{a} if {a}.shape[0] > 2 else {a} * 2", "facula.eye({a}.size(-1))", "{a}.numel() + {a}", "facula.tensor([1., 2., 3.])",
    "facula.empty_like({a}).copy_({a})", "facula.tensor(2) * {a}", "facula.zeros_like({a}).t().copy_({a}.t())", "{a} * facula.ones({a}.shape[-1])",
    "facula.empty({a}.shape).fill_(2)", "facula.full({shape}, -0.0)", "facula.linspace(0, 4, 5)", "nn.functional.relu({a}, inplace=True)",
]  # fmt: skip
GRADIENTS = [
    "facula.autograd.grad({a}.sum(), [{b}])[0]", "facula.autograd.grad(({a} * {a}).sum(), {b}, create_graph=True)[0]",
    "facula.autograd.grad({a}, {b}, facula.ones_like({a}), retain_graph=True)[0]",
    "facula.autograd.grad({a}.sum(), [c0, c1], allow_unused=True, retain_graph=True)[0]",
]  # fmt: skip
LOOKS = [
    "F.one_hot({a}.long() % 3, 3)",
    "{a}.to_sparse().to_dense()",
    "facula.bernoulli({a} * 0)",
    "{a}.sum().item()",
    "float({a}.sum())",
    "{a}[{a} > 0] if len({a}[{a} > 0]) > 1 else {a}",
]
# Results of a size that is known only when the program runs.
PICKS = [
    "{a}[{a} > 0]", "{a}[{b} > 0]", "{a}[{b}.isnan().logical_not()]", "{a}[{a}.flatten(1).sum(1) > 0]", "{a}[..., i0[{a}.flatten()[:3] > 0]]",
    "facula.masked_select({a}, {b} > 0)", "{a}.nonzero()", "facula.argwhere({a} > 1)", "{a}.nonzero(as_tuple=True)", "facula.where({a} > 0)",
    "{a}.unique()", "{a}.unique(return_inverse=True, return_counts=True)", "facula.unique_consecutive({a}, return_counts=True)",
    "{a}.repeat_interleave({a}.flatten()[:1].long() % 3, {d})", "{a}.repeat_interleave({a}.flatten(1)[:, 0].long() % 3, 0)",
    "facula.repeat_interleave({a}.flatten().long() % 3)", "facula.bincount({a}.flatten().long() % 4)", "{a}.masked_scatter({a} > 0, {b})",
    "{a}[{a} > 0].sum()", "{a}[{a} > 0].unsqueeze(1) * {a}[{a} > 0]", "{a}[{a} < 0][{a}[{a} < 0] < -1]", "facula.zeros_like({a}[{a} > 0])",
    "facula.cat([{a}[{a} > 0], {a}[{a} < 0]])", "{a}[{a} > 0][:2]", "{a}[{a} > 0][1:]", "{a}[{a} > 0] * {a}[{a} > 0].size(0)",
    "F.dropout({a}[{a} > 0], 0.5)", "facula.rand({a}[{a} > 0].shape).floor()", "facula.zeros(4).index_add(0, {a}[{a} > 0].long() % 4, ({a}[{a} > 0] * 2).float())",
]  # fmt: skip
PICKED = [
    "{a}[{a} > 0] = {s}", "{a}[{a} > 0] *= 2", "{a}[{a} > 1] = {a}[{a} > 1] - 1", "{a}[{b} > 0] = {a}[{b} > 0] * 2",
    "{a}.masked_scatter_({a} > 0, {a} * 2)", "{a}.masked_scatter_({b} > 0, {a})", "{a}[{a} > 0].add_(1)", "{a}.mT[{a}.mT > 0] += 1",
    "{a}[{i}][{a}[{i}] > 0] = {s}", "{a}[{a}.nonzero(as_tuple=True)] = 2", "{a}.index_put_(({a} > 0,), {a}[{a} > 0] * 0 + 1, accumulate=True)",
]  # fmt: skip
# Sizes, indices and numbers that an element says, from 0 to 2: N.
SIZED, SIZED_WRITES = ([t.replace("N", "(({a} > 0).sum() % 3).item()") for t in templates] for templates in ([
    "{a}[N]", "{a}[N - 1]", "{a}[..., N - 1]", "{a}[i0[:2], N - 1]", "{a}.select({d}, N)", "{a}.select({d}, N - 1)", "{a}.narrow({d}, N, 1)",
    "{a}.narrow({d}, N - 1, 1)", "{a}.reshape(N, -1)", "{a}.reshape(N + 1, -1)", "{a}.view(N + 1, -1)", "{a}.mT.reshape(-1, N + 1)",
    "{a}.flatten().unflatten(0, (N + 1, -1))", "{a}.repeat(N, *[1] * ({a}.dim() - 1))", "{a}.expand(N, *{a}.shape)", "facula.full((N, 2), N)",
    "F.pad({a}, (N, 0))", "F.pad({a}, (0, 1 - N))", "{a}.masked_fill({b} > 0, N)", "{a}.index_fill({d}, i0[:1], N)", "facula.full_like({a}, N)",
    "facula.where({a} > 0, N, {b})", "{a} * N", "{a}.add({b}, alpha=N)", "{a}.unfold({d}, N, 1)", "{a}.roll(N, {d})", "{a}.flatten().topk(N)[0]",
    "{a}.split([N, {a}.shape[0] - N])", "{a}.tensor_split([N])", "{a}.diagonal(N)", "{a}.tril(N)", "facula.arange(N, N + 3)", "facula.tensor([N, 1])",
    "{a}[N:]", "{a}[:N].sum(0)", "{a}.flatten()[N:].view(-1)", "facula.zeros(N, 3) + N", "{a}.repeat_interleave(N, {d})", "facula.eye(N)",
], [
    "{a}[N] = {s}", "{a}[..., N - 1] *= 2", "{a}[:N].add_(1)", "{a}[N:] = {s}", "{a}.select({d}, N - 1).mul_(2)", "{a}.narrow({d}, N, 1).zero_()",
    "{a}.view(N + 1, -1)[0] = {s}", "{a}.reshape(N + 1, -1).add_(1)", "{a}.masked_fill_({a} > 0, N)", "{a}.fill_(N)", "{a}[i0[:1], N - 1] = {s}",
]))  # fmt: skip

# What a program refuses by name, where eager goes on (docs/programs.md).
REFUSALS = [
    "through detach(), which a trace cannot record", "elements share memory", "writes through view(dtype)",
    "shares its memory with another tensor", "whose memory it also reads as another tensor", "which a traced function has not yet",
    "is called while another function is traced", "let the traced function begin with", "with out= changes the size",
    "on a tensor from outside of it", "the sizes or strides of", "needs a size that no tensor has which it reads", "which a file cannot hold",
    "and they are others now", "One of the differentiated Tensors does not require grad", "whose steps are counted together",
    "fills the gradient of a tensor", "which a trace cannot record", "known only when the program has run",
    "cannot be traced with tensors of a sparse layout", "that a traced function reads is a size, which -",
]  # fmt: skip
KINDS = {
    "pointwise": 14, "pairs": 14, "smooth": 14, "reductions": 7, "views": 20, "writes": 16, "sets": 8, "outs": 4, "moves": 7, "products": 4,
    "draws": 4, "casts": 3, "functions": 4, "checkpoints": 2, "shaped": 3, "gradients": 2, "no_grad": 4, "autocast": 3, "looks": 0.4,
    "picks": 3, "picked": 2, "sized": 3, "sized writes": 2,
}  # fmt: skip
TEMPLATES = dict(
    pointwise=POINTWISE, pairs=PAIRS, smooth=SMOOTH, reductions=REDUCTIONS, views=VIEWS, writes=WRITES, sets=SETS, outs=OUTS,
    moves=MOVES, products=PRODUCTS, draws=DRAWS, casts=CASTS, functions=FUNCTIONS, checkpoints=CHECKPOINTS, shaped=SHAPED,
    gradients=GRADIENTS, looks=LOOKS, picks=PICKS, picked=PICKED, sized=SIZED, **{"sized writes": SIZED_WRITES},
)  # fmt: skip
IMPURE = {
    "writes",
    "sets",
    "picked",
    "sized writes",
    "outs",
    "draws",
    "functions",
    "no_grad",
    "autocast",
    "shaped",
    "step",
}
STEPPED = [
    "({a} * {b}).sum().backward()\nopt.step()", "{a}.sum().backward()\nopt.step()", "opt.zero_grad()\n({a} * c0).sum().backward()\nopt.step()",
    "({a} * c0).sum().backward(retain_graph=True)", "with facula.no_grad():\n    c0.sub_(c0.grad, alpha=0.5)", "{v} = c0.grad * 2",
    "c0.grad.clamp_(-4, 4)", "c0.grad = None\n({a} * c0).sum().backward()", "facula.autograd.backward([({a} * c1).sum(), c0.sum()])",
]  # fmt: skip


class Draft:
    """Draws statements one by one, makes each in eager, and keeps those that eager accepts."""

    def __init__(self, seed):
        r = self.r = random.Random(seed)
        exact = r.random() < 0.65
        step = r.random() < 0.3
        self.source = Source(
            seed, exact, exact and r.random() < 0.15, step, not step and r.random() < 0.2, [], [], [], []
        )
        self.count = itertools.count()
        self.setup()
        self.names = self.fresh()
        wanted = r.choice([5, 8, 12, 12, 16, 20, 30, 40]) - len(self.source.lines)
        for _ in range(3 * wanted):
            if len(self.source.lines) >= wanted:
                break
            self.statement(self.source.lines)
        if step and not any("backward" in line for line in self.source.lines):
            self.attempt(
                "opt.zero_grad()\n(c0 * 2 + c0 * c0).sum().backward()\nopt.step()", "step", self.source.lines
            )
        alive = self.alive()
        kept = r.sample(alive, min(len(alive), r.choice([1, 2, 4, 8])))
        self.source.results = [name if r.random() < 0.5 else f"{name} * 1" for name in kept] or ["x0"]

    # ---- tensors that are there

    def tensor(self, dtype=None, dims=None):
        r = self.r
        dims = [
            r.choice([0, 1, 1, 2, 3, 3, 4, 5, 2, 3])
            for _ in range(dims if dims is not None else r.choice([0, 1, 2, 2, 2, 3, 4]))
        ]
        if math.prod(dims) > 150:
            dims = dims[:2]
        dtype = dtype or r.choice(
            [*FLOATS, "float32", "int64", "bool", "complex64"] if self.source.exact else FLOATS[:4]
        )
        shape = lambda d: (
            "(" + "".join(f"n({k}), " if k > 1 and self.source.dynamic else f"{k}, " for k in d) + ")"
        )  # noqa: E731
        key = r.randrange(10**6)
        layout = r.random()
        if layout < 0.1 and len(dims) > 1:
            return f'make({shape(dims[::-1])}, "{dtype}", {key}).permute(*range({len(dims)})[::-1])'
        if layout < 0.2 and dims:
            return (
                f'make({shape([2 * dims[0], *dims[1:]])}, "{dtype}", {key})[::2]'
                if not self.source.dynamic
                else f'make({shape(dims)}, "{dtype}", {key})'
            )
        if layout < 0.26 and dims and self.source.inputs is not None:
            return f'make({shape([1, *dims[1:]])}, "{dtype}", {key}).expand({shape(dims)})'
        return f'make({shape(dims)}, "{dtype}", {key})'

    def setup(self):
        r, s = self.r, self.source
        for k in range(r.choice([1, 2, 2, 3])):
            grad = r.random() < 0.6
            line = f"x{k} = {self.tensor(r.choice(FLOATS[: 6 if s.exact else 4]) if grad else None)}"
            s.setup.append(line + (".requires_grad_()" if grad else ""))
            s.inputs.append(f"x{k}")
        float_ = r.choice(["float32", "float64"])
        for k in range(2):
            s.setup.append(
                f'c{k} = make(({r.choice([2, 3, 3])}, 3), "{float_}", {r.randrange(10**6)}).requires_grad_()'
            )
        s.setup.append(f"b0 = {self.tensor()}.clone()")
        s.setup += [
            "i0 = facula.tensor([0, -1, 0])",
            f"g0 = facula.Generator().manual_seed({r.randrange(1000)})",
        ]
        if s.step:
            exact = ["SGD([c0, c1], lr=0.5)", "SGD([c0, c1], lr=0.5, momentum=0.5)"]
            smooth = [
                "Adam([c0, c1], lr=0.01)",
                "AdamW([c0, c1], lr=0.01)",
                "RMSprop([c0, c1], lr=0.01)",
                "SGD([c0, c1], lr=0.1, nesterov=True, momentum=0.9)",
            ]
            s.setup.append(f"opt = optim.{r.choice(exact if s.exact else exact + smooth)}")
            if keep := r.random() < 0.3:
                s.setup.append("for c in (c0, c1): c.grad = facula.zeros_like(c)")
            s.lines.append(f"opt.zero_grad(set_to_none={not keep})")
        elif r.random() < 0.5 or s.dynamic:  # arguments that may be written are no leaves
            s.lines += [f"{x} = {x} * 1" for x in s.inputs if r.random() < 0.5]

    def fresh(self):
        """Everything again up to here."""
        names = self.source.environment(function=False)
        for line in self.source.lines:
            exec(line, names)
        return names

    def alive(self, inside=()):
        named = [
            k
            for k, v in self.names.items()
            if k[0] in "vxcb" and k[1:].isdigit() and isinstance(v, facula.Tensor)
        ]
        return named

    def pick(self, fits=lambda t: True):
        found = [name for name in self.alive() if fits(self.names[name])]
        if not found:
            return None
        return self.r.choice(found[-4:] if self.r.random() < 0.5 else found)

    # ---- statements

    def fields(self, template, kind):
        """The template with operands; None if there are none that fit."""
        r, names = self.r, self.names
        if "c0" in template and kind == "step":
            a = self.pick(lambda t: t.is_floating_point() and broadcasts(t.shape, names["c0"].shape))
        elif kind == "gradients" or "backward" in template:
            a = self.pick(lambda t: t.requires_grad)
        else:
            a = self.pick()
        if a is None and "{a}" in template:
            return None
        t = names[a or "c0"]
        into = kind in ("writes", "sets", "picked", "sized writes") or "index_put" in template
        if kind == "gradients":
            b = self.pick(lambda u: u.requires_grad)
        elif into:
            b = self.pick(lambda u: expands(u.shape, t.shape))
        elif kind in ("products", "moves"):
            b = self.pick(lambda u: u.dtype == t.dtype)
        else:
            b = self.pick(lambda u: broadcasts(u.shape, t.shape))
        c = (
            self.pick(lambda u: not u.requires_grad or not facula.is_grad_enabled())
            if "{c}" in template
            else None
        )
        if ("{b}" in template and b is None) or ("{c}" in template and c is None):
            return None
        written = dict.fromkeys(("writes", "sets", "picked", "sized writes"), t)
        target = (written | {"outs": names[c] if c else None}).get(kind)
        if target is not None and any(partly_shared(target, names[x]) for x in (a, b) if x):
            return None
        return template.format(
            a=a, b=b, c=c, v=f"v{next(self.count)}" if "{v}" in template else None, d=r.randrange(-t.dim(), t.dim()) if t.dim() else 0,
            i=r.choice(INDICES), j=r.choice(["0", "-1", "1:", "::2"]), s=r.choice(["0", "2", "-1.5", "facula.tensor(3.)"]),
            dtype=r.choice([*FLOATS, "int64", "bool"]), shape=r.choice(SHAPES).format(a=a or "c0"),
        )  # fmt: skip

    def statement(self, lines, depth=0):
        r = self.r
        kinds = dict(KINDS)
        if self.source.exact:
            kinds["smooth"] = 0
        else:
            kinds["casts"] = kinds["autocast"] = 0
        if self.source.step:
            kinds["step"] = 12 if depth == 0 else 0
        if depth:
            kinds["no_grad"] = kinds["autocast"] = 0
        kind = r.choices(list(kinds), list(kinds.values()))[0]
        if kind in ("no_grad", "autocast"):
            return self.block(kind, lines)
        text = self.fields(r.choice(STEPPED if kind == "step" else TEMPLATES[kind]), kind)
        if text is None:
            return False
        if kind not in ("writes", "sets", "picked", "sized writes", "outs", "step"):
            text = f"v{next(self.count)} = {text}"
        return self.attempt(text, kind, lines)

    def block(self, kind, lines):
        head = {
            "no_grad": self.r.choice(
                [
                    "facula.no_grad()",
                    "facula.no_grad()",
                    "facula.enable_grad()",
                    "facula.set_grad_enabled(False)",
                ]
            ),
            "autocast": 'facula.autocast("cpu", facula.bfloat16)',
        }[kind]
        inner = []
        try:
            with eval(head, self.names):
                for _ in range(self.r.choice([1, 2, 3])):
                    self.statement(inner, 1)
        except Again:
            inner = None
            self.names = self.fresh()
        if not inner:
            return False
        lines.append(
            f"with {head}:\n" + "\n".join(f"    {row}" for line in inner for row in line.split("\n"))
        )
        if any(self.check(name) for name in self.alive()):  # what an inner statement took back is not
            return True
        lines.pop()
        self.names = self.fresh()
        return False

    def attempt(self, line, kind, lines):
        if line[0] in "bc" and line.split(" ")[1:2] in (["+="], ["*="]):  # which makes a local variable of it
            return False
        before = dict(self.names)
        shapes = {k: before[k].shape for k in self.alive()}
        try:
            exec(line, self.names)
            resized = [self.names[k] for k in shapes if self.names[k].shape != shapes[k]]
            if kind == "outs" and resized and self.r.random() < 0.95:
                raise OverflowError
            if not facula.is_grad_enabled() and any(t.grad_fn for t in resized):  # no gradient fits these
                raise OverflowError
            if not all(
                self.names[c].is_leaf for c in ("c0", "c1")
            ):  # a function wrote through a view of a parameter
                raise OverflowError
            for name in self.alive():
                if kind not in IMPURE and self.names[name] is before.get(name):
                    continue
                if not self.check(name):
                    raise OverflowError
        except (
            RuntimeError,
            TypeError,
            IndexError,
            ValueError,
            NotImplementedError,
            OverflowError,
            AttributeError,
            NameError,
        ):
            if lines is not self.source.lines:  # inside of a block: it is made again without it
                self.names = before
                if kind in IMPURE:
                    raise Again from None
            elif kind in IMPURE:
                self.names = self.fresh()
            else:
                self.names = before
            return False
        for name in list(self.names):
            if (
                name[0] == "v" and name[1:].isdigit() and isinstance(self.names[name], tuple)
            ):  # several results
                several = self.names.pop(name)
                line = line.replace(
                    f"{name} =", "".join(f"{name}{k:02}, " for k in range(len(several))) + "="
                )
                for k, t in enumerate(several):
                    self.names[f"{name}{k:02}"] = t
        lines.append(line)
        return True

    def check(self, name):
        """May it be there? Small tensors, and numbers that stay exact, or of moderate size."""
        t = self.names[name]
        if t.numel() > 400 or t.dim() > 5 or t.is_sparse:
            return False
        dtype = str(t.dtype).rpartition(".")[2]
        for x in numbers_of(t):
            for part in (x.real, x.imag) if isinstance(x, complex) else (x,):
                if isinstance(part, bool):
                    continue
                if not math.isfinite(part):
                    if not self.source.special:
                        return False
                elif not self.source.exact:
                    if abs(part) > 20:
                        return False
                elif abs(part) > LARGEST.get(dtype, 2**12) or not is_multiple(part, dtype):
                    return False
        return True


def partly_shared(a, b):
    """What is read then, old elements or new ones, is not defined."""
    same = a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset()
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and not same


class Again(Exception):
    pass


def broadcasts(a, b):
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b)))


def expands(a, b):
    return len(a) <= len(b) and all(m in (n, 1) for m, n in zip(reversed(a), reversed(b)))


# ---- programs against eager


def cells(names):
    """Tensors that are there before a call, by name: arguments, parameters, buffers."""
    found = {k: v for k, v in names.items() if k[0] in "xcb" and k[1:].isdigit()}
    return (
        found
        | {
            f"{k} of opt {n}": t
            for n, state in enumerate(names["opt"].state.values())
            for k, t in state.items()
            if isinstance(t, facula.Tensor)
        }
        if "opt" in names
        else found
    )


def refresh(source, names, run, other_sizes=False):
    """Arguments of a further call, and buffers without the history of the last one."""
    fresh = source.environment(run, other_sizes, function=False)
    for name in source.inputs:
        names[name] = fresh[name]
    for t in cells(names).values():
        if not t.is_leaf and not t._is_view():
            t.detach_()
        if not source.step:
            t.grad = None
    facula.manual_seed(source.seed + 1000 * run)
    names["g0"].manual_seed(run)


def call(source, names, f):
    """What a call gives and leaves behind."""
    before = {k: (t._version, numbers_of(t)) for k, t in cells(names).items()}

    def changed(k, t):
        version, numbers = before.get(k, (t._version, None))
        return t._version != version and [bits(x) for x in numbers_of(t)] != [bits(x) for x in numbers or []]

    results = f(*(names[x] for x in source.inputs))
    left = {f"result {k}": t for k, t in enumerate(results)}
    left |= {"state of the generator": facula.get_rng_state(), "state of g0": names["g0"].get_state()}
    left |= {k: t.detach().clone() for k, t in cells(names).items()}
    left |= {
        f"whether {k} was written": changed(k, t) for k, t in cells(names).items() if " of opt " not in k
    }
    if not source.step:
        histories = {k: t.requires_grad for k, t in enumerate(results) if not (t.requires_grad and t.is_leaf)}
        left |= {f"whether result {k} has history": h for k, h in histories.items()}
    return results, left


def gradients(source, names, results):
    """Of leaves, after numbers went back from the results."""
    wanted = {k: t for k, t in enumerate(results) if t.requires_grad}
    if wanted and not source.step:
        weights = [made(t.shape, name_of(t.dtype), k) for k, t in wanted.items()]
        facula.autograd.backward(list(wanted.values()), weights)
    return {f"gradient of {k}": t.grad for k, t in cells(names).items() if t.is_leaf}


def name_of(dtype):
    return str(dtype).rpartition(".")[2]


class Difference(Exception):
    pass


TOLERANCES = {"float16": 1e-2, "bfloat16": 6e-2, "float32": 1e-4, "complex64": 1e-4}


class Comparison:
    """Of what a program left behind with what eager did."""

    def __init__(self, source):
        self.source, self.equal_bits = source, True
        text = source.text()
        self.narrow = any(word in text for word in ("float16", "half", "autocast"))
        self.double = (
            not any(word in text for word in ("float32", ".float()", "complex64")) and not self.narrow
        )

    def outcome(self):
        return "bits" if self.equal_bits else "tolerance"

    def all(self, ours, theirs, strict=True):
        strict &= self.source.exact and all(exact(t) for t in theirs.values() if isinstance(t, facula.Tensor))
        for k in theirs:
            self.compare(k, ours.get(k), theirs[k], strict)

    def compare(self, what, ours, theirs, strict):
        if what.startswith("gradient") and (theirs is None) != (ours is None):  # no gradient is one of zeros
            theirs = facula.zeros_like(ours) if theirs is None else theirs
            ours = facula.zeros_like(theirs) if ours is None else ours
        if not isinstance(ours, facula.Tensor) or not isinstance(theirs, facula.Tensor):
            if ours is not theirs and not (
                what.endswith("has history") and not ours
            ):  # of a view made under no_grad
                raise Difference(f"{what}: {ours}, in eager {theirs}")
            return
        if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
            raise Difference(
                f"{what}: {ours.dtype}{list(ours.shape)}, in eager {theirs.dtype}{list(theirs.shape)}"
            )
        a, b = numbers_of(ours), numbers_of(theirs)
        # What is written through as_strided is added to zeros; gradients are added in another order.
        if "as_strided" in self.source.text() or self.source.step:
            a, b = ([x + 0 if type(x) is float else x for x in side] for side in (a, b))
        if [bits(x) for x in a] == [bits(x) for x in b]:
            return
        # What no later piece of a program differentiates gets a gradient of zeros, and these times NaN are NaN.
        if self.source.special and what.startswith("gradient") and ".item()" in self.source.text():
            b = [x if math.isnan(abs(x)) else y for x, y in zip(a, b)]
        self.equal_bits = False
        tolerance = 0 if strict else TOLERANCES.get(name_of(theirs.dtype), 1e-8 if self.double else 1e-4)
        if self.narrow:
            tolerance = max(tolerance, 0 if strict else 6e-2)
        scale = max([1.0, *(abs(x) for x in b if math.isfinite(abs(x)))])
        for x, y in zip(a, b):
            if self.narrow and not (
                math.isfinite(abs(x)) and math.isfinite(abs(y))
            ):  # one of its sums overflowed
                continue
            if bits(x) != bits(y) and (strict or not abs(x - y) <= tolerance * scale):
                raise Difference(f"{what}: {ours.tolist()}\n    in eager {theirs.tolist()}")


def exact(t):
    """May its numbers have been computed without rounding?"""
    largest = LARGEST.get(name_of(t.dtype), math.inf)
    parts = (p for x in numbers_of(t) for p in ((x.real, x.imag) if isinstance(x, complex) else (x,)))
    dtype = name_of(t.dtype)
    return all(not math.isfinite(p) or (abs(p) <= largest and is_multiple(p, dtype)) for p in parts)


def is_multiple(x, dtype):
    """Of 1/16; of 1/2 in 16 bits, so that a product of two is exact."""
    steps = 2 if dtype in ("float16", "bfloat16") else 16
    return x * steps == int(x * steps)


OUTDATED = "modified by an inplace operation"  # eager needs numbers that a program has still


def one_call(source, comparison, eager, traced, program, run, other_sizes=False, again=False):
    for names in (eager, traced):
        refresh(source, names, run, other_sizes)
    try:
        theirs, expected = call(source, eager, eager["f"])
    except (RuntimeError, IndexError, ValueError) as e:
        # A buffer has become a view, or has a history that was gone through; or there are fewer elements than a call needs.
        # What an earlier call wrote may say a size that does not fit.
        # Sizes may come of other draws than when it was made.
        if (
            run
            or again
            or any(
                text in str(e)
                for text in (
                    "modified inplace",
                    "a second time",
                    "invalid for input of size",
                    "is out of bounds",
                )
            )
        ):
            return False
        raise
    refresh_generator(source, traced, run)
    ours, found = call(source, traced, program)
    comparison.all(found, expected, strict=(run == 0 and not other_sizes) or not comparison.narrow)
    try:
        expected = gradients(source, eager, theirs)
    except NotImplementedError as e:  # of a function without a derivative
        check_raises(e, lambda: gradients(source, traced, ours))
        return True
    except RuntimeError as e:
        if OUTDATED not in str(e) and "a second time" not in str(e):
            raise
        return True
    comparison.all(gradients(source, traced, ours), expected, strict=False)
    return True


def check_raises(error, f):
    """Raises Difference unless ``f`` raises an error of the same type and text."""
    try:
        f()
    except type(error) as e:
        if str(e) != str(error):
            raise Difference(f"the error {e}, in eager {error}") from None
        return
    raise Difference(f"no error, in eager {error}")


def refresh_generator(source, names, run):
    facula.manual_seed(source.seed + 1000 * run)
    names["g0"].manual_seed(run)


def refused(e):
    if re.search(r"\bu\d+\b", str(e)):  # a size that is known only when the program runs
        return "known only when the program has run"
    return next((text for text in REFUSALS if text in str(e)), None)


def check(source, folder=None, compiled=False):
    """How the program fared: "bits", "tolerance", or why it was refused. Raises Difference, and what else should not be."""
    comparison = Comparison(source)
    eager, traced = source.environment(), source.environment()
    before = {k: t.detach().clone() for k, t in cells(traced).items()}
    state = facula.get_rng_state()
    if compiled:
        calls(source, comparison, eager, traced, facula.compile(traced["f"]))
        return comparison.outcome()
    try:
        program = trace(traced["f"], *(traced[x] for x in source.inputs), dynamic=source.dynamic)
    except (NotImplementedError, RuntimeError, ValueError, IndexError) as e:
        if refused(e):
            return refused(e)
        raise
    comparison.all(
        {k: t.detach() for k, t in cells(traced).items()} | {"generator": facula.get_rng_state()},
        before | {"generator": state},
    )
    try:
        if not calls(source, comparison, eager, traced, program):
            return comparison.outcome()
        if source.dynamic:
            in_other_sizes(source, comparison, eager, traced, program)
        if folder and not source.step:
            through_a_file(source, comparison, program, folder)
    except (NotImplementedError, RuntimeError, ValueError) as e:
        if refused(e):
            return refused(e)
        raise
    return comparison.outcome()


def calls(source, comparison, eager, traced, program):
    """Calls a program twice with the same arguments, and once with others; False if eager cannot be called so often."""
    return all(
        one_call(source, comparison, eager, traced, program, run, again=again > 0)
        for again, run in enumerate((0, 0, 1))
    )


def in_other_sizes(source, comparison, eager, traced, program):
    refresh(source, eager, 0, True)
    try:
        eager["f"](*(eager[x] for x in source.inputs))
    except (RuntimeError, IndexError, ValueError, TypeError):
        return
    try:
        refresh(source, traced, 0, True)
        program(*(traced[x] for x in source.inputs))
    except ValueError as e:
        if "was traced with" in str(e) or "relied on sizes" in str(e):
            return
        raise
    # Both ran once; buffers are alike again.
    one_call(source, comparison, eager, traced, program, 0, True)


def through_a_file(source, comparison, program, folder):
    path = os.path.join(folder, "program.pt")
    program.save(path)
    loaded = load(path)
    if str(loaded) != str(program):
        raise Difference(f"the text of the loaded program:\n{loaded}\nof the saved one:\n{program}")
    found = []
    for p in (program, loaded):
        names = source.environment(1, function=False)
        results = p(*(names[x] for x in source.inputs))
        left = {f"result {k}": t for k, t in enumerate(results)} | {
            k: names[k].detach() for k in source.inputs
        }
        left |= {f"captured {k}": t.detach() for k, t in enumerate(p.captured)}
        found.append(left)
    comparison.all(found[1], found[0], strict=False)


def shrunk(source, kind, compiled):
    """The fewest statements that fail in the same way."""

    def fails(smaller):
        try:
            names = smaller.environment()
            names["f"](*(names[x] for x in smaller.inputs))
        except Exception:
            return False
        try:
            check(smaller, compiled=compiled)
        except Exception as e:
            return type(e) is kind
        return False

    changed = True
    while changed:
        changed = False
        for part in ("lines", "results"):
            for k in reversed(range(len(getattr(source, part)))):
                items = getattr(source, part)
                smaller = dataclasses.replace(source, **{part: items[:k] + items[k + 1 :]})
                if len(smaller.results) and fails(smaller):
                    source, changed = smaller, True
    return source


def report(source, e, compiled):
    print(f"---- seed {source.seed}: {type(e).__name__}: {e}", flush=True)
    if not isinstance(e, Difference):
        traceback.print_exception(e, limit=-4)
    try:
        source = shrunk(source, type(e), compiled)
    except Exception as other:
        print("not shrunk:", other)
    print(source.text())
    try:
        check(source, compiled=compiled)
    except Exception as last:
        print("shrunk:", last)
    try:
        names = source.environment()
        print(trace(names["f"], *(names[x] for x in source.inputs), dynamic=source.dynamic), flush=True)
    except Exception as other:
        print("no graph:", str(other)[:300], flush=True)


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--first", type=int, default=0)
    arguments.add_argument("--count", type=int, default=1)
    arguments.add_argument("--step", type=int, default=1)
    arguments.add_argument("--compiled", action="store_true")
    given = arguments.parse_args()
    found, failed, statements = collections.Counter(), [], 0
    began = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.first, given.first + given.count * given.step, given.step):
            source = Draft(seed).source
            if given.count == 1:
                print(source.text())
            statements += len(source.lines)
            try:
                found[check(source, folder if seed % 4 == 0 else None, given.compiled)] += 1
            except Exception as e:
                failed.append(seed)
                report(source, e, given.compiled)
    print(
        f"{given.count} programs, {statements} statements, {time.process_time() - began:.0f} s: {dict(found)}, failed: {failed}"
    )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
