"""8-bit networks: their layers, and the computations of inference and of a training step.

A tensor of a network is int8, NHWC, and stands for ``(q - zero) * scale``. Each layer has a
*surrogate*: the layer on floating-point tensors that hold the integers less their zero points. The
surrogate's gradient, which the tape derives from the definitions of the operators, is the gradient of the
layer; its values are not computed.
"""

from __future__ import annotations

import dataclasses
import math
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


def _dither(sizes: Any, number: Tensor, parameter: int) -> Tensor:
    """Numbers from -1/2 to 1/2: hashes of the position, the parameter and the number of the step."""
    mask = (1 << 32) - 1
    count = math.prod(sizes)
    x = (_f.arange(count) + (number & mask) * 0x61C88647 + parameter * 0x3504F333) & mask
    for _ in range(2):
        x = ((x ^ (x >> 16)) * 0x45D9F3B) & mask
    x = (x ^ (x >> 16)) >> 8
    return ((x.to(_C.float32) + 0.5) * 2.0**-24 - 0.5).reshape(sizes)


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


@dataclass(frozen=True)
class Rows:
    """The rows of an operand that a row of a result depends on."""

    extent: int
    stride: int
    padding: int


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

    def rows(self) -> Rows:
        return Rows(self.dilation[0] * (self.weight.shape[2] - 1) + 1, self.stride[0], self.padding[0])

    def forward(self, x: Activation, padding: int) -> Tensor:
        """The integers; ``padding``: rows above and below."""
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
            (padding, self.padding[1]),
            self.dilation,
            self.groups,
        )
        return _nhwc(y).contiguous()  # of an image of one channel, y is NCHW

    def patch(self, x: Activation, padding: int) -> Activation:
        return Activation(self.forward(x, padding), self.out_scale, None)

    def __call__(self, run: Run) -> Activation:
        x = run.values[self.source]
        q = self.forward(x, self.padding[0])
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
class MaxPool:
    """The largest integer of each window; scale and zero point are those of the operand."""

    name: str
    source: str
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    ceil: bool
    line: str = ""

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.source,)

    def rows(self) -> Rows:
        return Rows(self.dilation[0] * (self.kernel[0] - 1) + 1, self.stride[0], self.padding[0])

    def pooled(self, x: Tensor, padding: int) -> Tensor:
        window = (self.kernel, self.stride, (padding, self.padding[1]), self.dilation, self.ceil)
        return _nhwc(_f.max_pool2d(_nchw(x), *window))

    def patch(self, x: Activation, padding: int) -> Activation:
        return Activation(self.pooled(x.q, padding), x.scale, None)

    def __call__(self, run: Run) -> Activation:
        x = run.values[self.source]
        y = self.patch(x, self.padding[0])
        if x.surrogate is not None:
            pooled = self.pooled(x.surrogate, self.padding[0])
            y.surrogate = _Rounded.apply(pooled, y.q, x.scale.zero)
        return y


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
            weight, bias = run.leaf(self, "weight", weight.clone()), run.leaf(self, "bias", bias.clone())
        return _f.linear(features, weight, bias)


Layer = Conv | Add | MaxPool | Mean | Linear


