"""Functions of images, volumes and sequences as test cases, written once for Facula and for PyTorch.

Each case is a function of the library and of its inputs, whose values are functions of their place alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from .modules import flat, numbers, spread

Case = tuple[str, Callable, list]


def interpolations() -> Iterator[Case]:
    shapes = {"nearest": [1, 2, 5, 4], "nearest-exact": [1, 2, 5, 4], "linear": [1, 2, 5]}
    shapes |= {"bilinear": [1, 2, 5, 4], "bicubic": [1, 2, 5, 4], "trilinear": [1, 1, 2, 3, 4]}
    shapes |= {"lanczos": [1, 2, 5, 4]}
    to = [{"size": 1}, {"size": 3}, {"size": 9}, {"scale_factor": 0.7}, {"scale_factor": 2.0}]
    to += [{"scale_factor": 1.1}, {"scale_factor": 2.6, "recompute_scale_factor": True}]
    for mode, shape in shapes.items():
        for how, aligned, antialias in product(to, (None, True), (False, True)):
            if aligned and mode.startswith(("nearest", "lanczos")):
                continue
            if (antialias and mode not in ("bilinear", "bicubic", "lanczos")) or (mode, antialias) == (
                "lanczos",
                False,
            ):
                continue
            if (mode == "bicubic" or antialias) and how == {"scale_factor": 1.1}:
                continue  # where the size stays, PyTorch's gradient is not that of its result
            settings: dict[str, Any] = {**how, "mode": mode}
            settings |= {"align_corners": True} if aligned else {}
            settings |= {"antialias": True} if antialias else {}

            def f(lib, x, settings=settings):
                return lib.nn.functional.interpolate(x, **settings)

            yield f"interpolate {settings}", f, [shape]


def samplings() -> Iterator[Case]:
    for mode, padding, aligned in product(
        ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (False, True)
    ):

        def f(lib, x, grid, settings=(mode, padding, aligned)):
            grid = grid if settings[0] != "nearest" else grid.detach()
            return lib.nn.functional.grid_sample(x, grid, *settings)

        yield f"grid_sample {mode} {padding} {aligned}", f, [[2, 2, 3, 4], [2, 3, 2, 2]]
        if mode != "bicubic":
            yield f"grid_sample 3d {mode} {padding} {aligned}", f, [[1, 2, 3, 2, 3], [1, 2, 2, 1, 3]]
    for aligned, size in product((False, True), ([2, 3, 3, 4], [2, 3, 1, 4])):
        yield (
            f"affine_grid {size} {aligned}",
            lambda lib, theta, a=(size, aligned): lib.nn.functional.affine_grid(theta, *a),
            [[2, 2, 3]],
        )
    yield (
        "affine_grid 3d",
        lambda lib, t: lib.nn.functional.affine_grid(t, [1, 1, 2, 3, 2], False),
        [[1, 3, 4]],
    )


def bags() -> Iterator[Case]:
    for mode, padding, (offsets, last) in product(
        ("sum", "mean", "max"), (None, 2), (([0, 2, 2, 5], False), ([0, 2, 2, 8], True), ([0], False))
    ):

        def f(lib, weight, settings=(mode, padding, offsets, last)):
            mode, padding, offsets, last = settings
            index = lib.tensor([1, 2, 4, 5, 4, 3, 2, 2])
            return lib.nn.functional.embedding_bag(
                index, weight, lib.tensor(offsets), mode=mode, padding_idx=padding, include_last_offset=last
            )

        yield f"embedding_bag {mode} {padding} {offsets} {last}", f, [[6, 3]]

    def weighted(lib, weight, scales):
        index = lib.tensor([[1, 2], [4, 5]])
        return lib.nn.functional.embedding_bag(index, weight, mode="sum", per_sample_weights=scales)

    def empty(lib, weight):
        none = lib.tensor([], dtype=lib.int64)
        return lib.nn.functional.embedding_bag(none, weight, lib.tensor([0, 0]))

    yield "embedding_bag per_sample_weights", weighted, [[6, 3], [2, 2]]
    yield "embedding_bag of nothing", empty, [[6, 3]]


def sequences() -> Iterator[Case]:
    for name, directions, more in (
        ("LSTM", 1, {}),
        ("LSTM", 2, {"proj_size": 2}),
        ("GRU", 2, {}),
        ("RNN", 1, {}),
    ):

        def f(lib, *items, settings=(name, directions, more)):
            name, directions, more = settings
            pack = lib.nn.utils.rnn
            m = getattr(lib.nn, name)(3, 4, 2, bidirectional=directions == 2, **more).double()
            for k, p in enumerate(m.parameters()):
                p.data.copy_(spread(lib, list(p.shape), k) * 0.4)
            y, state = m(pack.pack_sequence(list(items), enforce_sorted=False))
            padded, lengths = pack.pad_packed_sequence(
                y, batch_first=True, padding_value=-1.0, total_length=6
            )
            return [padded, lengths.double(), *flat(state)]

        yield f"packed {name} {directions} {more}", f, [[2, 3], [5, 3], [3, 3]]


def second_derivatives() -> Iterator[Case]:
    def twice(f):
        def g(lib, x):
            y = f(lib.nn.functional, x)
            (dx,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
            return dx

        return g

    cases = {
        "bilinear": (lambda F, x: F.interpolate(x, size=7, mode="bilinear"), [1, 1, 3, 4]),
        "antialias": (lambda F, x: F.interpolate(x, size=2, mode="bicubic", antialias=True), [1, 1, 5, 4]),
        "unfold": (lambda F, x: F.unfold(x, 2, padding=1), [1, 1, 3, 4]),
        "avg_pool3d": (lambda F, x: F.avg_pool3d(x, 2), [1, 1, 4, 4, 4]),
        "conv3d": (lambda F, x: F.conv3d(x, x[:1, :, :2, :2, :2]), [1, 1, 3, 3, 3]),
        "conv_transpose3d": (
            lambda F, x: F.conv_transpose3d(x, x[:1, :, :2, :2, :2], stride=2),
            [1, 1, 3, 3, 3],
        ),
    }
    for name, (f, shape) in cases.items():
        yield f"second derivative of {name}", twice(f), [shape]


CASES: list[Case] = [
    *interpolations(),
    *samplings(),
    *bags(),
    *sequences(),
    *second_derivatives(),
]


def results(lib, f: Callable, shapes: list) -> dict:
    """Results in float64 and the gradients of the first one."""
    given = [spread(lib, shape, 3 * k).requires_grad_() for k, shape in enumerate(shapes)]
    ys = flat(f(lib, *given))
    (ys[0] * spread(lib, list(ys[0].shape), 5)).sum().backward()
    return {
        "results": [[list(y.shape), numbers(y)] for y in ys],
        "gradients": [None if x.grad is None else numbers(x.grad) for x in given],
    }


def byte_images() -> Iterator[tuple[str, dict, list]]:
    """Interpolations of bytes: (name, settings of interpolate, shape)."""
    to = [{"size": 3}, {"size": (7, 2)}, {"size": 12}, {"scale_factor": (0.41, 1.7)}]
    to += [{"scale_factor": (1.3, 0.6), "recompute_scale_factor": True}]
    for mode, how, aligned, antialias in product(("bilinear", "bicubic"), to, (False, True), (False, True)):
        settings = {**how, "mode": mode, "align_corners": aligned, "antialias": antialias}
        yield f"bytes {settings}", settings, [2, 2, 9, 8]


def interpolated_bytes(lib, settings: dict, shape: list) -> list:
    """All kinds of neighbours: steps, extremes and flat parts."""
    n = 1
    for s in shape:
        n *= s
    k = lib.arange(n)
    x = ((k * k * 37 + k // 5 * 91) % 256).to(lib.uint8).reshape(shape)
    x[0, 0, :, :3] = 255
    x[1, 1, 4:] = 0
    y = lib.nn.functional.interpolate(x, **settings)
    return [list(y.shape), y.reshape(-1).tolist()]
