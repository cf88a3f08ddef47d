"""8-bit networks: their layers, and the computations of inference and of a training step.

A tensor of a network is int8, NHWC, and stands for ``(q - zero) * scale``. Each layer has a
*surrogate*: the layer on floating-point tensors that hold the integers less their zero points. The
surrogate's gradient, which the tape derives from the definitions of the operators, is the gradient of the
layer; its values are not computed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import _C
from ..autograd import Function, grad

Tensor = _C.Tensor
_f = _C.functions
LOW, HIGH = -128, 127


@dataclass(frozen=True)
class Scale:
    """The numbers that int8 integers stand for."""

    scale: float
    zero: int

    @staticmethod
    def of_range(low: float, high: float) -> Scale:
        """The scale for numbers between two limits; 0 is represented exactly."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = max((high - low) / (HIGH - LOW), 1e-8)
        return Scale(scale, min(HIGH, max(LOW, round(LOW - low / scale))))

    def quantize(self, x: Tensor) -> Tensor:
        return (x / self.scale).round().add(self.zero).clamp(LOW, HIGH).to(_C.int8)


class Activation:
    """A tensor of a network while its computation is recorded."""

    def __init__(self, q: Tensor, scale: Scale, surrogate: Tensor | None) -> None:
        self.q, self.scale, self.surrogate = q, scale, surrogate

    def centred(self) -> Tensor:
        """The integers less the zero point, as floats."""
        return self.q.to(_C.float32) - self.scale.zero

    def carrier(self) -> Tensor:
        """The same; gradients pass through it if some layer before is trained."""
        return self.centred() if self.surrogate is None else self.surrogate


