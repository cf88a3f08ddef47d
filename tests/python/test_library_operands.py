"""Operators that a library computes, on operands that lie in memory in any way that strides can say.

A library refuses some of them: those become copies, or an error of the operator's own.
"""

import os
import random
import subprocess
import sys
from functools import cache

import numpy as np
import pytest
from support.operators import arguments, bits, call, cases, to_numpy

import facula as F
from facula import nn

LIBRARY = [c for c in cases() if c.kind in ("library", "data-dependent") and c.samples and not c.random]


def test_there_are_library_operators():
    assert len(LIBRARY) > 20


def anyhow(t, rng):
    """Elements of one stretch of memory under strides by chance: dimensions overlap, repeat or leave gaps."""
    strides = [rng.choice([0, 1, 1, 2, 3, s, s, s + 1]) for s in t.stride()]
    offset = rng.randrange(4)
    reach = offset + 1 + sum(max(n - 1, 0) * s for n, s in zip(t.shape, strides, strict=True))
    flat = t.reshape(-1)
    room = flat.repeat(reach // max(len(flat), 1) + 1) if len(flat) else F.zeros(reach, dtype=t.dtype)
    return room.as_strided(t.shape, strides, offset)


def outcome(case, args):
    try:
        return call(case, args)
    except Exception as e:
        return e


def is_own(error):
    """Does the text come from here, and not from a library?"""
    text = str(error)
    foreign = (
        "could not",
        "primitive",
        "descriptor",
        "refuses",
        "internal",
        "ducc",
        "assertion",
        "bad_alloc",
    )
    return not any(word in text for word in foreign if word != "could not" or "be completed" not in text)


@pytest.mark.parametrize("case", LIBRARY, ids=lambda c: c.name)
def test_a_library_operator_gives_the_same_on_any_strides(case):
    rng = random.Random(case.name)
    for dtype in [d for d in ("float32", "bfloat16", "float64", "complex64", "int64") if d in case.dtypes]:
        for number in range(len(case.samples)):
            for _ in range(6):
                args = arguments(case, number, dtype)
                plain = {}
                for name, a in args.items():
                    own = case.samples[number][name]
                    if own.get("kind") == "literal" or own.get("index") or own.get("positive_definite"):
                        plain[name] = a
                        continue
                    args[name] = [anyhow(t, rng) for t in a] if isinstance(a, list) else anyhow(a, rng)
                    plain[name] = (
                        [t.clone(memory_format=F.contiguous_format) for t in args[name]]
                        if isinstance(a, list)
                        else args[name].clone(memory_format=F.contiguous_format)
                    )
                wanted, got = outcome(case, plain), outcome(case, args)
                what = f"{case.name}, sample {number}, {dtype}"
                if isinstance(wanted, Exception) or isinstance(got, Exception):
                    assert type(wanted) is type(got) and is_own(got), f"{what}: {wanted!r}, {got!r}"
                    continue
                for w, g in zip(wanted, got, strict=True):
                    assert w.shape == g.shape and w.dtype == g.dtype, what
                    scale = max(1.0, float(np.nanmax(np.abs(to_numpy(w).astype(complex)), initial=0)))
                    tolerance = 2e-2 if dtype == "bfloat16" else 3e-5
                    np.testing.assert_allclose(
                        to_numpy(g), to_numpy(w), rtol=tolerance, atol=tolerance * scale, err_msg=what
                    )


@pytest.mark.parametrize("dtype", [F.float32, F.bfloat16, F.float64, F.complex64, F.int32])
def test_products_read_matrices_that_overlap(dtype):
    """Sliding chunks, as in Longformer."""
    x = (F.arange(2 * 64 * 8) % 7 - 3).to(dtype).reshape(2, 64, 8)
    chunks = x.as_strided((2, 3, 32, 8), (512, 128, 8, 1))
    other = (F.arange(2 * 3 * 16 * 8) % 5 - 2).to(dtype).reshape(2, 3, 16, 8).transpose(-1, -2)
    assert bits(chunks @ other) == bits(chunks.clone() @ other)
    assert bits(other.mT @ chunks.mT) == bits(other.mT @ chunks.mT.clone())
    for strides in [(1, 1), (2, 1), (1, 2), (0, 1), (1, 0), (0, 0), (3, 2)]:
        m = x.view(-1).as_strided((5, 4), strides)
        v = x.view(-1).as_strided((4,), strides[1:])
        assert bits(m @ m.mT) == bits(m.clone() @ m.clone().mT)
        assert bits(m @ v) == bits(m.clone() @ v.clone())
        assert bits(F.addmm(m[:, :1], m, m.mT)) == bits(F.addmm(m[:, :1].clone(), m.clone(), m.clone().mT))


def test_products_take_more_batch_dimensions_than_a_library():
    x, y = F.randn(*[2, 1] * 6, 3, 4), F.randn(*[1, 2] * 6, 4, 5)
    assert (x @ y).shape == (*[2, 2] * 6, 3, 5)
    assert F.allclose((x @ y)[(1,) * 12], x[(1, 0) * 6] @ y[(0, 1) * 6], atol=1e-5)


# ---- training: weights stay in the order in which a library leaves their gradients


class Crossed(nn.Module):
    """Kernels of one shape but for their dimensions of size 1."""

    def __init__(self, *kernels):
        super().__init__()
        self.convs = nn.ModuleList(
            nn.Conv1d(32, 32, k, padding=k // 2)
            if isinstance(k, int)
            else nn.Conv2d(32, 32, k, padding=(k[0] // 2, k[1] // 2))
            for k in kernels
        )

    def forward(self, x):
        for c in self.convs:
            x = F.relu(c(x.flatten(2)).view(x.shape) if isinstance(c, nn.Conv1d) else c(x)) + x
        return x


NETS = {
    "(1, 7) beside (7, 1)": lambda: Crossed((1, 7), (7, 1)),
    "(7, 1) beside (1, 7)": lambda: Crossed((7, 1), (1, 7)),
    "Conv1d beside (3, 1)": lambda: Crossed(3, (3, 1)),
    "Conv1d beside (1, 3)": lambda: Crossed((1, 3), 3, (3, 1)),
    "(3, 3) beside (9, 1)": lambda: Crossed((3, 3), (9, 1), (1, 9)),
    "grouped": lambda: nn.Sequential(nn.Conv2d(32, 64, 3, groups=4), nn.Conv2d(64, 32, (3, 1), groups=2)),
    "depthwise": lambda: nn.Sequential(
        nn.Conv2d(32, 32, (1, 5), groups=32), nn.Conv2d(32, 32, (5, 1), groups=32)
    ),
    "dilated": lambda: nn.Sequential(
        nn.Conv2d(32, 32, (1, 3), dilation=2), nn.Conv2d(32, 32, (3, 1), dilation=2)
    ),
    "transposed": lambda: nn.Sequential(
        nn.ConvTranspose2d(32, 32, (1, 4), stride=2), nn.ConvTranspose2d(32, 32, (4, 1), stride=2)
    ),
    "transposed, 1d": lambda: nn.Sequential(
        nn.Flatten(2), nn.ConvTranspose1d(32, 32, 4, stride=2), nn.Conv1d(32, 32, 4), nn.Conv1d(32, 32, 1)
    ),
    "strided": lambda: nn.Sequential(
        nn.Conv2d(32, 64, 3, stride=2), nn.BatchNorm2d(64), nn.Conv2d(64, 32, 1)
    ),
}
OPTIMIZERS = {
    "SGD": lambda p: F.optim.SGD(p, lr=0.01, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: F.optim.Adam(p, lr=0.01),
    "AdamW": lambda p: F.optim.AdamW(p, lr=0.01, amsgrad=True),
    "Adam, apart": lambda p: F.optim.Adam(p, lr=0.01, foreach=False),
}


@cache
def image():
    F.manual_seed(3)
    return F.randn(2, 32, 10, 10)


def trained(net, optimizer, plain):
    F.manual_seed(0)
    model = NETS[net]()
    step = OPTIMIZERS[optimizer](model.parameters())
    losses = []
    for _ in range(4):
        step.zero_grad()
        loss = model(image()).square().mean()
        loss.backward()
        if plain:  # whoever looks at memory gets the logical layout
            for p in model.parameters():
                p.data_ptr()
                p.grad.data_ptr()
        step.step()
        losses.append(loss.item())
    return losses, [p.detach().numpy().copy() for p in model.parameters()]


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_nets_whose_kernels_differ_in_dimensions_of_size_one_train(net, optimizer):
    losses, weights = trained(net, optimizer, plain=False)
    wanted, plain = trained(net, optimizer, plain=True)
    np.testing.assert_allclose(losses, wanted, rtol=1e-4)
    for w, p in zip(weights, plain, strict=True):
        np.testing.assert_allclose(w, p, rtol=1e-3, atol=1e-4)


def test_weights_of_both_kinds_may_exchange_their_memory():
    F.manual_seed(1)
    a, b = nn.Conv2d(32, 32, (1, 7), bias=False), nn.Conv2d(32, 32, (7, 1), bias=False)
    step = F.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
    for _ in range(2):
        b(a(image().repeat(1, 1, 2, 2))).square().mean().backward()
        step.step()
    turned = F.nn.functional.conv2d(image(), a.weight.detach().view(32, 32, 7, 1))
    expected = F.nn.functional.conv2d(image(), a.weight.detach().clone().view(32, 32, 7, 1))
    assert F.allclose(turned, expected, atol=1e-5)


@pytest.mark.parametrize("channels", [1, 3, 4, 5, 12])
@pytest.mark.parametrize("last", [False, True], ids=["plain", "channels_last"])
def test_strided_convolutions_of_single_pixels_stay_in_their_memory(channels, last):
    """oneDNN has AVX2 kernels for these that wrote over memory: wrong gradients, steps without an end."""
    rng = np.random.default_rng(channels)
    form = F.channels_last if last else F.contiguous_format
    for size, out in ((28, 8), (14, 16), (14, 4), (15, 8)):
        x = (
            F.tensor(rng.standard_normal((8, channels, size, size), "f"))
            .to(memory_format=form)
            .requires_grad_()
        )
        w = F.tensor(rng.standard_normal((out, channels, 1, 1), "f"), requires_grad=True)
        y = F.nn.functional.conv2d(x, w, stride=2)
        g = rng.standard_normal(tuple(y.shape), "f")
        y.backward(F.tensor(g))
        taken, weight, grad = (
            a.astype("d") for a in (x.detach().numpy()[..., ::2, ::2], w.detach().numpy()[..., 0, 0], g)
        )
        back = np.zeros(x.shape)
        back[..., ::2, ::2] = np.einsum("nohw,oc->nchw", grad, weight)
        close = {"rtol": 1e-4, "atol": 1e-3}
        np.testing.assert_allclose(y.detach().numpy(), np.einsum("nchw,oc->nohw", taken, weight), **close)
        np.testing.assert_allclose(x.grad.numpy(), back, **close)
        np.testing.assert_allclose(
            w.grad.numpy()[..., 0, 0], np.einsum("nchw,nohw->oc", taken, grad), **close
        )


def test_a_lower_instruction_set_is_the_librarys_too():
    program = "import facula as F; x = F.ones(1, 8, 9, 9); F.nn.functional.conv2d(x, F.ones(8, 8, 3, 3))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "FACULA_CPU_CAPABILITY": "avx2", "ONEDNN_VERBOSE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ",convolution," in run.stdout and "avx2" in run.stdout
    assert "avx512" not in run.stdout.lower().replace("-", "")
