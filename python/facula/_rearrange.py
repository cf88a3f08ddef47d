"""Permutes, splits and joins dimensions by a pattern in the notation of einops."""

from __future__ import annotations

import math
from typing import Any

from . import _C

__all__ = ["rearrange"]

Tensor = _C.Tensor
_REST = "..."
_BARE = [_REST]  # the ellipsis as separate dimensions, in contrast to "(...)"


def _axis(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"Invalid axis identifier: {name}\nnot a valid python identifier")
    if name[0] == "_" or name[-1] == "_":
        raise ValueError(
            f"Invalid axis identifier: {name}\naxis name should should not start or end with underscore"
        )
    return name


def _tokens(text: str) -> list[str]:
    words: list[str] = []
    word = ""
    for c in text.replace(_REST, "\u2026") + " ":
        if c.isalnum() or c == "_":
            word += c
            continue
        if word:
            words.append(word)
            word = ""
        if c in "()\u2026":
            words.append(c)
        elif c != " ":
            raise ValueError(f"Unknown character '{c}'")
    return words


def _parsed(text: str) -> list[list[str]]:
    """Returns the dimensions of one side, each as the list of its axes."""
    dimensions: list[list[str]] = []
    inside: list[str] | None = None
    names: set[str] = set()
    for t in _tokens(text):
        if t == "(":
            if inside is not None:
                raise ValueError("Axis composition is one-level (brackets inside brackets not allowed)")
            inside = []
            continue
        if t == ")":
            if inside is None:
                raise ValueError("Brackets are not balanced")
            dimensions.append(inside)
            inside = None
            continue
        if t == "1":
            if inside is None:
                dimensions.append([])
            continue
        if t.isdecimal():
            raise ValueError("rearrange only supports unnamed axes of size 1")
        name = _REST if t == "\u2026" else _axis(t)
        if name in names:
            if name == _REST:
                raise ValueError(f"Expression may contain only one ellipsis inside {text!r}")
            raise ValueError(f"Indexing expression contains duplicate dimension '{name}'")
        names.add(name)
        if inside is not None:
            inside.append(name)
        else:
            dimensions.append(_BARE if name == _REST else [name])
    if inside is not None:
        raise ValueError(f"Imbalanced parentheses in expression: '{text}'")
    return dimensions


def _sizes(left: list[list[str]], shape: Any, lengths: dict[str, int]) -> dict[str, int]:
    """Returns the length of each axis."""
    resolved = dict(lengths)
    for axes, size in zip(left, shape):
        open_axes = [a for a in axes if a not in resolved]
        product = math.prod(resolved[a] for a in axes if a in resolved)
        if len(open_axes) > 1:
            raise ValueError(
                f"cannot infer the sizes of {len(open_axes)} dimensions at once: {' '.join(open_axes)}"
            )
        if open_axes:
            if product == 0 or size % product:
                raise ValueError(
                    f"inferred dimension does not evenly fit into larger dimension: {size} is no "
                    f"multiple of {product}"
                )
            resolved[open_axes[0]] = size // product
        elif product != size:
            raise ValueError(
                f"expected a dimension of size {product} ({' '.join(axes) or '1'}), but got {size}"
            )
    return resolved


def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Tensor:
    """Returns the tensor with its dimensions permuted, split and joined by the pattern; a list of tensors
    is stacked first.

    >>> tuple(facula.func.rearrange(facula.ones(2, 3, 8), "b c (h w) -> (b h) w c", h=2).shape)
    (4, 4, 3)
    """
    if not isinstance(tensor, Tensor):
        tensor = _C.functions.stack(list(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError("Pattern must contain a single '->' separator")
    left, right = map(_parsed, sides)
    names = [{a for axes in side for a in axes} for side in (left, right)]
    if any(_REST in axes and axes is not _BARE for axes in left):
        raise ValueError(f"Ellipsis is parenthesis in the left side is not allowed: {pattern}")
    if _REST in names[1] - names[0]:
        raise ValueError(f"Ellipsis found in right side, but not left side of a pattern {pattern}")
    if names[0] != names[1]:
        raise ValueError(
            f"Identifiers only on one side of rearrange expression (should be on both): {names[0] ^ names[1]}"
        )
    unknown = set(axes_lengths) - names[0]
    if unknown:
        raise ValueError(f"Identifiers not found in rearrange expression: {unknown}")
    rest = tensor.dim() - len([axes for axes in left if _REST not in axes])
    if rest < 0 or (rest and _REST not in names[0]):
        raise ValueError(
            f"Number of dimensions in pattern ({len(left)}) must be equal to the number of dimensions "
            f"in the tensor "
            f"({tensor.dim()})"
        )
    numbered = [f"{_REST}{k}" for k in range(rest)]
    left = [new for axes in left for new in ([[n] for n in numbered] if _REST in axes else [axes])]
    spread = [[n for a in axes for n in (numbered if a == _REST else [a])] for axes in right]
    bare = [axes is _BARE for axes in right]
    right = [new for axes, alone in zip(spread, bare) for new in ([[n] for n in axes] if alone else [axes])]
    lengths = _sizes(left, tensor.shape, axes_lengths)
    flat = [a for axes in left for a in axes]
    order = [flat.index(a) for axes in right for a in axes]
    split = tensor.reshape([lengths[a] for a in flat])
    return split.permute(order).reshape([math.prod(lengths[a] for a in axes) for axes in right])