class _Saturated(Function):
    """Integers of a layer with the gradient of its surrogate, which is 0 for integers at a limit."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, q: Tensor, zero: int, stores_bits: bool) -> Tensor:
        ctx.save_for_backward(_bits(q) if stores_bits else q)
        ctx.stores_bits, ctx.channels = stores_bits, q.shape[3]
        return q.to(_C.float32) - zero

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        (saved,) = ctx.saved_tensors
        inside = _unpacked(saved, ctx.channels) if ctx.stores_bits else _inside(saved)
        return grad * inside.to(_C.float32), None, None, None


def _inside(q: Tensor) -> Tensor:
    return (q > LOW) & (q < HIGH)


def _bits(q: Tensor) -> Tensor:
    """One bit for each integer, whether it is within the limits: a byte for eight channels."""
    n, h, w, c = q.shape
    groups = q.reshape(n, h, w, c // 8, 8)
    powers = _f.full((8,), 1, dtype=_C.int32) << _f.arange(8, dtype=_C.int32)
    return (_inside(groups).to(_C.int32) * powers).sum(4, dtype=_C.int32).to(_C.uint8)


def _unpacked(bits: Tensor, channels: int) -> Tensor:
    channel = _f.arange(channels)
    each = bits.index_select(3, channel // 8).to(_C.int32)
    return (each >> (channel % 8).to(_C.int32)) & 1


def _saturated(pre: Tensor, zero: int) -> Tensor:
    return (pre.round() + zero).clamp(LOW, HIGH).to(_C.int8)


def _nchw(x: Tensor) -> Tensor:
    return x.permute(0, 3, 1, 2)


def _nhwc(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


@dataclass
class Update:
    """The trained parameters: biases and weights of convolutions by their names, and the classifier."""

    bias: frozenset[str] = frozenset()
    weights: Mapping[str, float] = field(default_factory=dict)  # the part of the input channels, 0 < r <= 1
    classifier: bool = True
    channels: dict[str, Tensor] = field(default_factory=dict)  # the input channels of layers with r < 1

    def trains(self, layer: str) -> bool:
        return layer in self.bias or layer in self.weights


@dataclass
class Conv:
    """A convolution with its rectifier, which is the saturation."""

    name: str
    source: str
    weight: Tensor  # int8 [out, in / groups, height, width]
    bias: Tensor  # int32, in steps of the product of the two scales
    weight_scale: Tensor  # float32 [out]
    in_scale: Scale
    out_scale: Scale
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    line: str = ""

    def __post_init__(self) -> None:
        self.multiplier = self.weight_scale * (self.in_scale.scale / self.out_scale.scale)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    def trained_channels(self, ratio: float) -> Tensor:
        """The input channels with the largest sums of magnitudes, in ascending order."""
        if self.groups != 1:
            raise ValueError(
                f"layer {self.name} has groups, so all of its weights are trained or none, not {ratio}"
            )
        of_input = self.weight.to(_C.float32).abs().sum((0, 2, 3))
        count = max(1, round(ratio * of_input.numel()))
        return of_input.topk(count).indices.sort().values

    def forward(self, x: Activation) -> Tensor:
        bias = self.bias.to(_C.float32) * self.multiplier
        y = _f._int8_conv2d(
            _nchw(x.q),
            self.weight,
            self.multiplier,
            bias,
            x.scale.zero,
            self.out_scale.zero,
            False,
            _C.int8,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
        )
        return _nhwc(y)

    def __call__(self, run: Run) -> Activation:
        x = run.values[self.source]
        q = self.forward(x)
        if not run.update.trains(self.name) and x.surrogate is None:
            return Activation(q, self.out_scale, None)
        weight, bias = self.weight.to(_C.float32), self.bias.to(_C.float32)
        if self.name in run.update.bias:
            bias = run.leaf(self, "bias", bias)
        ratio = run.update.weights.get(self.name, 0.0)
        if ratio == 1:
            weight = run.leaf(self, "weight", weight)
        window = (self.stride, self.padding, self.dilation, self.groups)
        sums = _f.conv2d(_nchw(x.carrier()), weight, bias, *window)
        if 0 < ratio < 1:
            chosen = run.update.channels[self.name]
            part = _nchw(x.q.index_select(3, chosen).to(_C.float32) - x.scale.zero)
            change = run.leaf(self, "part", self.weight.index_select(1, chosen).to(_C.float32))
            sums = sums + _f.conv2d(part, change, None, *window)
        surrogate = _nhwc(sums) * self.multiplier
        return run.activation(self, q, surrogate)


@dataclass
class Add:
    """The sum of two tensors."""

    name: str
    source: str
    other: str
    out_scale: Scale
    line: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source, self.other)

    def __call__(self, run: Run) -> Activation:
        operands = [run.values[s] for s in self.sources]
        factors = [x.scale.scale / self.out_scale.scale for x in operands]
        pre = operands[0].centred() * factors[0] + operands[1].centred() * factors[1]
        q = _saturated(pre, self.out_scale.zero)
        if all(x.surrogate is None for x in operands):
            return Activation(q, self.out_scale, None)
        surrogate = operands[0].carrier() * factors[0] + operands[1].carrier() * factors[1]
        return run.activation(self, q, surrogate)


@dataclass
class Mean:
    """The mean of each channel, rounded; scale and zero point are those of the operand."""

    name: str
    source: str
    line: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    def __call__(self, run: Run) -> Activation:
        x = run.values[self.source]
        q = _saturated(x.centred().mean((1, 2), keepdim=True), x.scale.zero)
        surrogate = (
            None
            if x.surrogate is None
            else _Rounded.apply(x.surrogate.mean((1, 2), keepdim=True), q, x.scale.zero)
        )
        return Activation(q, x.scale, surrogate)


class _Rounded(Function):
    """Integers of a layer with the gradient of its surrogate, for layers that do not saturate."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, q: Tensor, zero: int) -> Tensor:
        return q.to(_C.float32) - zero

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        return grad, None, None


@dataclass
class Linear:
    """The classifier, float32 on the numbers that the integers stand for."""

    name: str
    source: str
    weight: Tensor
    bias: Tensor
    line: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    def __call__(self, run: Run) -> Tensor:
        x = run.values[self.source]
        features = x.carrier().flatten(1) * x.scale.scale
        weight, bias = self.weight, self.bias
        if run.update.classifier:
            weight, bias = run.leaf(self, "weight", weight), run.leaf(self, "bias", bias)
        return _f.linear(features, weight, bias)


Layer = Conv | Add | Mean | Linear


