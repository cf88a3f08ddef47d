"""From a model in floating point to an 8-bit network: tracing gives the layers, typical data the scales."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from typing import Any

from .. import _C, fx, nn
from ..autograd import no_grad
from ..nn import functional as nf
from ._network import Add, Conv, Layer, Linear, MaxPool, Mean, Network, Scale

Tensor = _C.Tensor
_RECTIFIERS = (nn.ReLU, nn.ReLU6, nn.Hardtanh)
_RECTIFYING = (nf.relu, nf.relu6, _C.functions.relu, "relu", "relu_")
_NOTHING = (nn.Identity, nn.Dropout, nn.Dropout2d, nn.Flatten)
_SUPPORTED = (
    "Conv2d with BatchNorm2d and ReLU or ReLU6; Linear with ReLU or ReLU6; MaxPool2d; sums of two tensors; "
    "the mean of each channel (AdaptiveAvgPool2d(1), mean((2, 3))); flatten; Dropout; a Linear at the end"
)


class _Tracer(fx.Tracer):
    record_stack_traces = True


class _Ranges(fx.Interpreter):
    """Runs a model and widens the range of each of its tensors."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.ranges: dict[fx.Node, tuple[float, float]] = {}
        self.shapes: dict[fx.Node, tuple[int, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        y = super().run_node(n)
        if isinstance(y, Tensor) and y.dtype == _C.float32:
            low, high = y.min().item(), y.max().item()
            if not (math.isfinite(low) and math.isfinite(high)):
                raise ValueError(f"tiny.compile: {n.name} has values that are not finite{_line(n)}")
            former = self.ranges.get(n, (low, high))
            self.ranges[n] = (min(low, former[0]), max(high, former[1]))
            self.shapes[n] = tuple(y.shape)
        return y


def _line(n: fx.Node) -> str:
    """The user's line that a node comes from, for messages."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in \S+\n\s*(.*)', n.stack_trace or "")
    own = [f for f in frames if "/facula/nn/" not in f[0] and "/facula/fx/" not in f[0]]
    if not own:
        return ""
    file, line, text = own[-1]
    return f" ({file}, line {line}: {text.strip()})"


class _Quantizer:
    """Walks the nodes of a traced model in order, and appends the layers of the network."""

    def __init__(self, traced: fx.GraphModule, ranges: _Ranges) -> None:
        self.modules, self.ranges = dict(traced.named_modules()), ranges
        self.layers: list[Layer] = []
        self.names: dict[fx.Node, str] = {}  # by node: the layer that computes it
        self.scales: dict[str, Scale] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}  # by layer: channels, height, width
        self.classifier = next(n for n in traced.graph.nodes if n.op == "output").args[0]
        for n in traced.graph.nodes:
            if n not in self.names:
                self.node(n)

    def node(self, n: fx.Node) -> None:
        if n.op == "placeholder":
            if self.names:
                raise NotImplementedError(
                    f"tiny.compile expects a model of one input, but {n.name} is another one"
                )
            self.names[n] = Network.INPUT
            self.scales[Network.INPUT] = Scale.of_range(*self.ranges.ranges[n])
            self.shapes[Network.INPUT] = (*self.ranges.shapes[n][1:], 1, 1)[:3]
        elif n.op == "output":
            if (
                not self.layers
                or not isinstance(self.layers[-1], Linear)
                or self.names[n.args[0]] != self.layers[-1].name
            ):  # type: ignore[index]
                raise NotImplementedError(
                    "tiny.compile expects a model that ends with a Linear layer, its classifier"
                )
        elif n.op == "call_module":
            self.module(n, self.modules[str(n.target)])
        else:
            self.function(n)

    def module(self, n: fx.Node, m: Any) -> None:
        if isinstance(m, nn.Conv2d):
            self.conv(n, m)
        elif isinstance(m, nn.Linear):
            self.linear(n, m)
        elif isinstance(m, nn.MaxPool2d) and not m.return_indices:
            source = self.names[n.args[0]]  # type: ignore[index]
            window = (_pair(k) for k in (m.kernel_size, m.stride, m.padding, m.dilation))
            self.append(n, MaxPool(n.name, source, *window, m.ceil_mode))
            self.scales[n.name] = self.scales[source]
        elif isinstance(m, _NOTHING):
            self.names[n] = self.names[n.args[0]]  # type: ignore[index]
        elif isinstance(m, nn.AdaptiveAvgPool2d) and m.output_size in (1, (1, 1)):
            self.mean(n)
        else:
            self.refuse(n, type(m).__name__)

    def function(self, n: fx.Node) -> None:
        if n.target in (operator.add, operator.iadd, _C.functions.add, "add", "add_"):
            self.add(n)
        elif n.target in (_C.functions.flatten, "flatten"):
            self.names[n] = self.names[n.args[0]]  # type: ignore[index]
        elif n.target in (nf.dropout,):
            self.names[n] = self.names[n.args[0]]  # type: ignore[index]
        elif n.target in (_C.functions.mean, "mean") and tuple(
            n.args[1] if len(n.args) > 1 else n.kwargs.get("dim", ())
        ) in (
            (2, 3),
            (-2, -1),
        ):
            self.mean(n)
        elif n.target is nf.adaptive_avg_pool2d and n.args[1] in (1, (1, 1)):
            self.mean(n)
        else:
            self.refuse(
                n, n.target if isinstance(n.target, str) else getattr(n.target, "__name__", str(n.target))
            )

    def refuse(self, n: fx.Node, what: Any) -> None:
        raise NotImplementedError(f"tiny.compile has no 8-bit form of {what}{_line(n)}; it has {_SUPPORTED}")

    def append(self, n: fx.Node, layer: Layer) -> None:
        layer.line = _line(n)
        self.layers.append(layer)
        self.names[n] = layer.name
        self.shapes[layer.name] = (*self.ranges.shapes[n][1:], 1, 1)[:3]

    def linear(self, n: fx.Node, m: nn.Linear) -> None:
        """The classifier, or a convolution whose window is the whole operand."""
        source = self.names[n.args[0]]  # type: ignore[index]
        shape = self.shapes[source]
        if len(self.ranges.shapes[n]) != 2:
            self.refuse(n, f"Linear on a tensor of shape {list(self.ranges.shapes[n.args[0]])}")  # type: ignore[index]
        bias = _C.functions.zeros(m.out_features) if m.bias is None else m.bias.detach().clone()
        weight = m.weight.detach().reshape(m.out_features, *shape)
        if n is self.classifier:
            rows = weight.permute(0, 2, 3, 1).reshape(m.out_features, -1).clone()  # tensors are NHWC
            self.append(n, Linear(str(n.target), source, rows, bias))
        else:
            self.product(n, source, weight, bias, ((1, 1), (0, 0), (1, 1), 1))

    def mean(self, n: fx.Node) -> None:
        source = self.names[n.args[0]]  # type: ignore[index]
        self.append(n, Mean(n.name, source))
        self.scales[n.name] = self.scales[source]

    def add(self, n: fx.Node) -> None:
        if not all(isinstance(a, fx.Node) for a in n.args[:2]) or n.kwargs:
            self.refuse(n, "a sum with a number")
        last, rectified = self.rectifier(n)
        self.append(
            n, Add(n.name, *(self.names[a] for a in n.args[:2]), out_scale=self.scale(last, rectified))
        )  # type: ignore[index]
        self.names[last] = self.names[n]
        self.scales[n.name] = self.layers[-1].out_scale  # type: ignore[union-attr]

    def scale(self, n: fx.Node, rectified: bool) -> Scale:
        low, high = self.ranges.ranges[n]
        return Scale.of_range(0.0 if rectified else low, high)

    def only_user(self, n: fx.Node) -> fx.Node | None:
        return next(iter(n.users)) if len(n.users) == 1 else None

    def rectifier(self, n: fx.Node) -> tuple[fx.Node, bool]:
        """The rectifier that alone reads a node, and whether there is one; the node otherwise."""
        user = self.only_user(n)
        if user is None:
            return n, False
        if user.op == "call_module":
            m = self.modules[str(user.target)]
            rectifies = isinstance(m, _RECTIFIERS) and getattr(m, "min_val", 0) == 0
        else:
            rectifies = user.target in _RECTIFYING
        if rectifies:
            self.names[user] = ""  # named by the caller
        return (user, True) if rectifies else (n, False)

    def conv(self, n: fx.Node, m: nn.Conv2d) -> None:
        if m.padding_mode != "zeros" or isinstance(m.padding, str):
            self.refuse(n, f"Conv2d with padding {m.padding!r} of mode {m.padding_mode!r}")
        weight = m.weight.detach()
        bias = _C.functions.zeros(m.out_channels) if m.bias is None else m.bias.detach()
        last, user = n, self.only_user(n)
        if (
            user is not None
            and user.op == "call_module"
            and isinstance(self.modules[str(user.target)], nn.BatchNorm2d)
        ):
            weight, bias = _folded(weight, bias, self.modules[str(user.target)])
            last = user
        window = (tuple(m.stride), tuple(m.padding), tuple(m.dilation), m.groups)
        self.product(n, self.names[n.args[0]], weight, bias, window, last)  # type: ignore[index]

    def product(
        self,
        n: fx.Node,
        source: str,
        weight: Tensor,
        bias: Tensor,
        window: tuple[Any, ...],
        folded: fx.Node | None = None,
    ) -> None:
        """Appends a convolution; ``folded``: the node of its batch norm."""
        folded = folded or n
        last, rectified = self.rectifier(folded)
        scale = self.scale(last, rectified)
        layer = quantized_conv(str(n.target), source, weight, bias, self.scales[source], scale, window)
        self.append(n, layer)
        for other in (folded, last):
            self.names[other] = layer.name
        self.scales[layer.name] = layer.out_scale


def _pair(k: Any) -> tuple[int, int]:
    return (k, k) if isinstance(k, int) else (k[0], k[1])


def _folded(weight: Tensor, bias: Tensor, bn: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weights and bias of a convolution that also normalises."""
    mean, var = bn.running_mean, bn.running_var
    factor = (var + bn.eps).rsqrt()
    if bn.affine:
        factor = factor * bn.weight.detach()
    shift = bn.bias.detach() if bn.affine else 0.0
    return weight * factor.reshape(-1, 1, 1, 1), (bias - mean) * factor + shift


def quantized_conv(
    name: str,
    source: str,
    weight: Tensor,
    bias: Tensor,
    in_scale: Scale,
    out_scale: Scale,
    window: tuple[Any, ...],
) -> Conv:
    """The layer of 8-bit integers; ``window``: stride, padding, dilation and groups."""
    largest = weight.abs().amax((1, 2, 3)).clamp(min=1e-8)
    weight_scale = largest / 127
    limit = float(1 << 30)
    steps = (bias / (weight_scale * in_scale.scale)).round().clamp(-limit, limit)
    integers = (weight / weight_scale.reshape(-1, 1, 1, 1)).round().clamp(-127, 127)
    return Conv(
        name,
        source,
        integers.to(_C.int8).contiguous(),
        steps.to(_C.int32),
        weight_scale,
        in_scale,
        out_scale,
        *window,
    )


def quantize(model: nn.Module, data: Iterable[Any]) -> Network:
    """The 8-bit network of a model that was trained in floating point.

    Args:
        model: convolutions, batch norms, rectifiers, sums, the mean of each channel, and a linear classifier.
        data: typical batches of images, NCHW, or of rows of numbers, or of (images, ...): they determine the
            scales of the tensors.
    """
    was_training = model.training
    model.eval()
    try:
        traced = fx.GraphModule(model, _Tracer().trace(model))
        ranges = _Ranges(traced)
        shape: tuple[int, ...] | None = None
        with no_grad():
            for batch in data:
                x = batch[0] if isinstance(batch, (tuple, list)) else batch
                ranges.run(x)
                shape = tuple(x.shape)
    finally:
        model.train(was_training)
    if shape is None:
        raise ValueError("tiny.compile needs data: at least one batch of typical images")
    if len(shape) not in (2, 4):
        raise ValueError(
            "tiny.compile expects batches of images [N, C, H, W] or of rows [N, C], "
            f"but got shape {list(shape)}"
        )
    quantizer = _Quantizer(traced, ranges)
    channels, *size = quantizer.shapes[Network.INPUT]
    return Network(quantizer.scales[Network.INPUT], (1, *size, channels), quantizer.layers)
