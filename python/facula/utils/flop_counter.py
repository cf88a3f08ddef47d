"""Counts the floating-point operations of a ``with`` block, by module and operator.

A multiplication and an addition count as 2. Matrix products, convolutions and attention are counted, with
their gradients; ``register_flop_formula`` adds others.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from math import prod
from typing import Any

from .. import _C
from .._ops import OpOverload, ops
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

aten = ops.aten

flop_registry: dict[Any, Callable[..., Any]] = {}
# Operators that are one operator in PyTorch, with the name under which their counts are reported.
_TOLD_AS = {
    "convolution_backward_input": "convolution_backward",
    "convolution_backward_weight": "convolution_backward",
    "convolution_backward_weight_bias": "convolution_backward",
    "_attention": "_scaled_dot_product_flash_attention",
    "_attention_backward": "_scaled_dot_product_flash_attention_backward",
}


def get_shape(i: Any) -> Any:
    """Returns the shape of a tensor, and anything else unchanged."""
    return i.shape if isinstance(i, _C.Tensor) else i


def shape_wrapper(f: Callable) -> Callable:
    """Wraps ``f`` so that it gets shapes in place of tensors, and the result's shape as ``out_shape``."""

    @functools.wraps(f)
    def of_shapes(*args: Any, out_val: Any = None, **kwargs: Any) -> Any:
        args, kwargs, out_shape = tree_map(get_shape, (args, kwargs, out_val))
        return f(*args, out_shape=out_shape, **kwargs)

    return of_shapes


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Callable], Callable]:
    """Decorates a function that returns the count for a call of these operators (``facula.ops.aten.mm``).
    It is called with the arguments, shapes in place of tensors, and ``out_shape``; with ``get_raw`` with
    the tensors themselves, and the result as ``out_val``.
    """

    def register(formula: Callable) -> Callable:
        counted = formula if get_raw else shape_wrapper(formula)

        def add(target: Any) -> None:
            if not hasattr(target, "overloads") and not callable(target):
                raise ValueError(
                    "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                    f"torch.ops.mylib.foo), got {target} which is of type {type(target)}"
                )
            if isinstance(target, OpOverload):
                raise ValueError(
                    "register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                    f"torch.ops.mylib.foo), got {target} which is of type {type(target)}"
                )
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[target] = counted

        for target in targets if isinstance(targets, (list, tuple)) else [targets]:
            add(target)
        return formula

    return register