class Run:
    """The computation of a network on one input, and the leaves whose gradients a training step needs."""

    def __init__(self, network: Network, update: Update) -> None:
        self.update, self.values = update, dict[str, Activation]()
        self.leaves: list[tuple[Layer, str, Tensor]] = []
        # layers whose integers the gradient of a weight reads, so that they need no bits
        self.needed = {s for n in network.layers if update.weights.get(n.name) == 1 for s in n.sources}

    def leaf(self, layer: Layer, what: str, value: Tensor) -> Tensor:
        tensor = value.clone().detach().requires_grad_()
        self.leaves.append((layer, what, tensor))
        return tensor

    def activation(self, layer: Layer, q: Tensor, surrogate: Tensor) -> Activation:
        stores_bits = layer.name not in self.needed and q.shape[3] % 8 == 0
        scale = layer.out_scale  # type: ignore[union-attr]
        return Activation(q, scale, _Saturated.apply(surrogate, q, scale.zero, stores_bits))


@dataclass
class Network:
    """Layers in the order of computation; the last one is the classifier."""

    in_scale: Scale
    input_shape: tuple[int, ...]  # NHWC
    layers: list[Layer]

    INPUT = "input"

    @property
    def convs(self) -> list[Conv]:
        return [n for n in self.layers if isinstance(n, Conv)]

    @property
    def classifier(self) -> Linear:
        last = self.layers[-1]
        assert isinstance(last, Linear)
        return last

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by names."""
        named = {}
        for n in self.layers:
            for what in ("weight", "bias", "multiplier"):
                if hasattr(n, what):
                    named[f"{n.name}.{what}"] = getattr(n, what)
        return named

    def copy(self) -> Network:
        """A network with copies of the parameters."""
        layers = [
            dataclasses.replace(n, weight=n.weight.clone(), bias=n.bias.clone())
            if isinstance(n, (Conv, Linear))
            else n
            for n in self.layers
        ]
        return Network(self.in_scale, self.input_shape, layers)

    def run(self, x: Tensor, update: Update) -> tuple[Tensor, Run]:
        """The logits for int8 images, NHWC."""
        run = Run(self, update)
        run.values[self.INPUT] = Activation(x, self.in_scale, None)
        for layer in self.layers[:-1]:
            run.values[layer.name] = layer(run)  # type: ignore[assignment]
        return self.classifier(run), run

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors for one image, NHWC."""
        run = self.run(_f.zeros(self.input_shape, dtype=_C.int8), Update(classifier=False))[1]
        return {name: tuple(x.q.shape) for name, x in run.values.items()}

    def logits(self, x: Tensor) -> Tensor:
        return self.run(x, Update(classifier=False))[0]

    def step(
        self, x: Tensor, labels: Tensor, rate: Tensor | float, update: Update, *, scaled: bool = True
    ) -> Tensor:
        """A step of gradient descent; returns the loss. ``scaled``: with quantisation-aware scaling."""
        logits, run = self.run(x, update)
        loss = _f.cross_entropy(logits, labels)
        gradients = grad([loss], [leaf for _, _, leaf in run.leaves])
        for (layer, what, _), g in zip(run.leaves, gradients):
            self._apply(layer, what, g * rate, update, scaled)
        return loss

    def chosen(self, update: Update) -> Update:
        """The update with the channels of partly trained layers."""
        convs = {n.name: n for n in self.convs}
        for name in [*update.bias, *update.weights]:
            if name not in convs:
                raise ValueError(f"the network has no convolution {name!r}; it has {', '.join(convs)}")
        parts = {name: r for name, r in update.weights.items() if r < 1}
        channels = {name: convs[name].trained_channels(r) for name, r in parts.items()}
        return dataclasses.replace(update, channels=channels)

    @staticmethod
    def _apply(layer: Layer, what: str, change: Tensor, update: Update, scaled: bool) -> None:
        if isinstance(layer, Linear):
            parameter = getattr(layer, what)
            parameter.copy_(parameter - change)
            return
        assert isinstance(layer, Conv)
        s = layer.multiplier * (layer.out_scale.scale / layer.in_scale.scale)  # the scales of the weights
        if what == "bias":
            steps = change * (1 / (s * layer.in_scale.scale) ** 2) if scaled else change
            limit = float(1 << 30)
            layer.bias.copy_(layer.bias - steps.round().clamp(-limit, limit).to(_C.int32))
            return
        if scaled:
            change = change * (1 / s**2).reshape(-1, 1, 1, 1)
        chosen = None if what == "weight" else update.channels[layer.name]
        former = layer.weight if chosen is None else layer.weight.index_select(1, chosen)
        new = (former.to(_C.float32) - change).round().clamp(LOW, HIGH).to(_C.int8)
        layer.weight.copy_(new if chosen is None else layer.weight.index_copy(1, chosen, new))