class Run:
    """The computation of a network on one input, and the leaves whose gradients a training step needs."""

    def __init__(self, network: Network, update: Update) -> None:
        self.update, self.values = update, dict[str, Activation]()
        self.leaves: list[tuple[Layer, str, Tensor]] = []
        # layers whose integers the gradient of a weight reads, so that they need no bits
        self.needed = {s for n in network.layers if update.weights.get(n.name) == 1 for s in n.sources}

    def leaf(self, layer: Layer, what: str, value: Tensor) -> Tensor:
        """A trained parameter. ``value``: its numbers, in a tensor of their own."""
        tensor = value.detach().requires_grad_()
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
    # The number of parts of rows in which the first layers are computed, one part after the other.
    patches: int = 1

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
        return dataclasses.replace(self, layers=layers)

    def images(self, x: Tensor) -> Tensor:
        """The int8 images, NHWC, of images or rows of numbers as the model takes them; int8 images as they
        are.
        """
        if x.dtype == _C.int8:
            return x
        return self.in_scale.quantize(_nhwc(x) if x.dim() == 4 else x[:, None, None, :]).contiguous()

    def run(self, x: Tensor, update: Update) -> tuple[Tensor, Run]:
        """The logits for int8 images, NHWC."""
        run = Run(self, update)
        run.values[self.INPUT] = Activation(x, self.in_scale, None)
        stage = self.patched(update)
        if stage:
            run.values[self.layers[stage - 1].name] = self._by_patches(run.values[self.INPUT], stage)
        for layer in self.layers[stage:-1]:
            run.values[layer.name] = layer(run)  # type: ignore[assignment]
        return self.classifier(run), run

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of all tensors for one image, NHWC."""
        plain = dataclasses.replace(self, patches=1)
        run = plain.run(_f.zeros(self.input_shape, dtype=_C.int8), Update(classifier=False))[1]
        return {name: tuple(x.q.shape) for name, x in run.values.items()}

    def patched(self, update: Update) -> int:
        """The number of first layers that are computed by patches: a chain that no update trains, with
        the smallest maximum of the bytes in use.
        """
        if self.patches == 1:
            return 0
        shapes = self.shapes()
        size = {name: math.prod(shape[1:]) for name, shape in shapes.items()}
        in_use = [max(size[n.name] + sum(size[s] for s in n.sources), 0) for n in self.layers[:-1]]
        best, least = 0, max(in_use)
        for k, layer in enumerate(self.layers[:-1]):
            former = self.layers[k - 1].name if k else self.INPUT
            chain = isinstance(layer, (Conv, MaxPool)) and layer.sources == (former,)
            if not chain or update.trains(layer.name) or getattr(layer, "ceil", False):
                break
            if any(former in n.sources for n in self.layers[k + 1 :]):
                break
            steps = [self._needed(k, part, shapes) for part in self._parts(shapes[layer.name][1])]
            # the image, the results of all parts, and the part at work
            peak = size[self.INPUT] + size[layer.name] + max(map(max, steps))
            peak = max([peak, *in_use[k + 1 :]])
            if any(layer.name in n.sources for n in self.layers[k + 1 :] if isinstance(n, Add)):
                peak = max(peak, 4 * size[layer.name] + in_use[k + 1])  # the sum reads float32
            if peak < least:
                best, least = k + 1, peak
        return best

    def _parts(self, rows: int) -> list[tuple[int, int]]:
        limits = [rows * k // self.patches for k in range(self.patches + 1)]
        return [part for part in zip(limits, limits[1:]) if part[0] < part[1]]

    def _rows_for(self, index: int, part: tuple[int, int], height: int) -> tuple[int, int, int, int]:
        """For rows of the result of a layer: the limits of the operand's rows, the padding on both sides of
        them, and the number of rows of that result that precede those asked for.
        """
        r = self.layers[index].rows()  # type: ignore[union-attr]
        first, last = part[0] * r.stride - r.padding, (part[1] - 1) * r.stride - r.padding + r.extent
        if first < 0:
            return 0, min(last, height), r.padding, part[0]
        if last > height:
            before = -(-r.padding // r.stride)  # rows that would read the padding above
            return (part[0] - before) * r.stride, height, r.padding, before
        return first, last, 0, 0

    def _needed(self, index: int, part: tuple[int, int], shapes: Mapping[str, Any]) -> list[int]:
        """Bytes of operand and result for each layer of a part."""
        if index < 0:
            return []
        layer = self.layers[index]
        source = layer.sources[0]
        _, height, width, channels = shapes[source]
        low, high, _, _ = self._rows_for(index, part, height)
        _, _, out_width, out_channels = shapes[layer.name]
        operand = (high - low) * width * channels if index else 0  # all rows of the image are in memory
        result = (part[1] - part[0]) * out_width * out_channels
        return [operand + result, *self._needed(index - 1, (low, high), shapes)]

    def _by_patches(self, image: Activation, stage: int) -> Activation:
        """The result of the first layers, a part of the rows after the other."""
        shapes = self.shapes()

        def rows(index: int, part: tuple[int, int]) -> Activation:
            if index < 0:
                return Activation(image.q[:, part[0] : part[1]], image.scale, None)
            layer = self.layers[index]
            low, high, padding, before = self._rows_for(index, part, shapes[layer.sources[0]][1])
            y = layer.patch(rows(index - 1, (low, high)), padding)  # type: ignore[union-attr]
            return Activation(y.q[:, before : before + part[1] - part[0]], y.scale, None)

        name = self.layers[stage - 1].name
        parts = [rows(stage - 1, part) for part in self._parts(shapes[name][1])]
        return Activation(_f.cat([p.q for p in parts], 1), parts[0].scale, None)

    def logits(self, x: Tensor) -> Tensor:
        return self.run(x, Update(classifier=False))[0]

    def step(
        self,
        x: Tensor,
        labels: Tensor,
        rate: Tensor | float,
        update: Update,
        *,
        scaled: bool = True,
        number: Tensor | None = None,
    ) -> Tensor:
        """A step of gradient descent; returns the loss.

        Args:
            scaled: with quantisation-aware scaling.
            number: of the step, int64: integers are rounded up or down at random, with the exact mean.
        """
        logits, run = self.run(x, update)
        loss = _f.cross_entropy(logits, labels)
        gradients = grad([loss], [leaf for _, _, leaf in run.leaves])
        for k, ((layer, what, _), g) in enumerate(zip(run.leaves, gradients)):
            dither = None if number is None or isinstance(layer, Linear) else _dither(g.shape, number, k)
            self._apply(layer, what, g * rate, update, scaled, dither)
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
    def _apply(
        layer: Layer, what: str, change: Tensor, update: Update, scaled: bool, dither: Tensor | None
    ) -> None:
        if isinstance(layer, Linear):
            parameter = getattr(layer, what)
            parameter.copy_(parameter - change)
            return
        assert isinstance(layer, Conv)
        s = layer.multiplier * (layer.out_scale.scale / layer.in_scale.scale)  # the scales of the weights
        if what == "bias":
            steps = change * (1 / (s * layer.in_scale.scale) ** 2) if scaled else change
            steps = steps if dither is None else steps + dither
            limit = float(1 << 30)
            layer.bias.copy_(layer.bias - steps.round().clamp(-limit, limit).to(_C.int32))
            return
        if scaled:
            change = change * (1 / s**2).reshape(-1, 1, 1, 1)
        chosen = None if what == "weight" else update.channels[layer.name]
        former = layer.weight if chosen is None else layer.weight.index_select(1, chosen)
        exact = former.to(_C.float32) - change
        exact = exact if dither is None else exact + dither
        new = exact.round().clamp(LOW, HIGH).to(_C.int8)
        layer.weight.copy_(new if chosen is None else layer.weight.index_copy(1, chosen, new))
