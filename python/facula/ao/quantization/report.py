"""The accuracy that the layers of a quantised model lose, as ratios of signal to quantisation noise."""

from __future__ import annotations

import html
import math
from typing import Any, NamedTuple

from ... import _C, _quantized
from ..._modes import no_grad
from ...nn import Identity, Module
from ..nn.quantized.modules.utils import OutputParameters, WeightedQuantizedModule
from .quantize import _WHOLE, is_activation_post_process

__all__ = ["LayerNoise", "Report", "report"]

_MOST = 200.0  # decibels, for results that are equal


class LayerNoise(NamedTuple):
    """The noise of one layer.

    ``sqnr`` compares the results of both models, in decibels: it has the noise of all layers before. ``own``
    is that of the layer alone, which gets the float model's values; None if it cannot be run alone.
    """

    path: str
    kind: str
    sqnr: float
    own: float | None


def _sqnr(reference: Any, value: Any) -> float:
    """Returns 10 log10 of the energy of ``reference`` over that of the difference."""
    reference, value = reference.detach().double(), _quantized.real(value).detach().double()
    signal, noise = float(reference.square().sum()), float((reference - value).square().sum())
    if noise == 0:
        return _MOST
    return max(-_MOST, min(_MOST, 10 * math.log10(signal / noise))) if signal else -_MOST


class _Recorded(NamedTuple):
    path: str
    module: Module
    inputs: tuple
    output: Any


def _run(model: Module, inputs: tuple) -> tuple[list[_Recorded], Any]:
    """Returns what the leaves of a model took and gave, in the order of the calls, and the model's result."""
    calls: list[_Recorded] = []
    hooks = []
    for path, module in model.named_modules():
        if is_activation_post_process(module) or not _is_layer(module):
            continue

        def record(m: Module, taken: tuple, output: Any, path: str = path) -> None:
            calls.append(_Recorded(path, m, taken, output))

        hooks.append(module.register_forward_hook(record))
    try:
        with no_grad():
            result = model(*inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return calls, result


def _is_layer(module: Module) -> bool:
    """Returns whether a module is one layer: without parts but observers, fused, or with packed weights."""
    if isinstance(module, (*_WHOLE, OutputParameters, WeightedQuantizedModule)):
        return True
    return all(is_activation_post_process(child) for child in module.children())


def _own(call: _Recorded, inputs: tuple, reference: Any) -> float | None:
    """Returns the noise of a quantised layer that gets the float model's values."""
    if len(call.inputs) != 1 or len(inputs) != 1:
        return None
    taken, value = call.inputs[0], inputs[0]
    if _quantized.is_quantized(taken) and taken._parameters.axis is None:
        value = _quantized.requantized(value, taken._parameters)
    elif not isinstance(value, _C.Tensor):
        return None
    try:
        return _sqnr(reference, call.module(value))
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None


class Report:
    """The noise of all layers; ``str`` gives a table, ``svg`` a picture."""

    def __init__(self, layers: list[LayerNoise], output: float | None) -> None:
        self.layers, self.output = layers, output

    def worst(self, count: int = 3) -> list[LayerNoise]:
        """Returns the layers that add most noise of their own: those to leave in floating point first."""
        return sorted(self.layers, key=lambda n: n.sqnr if n.own is None else n.own)[:count]

    def __str__(self) -> str:
        width = max([len(n.path) for n in self.layers] + [5])
        kinds = max([len(n.kind) for n in self.layers] + [4])
        lines = [f"{'layer':<{width}}  {'kind':<{kinds}}  {'SQNR':>7}  {'own':>7}"]
        for n in self.layers:
            own = "" if n.own is None else f"{n.own:.1f}"
            lines.append(f"{n.path:<{width}}  {n.kind:<{kinds}}  {n.sqnr:>7.1f}  {own:>7}")
        if self.output is not None:
            lines.append(f"{'result':<{width}}  {'':<{kinds}}  {self.output:>7.1f}")
        names = ", ".join(n.path for n in self.worst())
        return "\n".join([*lines, f"decibels; most noise of their own: {names}"])

    def svg(self) -> str:
        """Returns a picture: for each layer a bar of its SQNR, and a mark for the layer alone."""
        row, left, scale = 22, 220, 5.0
        shown = [min(max(n.sqnr, 0.0), 80.0) for n in self.layers]
        height = row * (len(self.layers) + 2)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{height}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{left}" y="15">signal to quantization noise, decibels (line: the layer alone)</text>',
        ]
        for k, (n, length) in enumerate(zip(self.layers, shown)):
            y = row * (k + 1)
            colour = "#c0392b" if n.sqnr < 15 else "#e0a030" if n.sqnr < 25 else "#3a7d44"
            name = html.escape(n.path if len(n.path) < 32 else "…" + n.path[-31:])
            parts += [
                f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{name}</text>',
                f'<rect x="{left}" y="{y + 3}" width="{length * scale:.1f}" height="{row - 6}" '
                f'fill="{colour}"/>',
                f'<text x="{left + length * scale + 6:.1f}" y="{y + 15}">{n.sqnr:.1f}</text>',
            ]
            if n.own is not None:
                x = left + min(max(n.own, 0.0), 80.0) * scale
                parts.append(
                    f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 1}" y2="{y + row - 1}" '
                    'stroke="black" stroke-width="2"/>'
                )
        return "\n".join([*parts, "</svg>", ""])

    def save(self, path: str) -> None:
        """Writes the picture to a file."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.svg())


def report(model: Module, quantized: Module, *inputs: Any) -> Report:
    """Compares a float model and its quantised form layer by layer on some inputs.

    Layers correspond by their paths. A layer that was fused with others is compared with the result of the
    last of them, whose places in the quantised model have an Identity.

    Args:
        model: the float model, or the observed one, in evaluation mode.
        quantized: what ``convert``, ``convert_fx`` or ``quantize_dynamic`` returned for it.
        inputs: arguments of both.
    """
    calls, result = _run(quantized, inputs)
    float_calls, float_result = _run(model, inputs)
    references = {c.path: c for c in float_calls}
    layers = []
    for k, call in enumerate(calls):
        if isinstance(call.module, Identity) or not isinstance(call.output, _C.Tensor):
            continue
        reference = references.get(call.path)
        if reference is None:
            continue
        last = reference
        for following in calls[k + 1 :]:
            merged = references.get(following.path)
            if (
                not isinstance(following.module, Identity)
                or merged is None
                or isinstance(merged.module, Identity)
            ):
                break
            last = merged
        if not isinstance(last.output, _C.Tensor) or last.output.shape != call.output.shape:
            continue
        own = _own(call, reference.inputs, last.output)
        layers.append(LayerNoise(call.path, call.module._get_name(), _sqnr(last.output, call.output), own))
    if not layers:
        raise ValueError(
            "report: the models have no layers with the same paths and shapes\n"
            "  hint: pass the model that was quantized, and its quantized form"
        )
    both = isinstance(result, _C.Tensor) and isinstance(float_result, _C.Tensor)
    return Report(layers, _sqnr(float_result, result) if both else None)
