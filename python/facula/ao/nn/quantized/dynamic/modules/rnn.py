"""Recurrent layers whose products are quantised with the range of each call."""

from __future__ import annotations

from typing import Any

from ...... import _C, _quantized_ops, nn
from ......_types import qint8
from ......nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from ...modules.utils import observed_weight

__all__ = ["GRU", "LSTM", "GRUCell", "LSTMCell", "RNNCell"]

_f = _C.functions


def _packed(weight: Any, bias: Any, dtype: Any) -> Any:
    pack = _quantized_ops.linear_prepack if dtype == qint8 else _quantized_ops.linear_prepack_fp16
    return pack(weight, bias)


def _quantized(weight: Any, qconfig: Any, dtype: Any) -> Any:
    if dtype == _C.float16:
        return weight.detach().float()
    holder = nn.Module()
    holder.weight = weight  # type: ignore[assignment]
    return observed_weight(holder, qconfig)[0]


def _dtype_of(cls: type, mod: Any) -> tuple[Any, Any]:
    qconfig = getattr(mod, "qconfig", None)
    if qconfig is None or qconfig.weight is None:
        from .....quantization.qconfig import default_dynamic_qconfig as qconfig  # type: ignore[no-redef]
    dtype = qconfig.weight().dtype
    if dtype not in (qint8, _C.float16):
        raise RuntimeError(
            f"{cls.__name__}: weights of recurrent layers must be qint8 or float16, got {dtype}"
        )
    return qconfig, dtype