@register_flop_formula(aten.mm)
def mm_flop(a_shape: Any, b_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Counts [m, k] times [k, n]."""
    (m, k), (k2, n) = a_shape, b_shape
    assert k == k2, f"matmul: inner dimensions must match (k == k2), got {k} and {k2}"
    return m * n * 2 * k


@register_flop_formula(aten.addmm)
def addmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Counts like mm: the addition is not counted."""
    return mm_flop(a_shape, b_shape)


@register_flop_formula(aten.bmm)
def bmm_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Counts [b, m, k] times [b, k, n]."""
    (b, m, k), (b2, k2, n) = a_shape, b_shape
    assert b == b2, f"bmm: batch dimensions must match, got {b} and {b2}"
    assert k == k2, f"bmm: inner dimensions must match (k == k2), got {k} and {k2}"
    return b * m * n * 2 * k


@register_flop_formula(aten.baddbmm)
def baddbmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """Counts like bmm: the addition is not counted."""
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(x_shape: Any, w_shape: Any, out_shape: Any, transposed: bool = False) -> int:
    """Counts a convolution without its bias, from the shapes of input, weight and result."""
    places = (x_shape if transposed else out_shape)[2:]
    out_channels, in_channels, *window = w_shape
    return prod(places) * prod(window) * out_channels * in_channels * x_shape[0] * 2


@register_flop_formula(aten.convolution)
def conv_flop(
    x_shape: Any,
    w_shape: Any,
    _bias: Any,
    _stride: Any,
    _padding: Any,
    _dilation: Any,
    transposed: Any,
    *args: Any,
    out_shape: Any = None,
    **kwargs: Any,
) -> int:
    return conv_flop_count(x_shape, w_shape, out_shape, transposed=transposed)


@register_flop_formula(aten.convolution_backward_input)
def _conv_input_flop(grad: Any, weight: Any, input_size: Any, *args: Any, **kwargs: Any) -> int:
    return conv_flop_count(input_size, weight, grad)


@register_flop_formula([aten.convolution_backward_weight, aten.convolution_backward_weight_bias])
def _conv_weight_flop(
    grad: Any,
    input: Any,
    weight_size: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    **kwargs: Any,
) -> int:
    # PyTorch counts as if each group read all channels.
    return conv_flop_count(input, weight_size, grad) * groups


def sdpa_flop_count(query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Counts attention: the two matrix products, without regard to masks."""
    b, h, s_q, d_q = query_shape
    _, h_k, s_k, _ = key_shape
    d_v = value_shape[-1]
    assert h % h_k == 0, f"sdpa: the heads of query, {h}, are no multiple of those of key, {h_k}"
    return bmm_flop((b * h, s_q, d_q), (b * h, d_q, s_k)) + bmm_flop((b * h, s_q, s_k), (b * h, s_k, d_v))


@register_flop_formula(aten._attention)
def sdpa_flop(
    query_shape: Any, key_shape: Any, value_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any
) -> int:
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Counts the gradients of attention: five products, because the scores are recomputed."""
    b, h, s_q, d_q = query_shape
    s_k, d_v = key_shape[2], value_shape[-1]
    scores = bmm_flop((b * h, s_q, d_q), (b * h, d_q, s_k))
    of_values = bmm_flop((b * h, s_q, d_v), (b * h, d_v, s_k)) + bmm_flop(
        (b * h, s_k, s_q), (b * h, s_q, d_v)
    )
    return scores + of_values + bmm_flop((b * h, s_q, s_k), (b * h, s_k, d_q)) * 2


@register_flop_formula(aten._attention_backward)
def sdpa_backward_flop(
    grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any, *args: Any, **kwargs: Any
) -> int:
    b, s_q, h, d_v = grad_out_shape  # layout of this operator: [batch, positions, heads, width]
    return sdpa_backward_flop_count((b, h, s_q, d_v), query_shape, key_shape, value_shape)


@register_flop_formula(aten._recurrence)
def _recurrence_flop(
    input_shape: Any,
    hx: Any,
    cx: Any,
    w_ih: Any,
    w_hh: Any,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any,
    *args: Any,
    **kwargs: Any,
) -> int:
    """Counts a recurrent layer in one direction: each row is multiplied by all weights."""
    return 2 * input_shape[0] * (prod(w_ih) + prod(w_hh) + (prod(w_hr) if w_hr else 0))


@register_flop_formula(aten._recurrence_backward)
def _recurrence_backward_flop(
    grad_output: Any,
    grad_h: Any,
    grad_c: Any,
    kept: Any,
    input_shape: Any,
    hx: Any,
    cx: Any,
    w_hh: Any,
    w_hr: Any,
    *args: Any,
    **kwargs: Any,
) -> int:
    """Counts the gradients of the states; products for the weights and the input are separate calls."""
    return 2 * input_shape[0] * (prod(w_hh) + (prod(w_hr) if w_hr else 0))


suffixes = ["", "K", "M", "B", "T"]


def get_suffix_str(number: int) -> str:
    """Returns the suffix that leaves 3 to 5 digits of a number."""
    return suffixes[max(0, min(len(suffixes) - 1, (len(str(number)) - 2) // 3))]


def convert_num_with_suffix(number: int, suffix: str) -> str:
    return f"{number / 1000 ** suffixes.index(suffix):.3f}{suffix}"


def convert_to_percent_str(num: int, denom: int) -> str:
    return "0%" if denom == 0 else f"{num / denom:.2%}"


class FlopCounterMode(TorchDispatchMode):
    """Counts the operations of the ``with`` block, and prints a table by module at its end, unless
    ``display=False``.

    ``depth`` is the number of module levels in the table; ``custom_mapping`` maps further operators to
    formulas.
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        super().__init__()
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.depth, self.display = depth, display
        self.mod_tracker = ModuleTracker()
        custom = custom_mapping or {}
        self.flop_registry = {
            **flop_registry,
            **{k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in custom.items()},
        }

    def get_total_flops(self) -> int:
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Returns the counts by module and operator."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Returns a table of the counts of modules and operators, and their shares of the total."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        suffix = get_suffix_str(total)
        rows: list[list[str]] = []

        def add(name: str, level: int) -> None:
            counts = self.flop_counts[name]
            count = sum(counts.values())
            lines: list[tuple[str, int]] = [(name, count), *((f" - {k}", v) for k, v in counts.items())]
            for text, n in lines:
                rows.append(
                    [" " * level + text, convert_num_with_suffix(n, suffix), convert_to_percent_str(n, total)]
                )

        names = sorted(n for n in self.flop_counts if n != "Global" and n.count(".") + 1 <= depth)
        inside = any(sum(self.flop_counts[n].values()) >= total for n in names if "." not in n)
        if not inside or not names:
            add("Global", 0)
        for name in names:
            add(name, name.count(".") + (0 if inside else 1))
        return _drawn(["Module", "FLOP", "% Total"], rows or [["Global", "0", "0%"]])

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        self.mod_tracker.__exit__(*exc)
        if self.display:
            print(self.get_table())

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        return self._count_flops(func._overloadpacket, out, args, kwargs)

    def _count_flops(self, packet: Any, out: Any, args: tuple, kwargs: dict) -> Any:
        if packet in self.flop_registry:
            count = self.flop_registry[packet](*args, **kwargs, out_val=out)
            told = _TOLD_AS.get(packet.__name__)
            key = packet if told is None else f"aten.{told}"
            for parent in self.mod_tracker.parents:
                self.flop_counts[parent][key] += count
        return out


def _drawn(header: list[str], rows: list[list[str]]) -> str:
    """Formats a table as text; columns of numbers are right-aligned."""
    widths = [max(len(r[k]) for r in [header, *rows]) for k in range(len(header))]

    def line(cells: list[str]) -> str:
        first, *rest = cells
        return "  ".join([first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:]))]).rstrip()

    return "\n".join([line(header), "  ".join("-" * w for w in widths), *map(line, rows)])