class RNNBase(nn.Module):
    """The base of LSTM and GRU: weights by layer and direction, and the walk over steps."""

    _version = 2
    _gates: int
    _FLOAT_MODULE: type = nn.RNNBase

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        dtype: Any = qint8,
    ) -> None:
        super().__init__()
        if not isinstance(dropout, (int, float)) or isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout should be a number in range [0, 1], got {dropout}")
        self.mode, self.input_size, self.hidden_size, self.num_layers = (
            mode,
            input_size,
            hidden_size,
            num_layers,
        )
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.dtype, self.training = bidirectional, dtype, False
        self._cells: list[tuple[Any, Any]] = []

    def _get_name(self) -> str:
        return "DynamicQuantized" + self.mode

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        usual = {"num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False}
        return text + "".join(f", {k}={getattr(self, k)}" for k, v in usual.items() if getattr(self, k) != v)

    def _suffixes(self) -> list[str]:
        ends = ("", "_reverse") if self.bidirectional else ("",)
        return [f"_l{layer}{end}" for layer in range(self.num_layers) for end in ends]

    def get_weight(self) -> dict[str, Any]:
        """Returns the weights by the names that they have in the float layer."""
        named = {}
        for suffix, (ih, hh) in zip(self._suffixes(), self._cells):
            named["weight_ih" + suffix], named["weight_hh" + suffix] = ih.weight, hh.weight
        return named

    def get_bias(self) -> dict[str, Any]:
        """Returns the biases by the names that they have in the float layer."""
        named = {}
        for suffix, (ih, hh) in zip(self._suffixes(), self._cells):
            named["bias_ih" + suffix], named["bias_hh" + suffix] = ih.bias_, hh.bias_
        return named

    def set_weight_bias(self, weight_bias_dict: Any) -> None:
        """Takes weights, quantised or for float16, and biases by their names."""
        w = weight_bias_dict
        self._cells = [
            tuple(_packed(w[f"weight_{k}{s}"], w.get(f"bias_{k}{s}"), self.dtype) for k in ("ih", "hh"))  # type: ignore[misc]
            for s in self._suffixes()
        ]

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name, value in (*self.get_weight().items(), *self.get_bias().items()):
            destination[prefix + name] = value

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        names = [*self.get_weight(), *self.get_bias()]
        missing = [prefix + n for n in names if prefix + n not in state_dict]
        if missing:
            raise RuntimeError(
                f"load_state_dict: {prefix[:-1] or 'the model'}, a {self._get_name()}, needs "
                f"{', '.join(missing[:4])}"
            )
        self.set_weight_bias({n: state_dict.pop(prefix + n) for n in names})
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of a recurrent layer."""
        qconfig, dtype = _dtype_of(cls, mod)
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError(f"{cls.__name__}: proj_size={mod.proj_size} is not supported, 0 is")
        new = cls(
            mod.input_size,
            mod.hidden_size,
            mod.num_layers,
            mod.bias,
            mod.batch_first,
            mod.dropout,
            mod.bidirectional,
            dtype=dtype,
        )  # type: ignore[call-arg]
        values = {}
        for s in new._suffixes():
            for k in ("ih", "hh"):
                values[f"weight_{k}{s}"] = _quantized(getattr(mod, f"weight_{k}{s}"), qconfig, dtype)
                bias = getattr(mod, f"bias_{k}{s}") if mod.bias else None
                values[f"bias_{k}{s}"] = bias
        new.set_weight_bias(values)
        return new

    def _layer(self, x: Any, state: Any, cell: tuple, backwards: bool, lengths: Any) -> tuple:
        raise NotImplementedError

    def _steps(self, x: Any, backwards: bool, lengths: Any) -> Any:
        """Returns the order of steps, and for each which sequences of the batch take part in it."""
        order = range(x.shape[0] - 1, -1, -1) if backwards else range(x.shape[0])
        for t in order:
            yield t, None if lengths is None else (lengths > t)[:, None]

    def _walk(self, x: Any, states: Any, lengths: Any) -> tuple:
        """Computes all layers; ``states`` has one entry a layer and direction."""
        directions = 2 if self.bidirectional else 1
        last = []
        for layer in range(self.num_layers):
            parts = []
            for d in range(directions):
                k = layer * directions + d
                y, state = self._layer(x, states[k], self._cells[k], d == 1, lengths)
                parts.append(y)
                last.append(state)
            x = _f.cat(parts, dim=-1) if directions == 2 else parts[0]
            if self.dropout and self.training and layer + 1 < self.num_layers:
                x = nn.functional.dropout(x, self.dropout, True)
        return x, last

    def _run(self, input: Any, hx: Any) -> tuple:
        lengths, packed = None, isinstance(input, PackedSequence)
        sorted_as = input.sorted_indices if packed else None
        if packed:
            x, lengths = pad_packed_sequence(input)
        else:
            x = input.transpose(0, 1) if self.batch_first else input
        if x.dim() != 3 or x.shape[-1] != self.input_size:
            raise RuntimeError(
                f"{self._get_name()}: expected an input of 3 dimensions with {self.input_size} features, got "
                f"{tuple(x.shape)}"
            )
        y, states = self._walk(x, self._initial(hx, x), lengths)
        if packed:
            y = pack_padded_sequence(y, lengths, enforce_sorted=sorted_as is None)
        elif self.batch_first:
            y = y.transpose(0, 1)
        return y, states

    def _initial(self, hx: Any, x: Any) -> list:
        raise NotImplementedError

    def _zeros(self, x: Any) -> Any:
        return _f.zeros([len(self._suffixes()), x.shape[1], self.hidden_size])


def _products(x: Any, ih: Any) -> Any:
    """Returns the products of all steps with the weight of the input, quantised with one range."""
    return _quantized_ops._cell_product(ih, x)


class LSTM(RNNBase):
    """Layers of long short-term memory whose products are quantised with the range of each call."""

    _FLOAT_MODULE = nn.LSTM

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("LSTM", *args, **options)

    def forward(self, input: Any, hx: Any = None) -> tuple:
        y, states = self._run(input, hx)
        return y, (_f.stack([h for h, _ in states]), _f.stack([c for _, c in states]))

    def _initial(self, hx: Any, x: Any) -> list:
        h, c = (self._zeros(x), self._zeros(x)) if hx is None else hx
        return list(zip(h.unbind(0), c.unbind(0)))

    def _layer(self, x: Any, state: Any, cell: tuple, backwards: bool, lengths: Any) -> tuple:
        h, c = state
        gates, outputs = _products(x, cell[0]), [None] * x.shape[0]
        for t, active in self._steps(x, backwards, lengths):
            new_h, new_c = _quantized_ops._lstm_step(gates[t] + _quantized_ops._cell_product(cell[1], h), c)
            h, c = (
                (new_h, new_c) if active is None else (_f.where(active, new_h, h), _f.where(active, new_c, c))
            )
            outputs[t] = h if active is None else h * active
        return _f.stack(outputs), (h, c)


class GRU(RNNBase):
    """Layers of gated recurrent units whose products are quantised with the range of each call."""

    _FLOAT_MODULE = nn.GRU

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__("GRU", *args, **options)

    def forward(self, input: Any, hx: Any = None) -> tuple:
        y, states = self._run(input, hx)
        return y, _f.stack(states)

    def _initial(self, hx: Any, x: Any) -> list:
        return list((self._zeros(x) if hx is None else hx).unbind(0))

    def _layer(self, x: Any, state: Any, cell: tuple, backwards: bool, lengths: Any) -> tuple:
        h = state
        gates, outputs = _products(x, cell[0]), [None] * x.shape[0]
        for t, active in self._steps(x, backwards, lengths):
            new = _quantized_ops._gru_step(gates[t], _quantized_ops._cell_product(cell[1], h), h)
            h = new if active is None else _f.where(active, new, h)
            outputs[t] = h if active is None else h * active
        return _f.stack(outputs), h


class RNNCellBase(nn.Module):
    """The base of cells: two packed weights."""

    _gates = 1
    _op = ""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, dtype: Any = qint8, **options: Any
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias, self.weight_dtype = input_size, hidden_size, bias, dtype

    def _get_name(self) -> str:
        return "DynamicQuantized" + type(self).__name__

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + (", bias=False" if not self.bias else "")

    def get_weight(self) -> dict[str, Any]:
        return {"weight_ih": self._packed_weight_ih.weight, "weight_hh": self._packed_weight_hh.weight}

    def get_bias(self) -> dict[str, Any]:
        return {"bias_ih": self._packed_weight_ih.bias_, "bias_hh": self._packed_weight_hh.bias_}

    def set_weight_bias(self, weight_bias_dict: Any) -> None:
        w = weight_bias_dict
        self._packed_weight_ih = _packed(w["weight_ih"], w["bias_ih"], self.weight_dtype)
        self._packed_weight_hh = _packed(w["weight_hh"], w["bias_hh"], self.weight_dtype)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for k in ("ih", "hh"):
            packed = getattr(self, f"_packed_weight_{k}")
            destination[f"{prefix}weight_{k}"], destination[f"{prefix}bias_{k}"] = packed.weight, packed.bias_

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self.set_weight_bias({n: state_dict.pop(prefix + n) for n in names})
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of a cell."""
        qconfig, dtype = _dtype_of(cls, mod)
        more = {"nonlinearity": mod.nonlinearity} if hasattr(mod, "nonlinearity") else {}
        new = cls(mod.input_size, mod.hidden_size, mod.bias, dtype=dtype, **more)
        new.set_weight_bias(
            {
                **{
                    f"weight_{k}": _quantized(getattr(mod, f"weight_{k}"), qconfig, dtype)
                    for k in ("ih", "hh")
                },
                **{f"bias_{k}": getattr(mod, f"bias_{k}") if mod.bias else None for k in ("ih", "hh")},
            }
        )
        return new

    def _step(self, input: Any, hx: Any) -> Any:
        op = _quantized_ops.TABLE[self._op]
        return op(input, hx, self._packed_weight_ih, self._packed_weight_hh)

    def forward(self, input: Any, hx: Any = None) -> Any:
        return self._step(input, _f.zeros([input.shape[0], self.hidden_size]) if hx is None else hx)


class LSTMCell(RNNCellBase):
    """A step of long short-term memory."""

    _op = "quantized_lstm_cell_dynamic"

    def forward(self, input: Any, hx: Any = None) -> Any:
        zeros = _f.zeros([input.shape[0], self.hidden_size])
        return self._step(input, (zeros, zeros) if hx is None else hx)


class GRUCell(RNNCellBase):
    """A step of a gated recurrent unit."""

    _op = "quantized_gru_cell_dynamic"


class RNNCell(RNNCellBase):
    """A step of a recurrent layer with tanh or relu."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        dtype: Any = qint8,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, dtype)
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        self.nonlinearity = nonlinearity
        self._op = f"quantized_rnn_{nonlinearity}_cell_dynamic"
