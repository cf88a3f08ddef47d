"""Recurrent layers and attention of layers which can be quantised."""

from __future__ import annotations

from typing import Any

from ..... import _C, nn
from .....nn import functional as F
from ...quantized import FloatFunctional

__all__ = ["LSTM", "LSTMCell", "MultiheadAttention"]

_f = _C.functions


def _stub(name: str) -> Any:
    from ....quantization import stubs

    return getattr(stubs, name)()


class LSTMCell(nn.Module):
    """A step of long short-term memory, of linear layers and observed operations."""

    _FLOAT_MODULE = nn.LSTMCell

    def __init__(
        self,
        input_dim: int,
        hidden_dim: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        if split_gates:
            raise NotImplementedError("LSTMCell: split_gates=True is not supported, False is")
        self.input_size, self.hidden_size, self.bias = input_dim, hidden_dim, bias
        self.igates, self.hgates = (
            nn.Linear(input_dim, 4 * hidden_dim, bias),
            nn.Linear(hidden_dim, 4 * hidden_dim, bias),
        )
        self.gates = FloatFunctional()
        self.input_gate, self.forget_gate, self.output_gate = nn.Sigmoid(), nn.Sigmoid(), nn.Sigmoid()
        self.cell_gate, self.tanh = nn.Tanh(), nn.Tanh()
        self.fgate_cx, self.igate_cgate = FloatFunctional(), FloatFunctional()
        self.fgate_cx_igate_cgate, self.ogate_cy = FloatFunctional(), FloatFunctional()

    def forward(self, x: Any, hidden: Any = None) -> tuple:
        if hidden is None:
            hidden = self.initialize_hidden(x.shape[0], getattr(x, "is_quantized", False))
        h, c = hidden
        gates = self.gates.add(self.igates(x), self.hgates(h))
        i, f, g, o = gates.chunk(4, 1)
        i, f, g, o = self.input_gate(i), self.forget_gate(f), self.cell_gate(g), self.output_gate(o)
        c = self.fgate_cx_igate_cgate.add(self.fgate_cx.mul(f, c), self.igate_cgate.mul(i, g))
        return self.ogate_cy.mul(o, self.tanh(c)), c

    def initialize_hidden(self, batch_size: int, is_quantized: bool = False) -> tuple:
        zeros = _f.zeros([batch_size, self.hidden_size])
        if not is_quantized:
            return zeros, zeros
        from ....._quantized import quantize_per_tensor
        from ....._types import quint8

        return (
            quantize_per_tensor(zeros, 2.0**-7, 128, quint8),
            quantize_per_tensor(zeros, 2.0**-8, 0, quint8),
        )

    @classmethod
    def from_params(cls, wi: Any, wh: Any, bi: Any = None, bh: Any = None) -> LSTMCell:
        """Returns the cell with these weights and biases."""
        new = cls(wi.shape[1], wh.shape[1], bias=bi is not None)
        new.igates.weight, new.hgates.weight = nn.Parameter(wi), nn.Parameter(wh)
        if bi is not None:
            new.igates.bias, new.hgates.bias = nn.Parameter(bi), nn.Parameter(bh)
        return new

    @classmethod
    def from_float(cls, other: Any, use_precomputed_fake_quant: bool = False) -> LSTMCell:
        new = cls.from_params(other.weight_ih, other.weight_hh, other.bias_ih, other.bias_hh)
        if hasattr(other, "qconfig"):
            new.qconfig = new.igates.qconfig = new.hgates.qconfig = other.qconfig
        return new


class _LSTMLayer(nn.Module):
    """One layer, in one or both directions."""

    def __init__(self, cells: list) -> None:
        super().__init__()
        self.cells = nn.ModuleList(cells)

    def forward(self, x: Any, states: list) -> tuple:
        parts, last = [], []
        for k, (cell, state) in enumerate(zip(self.cells, states)):
            steps = range(x.shape[0]) if k == 0 else range(x.shape[0] - 1, -1, -1)
            outputs: list[Any] = [None] * x.shape[0]
            for t in steps:
                state = cell(x[t], state)
                outputs[t] = state[0]
            parts.append(_f.stack(outputs, 0))
            last.append(state)
        return (parts[0] if len(parts) == 1 else _f.cat(parts, -1)), last


class LSTM(nn.Module):
    """Layers of long short-term memory, of linear layers and observed operations."""

    _FLOAT_MODULE = nn.LSTM

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        split_gates: bool = False,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.num_layers, self.bias = (
            input_size,
            hidden_size,
            num_layers,
            bias,
        )
        self.batch_first, self.dropout, self.bidirectional, self.training = (
            batch_first,
            dropout,
            bidirectional,
            False,
        )
        directions = 2 if bidirectional else 1
        self.layers = nn.ModuleList(
            _LSTMLayer(
                [
                    LSTMCell(input_size if k == 0 else hidden_size * directions, hidden_size, bias)
                    for _ in range(directions)
                ]
            )
            for k in range(num_layers)
        )

    def forward(self, x: Any, hidden: Any = None) -> tuple:
        x = x.transpose(0, 1) if self.batch_first else x
        directions, last = 2 if self.bidirectional else 1, []
        for k, layer in enumerate(self.layers):
            states = [None] * directions
            if hidden is not None:
                at = slice(k * directions, (k + 1) * directions)
                states = list(zip(hidden[0][at].unbind(0), hidden[1][at].unbind(0)))  # type: ignore[arg-type]
            x, states = layer(x, states)
            last += states
        x = x.transpose(0, 1) if self.batch_first else x
        return x, (_f.stack([h for h, _ in last]), _f.stack([c for _, c in last]))  # type: ignore[misc]

    def _get_name(self) -> str:
        return "QuantizableLSTM"

    @classmethod
    def from_float(cls, other: Any, qconfig: Any = None, split_gates: bool = False) -> LSTM:
        """Returns the layers with the weights of ``nn.LSTM``."""
        new = cls(
            other.input_size,
            other.hidden_size,
            other.num_layers,
            other.bias,
            other.batch_first,
            other.dropout,
            other.bidirectional,
            split_gates=split_gates,
        )
        new.qconfig = getattr(other, "qconfig", qconfig)
        for k, layer in enumerate(new.layers):
            for d, suffix in enumerate(("", "_reverse")[: len(layer.cells)]):
                names = [f"{kind}_l{k}{suffix}" for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
                layer.cells[d] = LSTMCell.from_params(*(getattr(other, n, None) for n in names))
        new.train(other.training)
        from ....quantization.quantize import prepare

        return prepare(new, inplace=True) if new.qconfig is not None else new

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError("It looks like you are trying to convert a non-quantizable LSTM module")


class MultiheadAttention(nn.MultiheadAttention):
    """Attention whose projections can be quantised; scores and values are computed in floating point."""

    _FLOAT_MODULE = nn.MultiheadAttention

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *args: Any,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, *args, **options)
        if self.bias_k is not None or self.add_zero_attn:
            raise NotImplementedError("MultiheadAttention: add_bias_kv and add_zero_attn are not supported")
        self.linear_Q, self.linear_K = (
            nn.Linear(embed_dim, embed_dim, bias),
            nn.Linear(self.kdim, embed_dim, bias),
        )
        self.linear_V, self.out_proj = (
            nn.Linear(self.vdim, embed_dim, bias),
            nn.Linear(embed_dim, embed_dim, bias),
        )
        self.dequant_q, self.dequant_k, self.dequant_v = (_stub("DeQuantStub") for _ in range(3))
        self.quant_attn_output = _stub("QuantStub")

    def _get_name(self) -> str:
        return "QuantizableMultiheadAttention"

    def forward(
        self,
        query: Any,
        key: Any,
        value: Any,
        key_padding_mask: Any = None,
        need_weights: bool = True,
        attn_mask: Any = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple:
        if self.batch_first:
            query, key, value = (t.transpose(0, 1) for t in (query, key, value))
        length, batch, width = query.shape
        heads, size = self.num_heads, width // self.num_heads

        def by_head(x: Any) -> Any:
            return x.reshape(-1, batch, heads, size).permute(1, 2, 0, 3)

        q = by_head(self.dequant_q(self.linear_Q(query)))
        k, v = by_head(self.dequant_k(self.linear_K(key))), by_head(self.dequant_v(self.linear_V(value)))
        scores = q @ k.transpose(-1, -2) * size**-0.5
        for mask in (attn_mask, None if key_padding_mask is None else key_padding_mask[:, None, None, :]):
            if mask is not None:
                scores = scores.masked_fill(mask, float("-inf")) if mask.dtype == _C.bool else scores + mask
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        y = (weights @ v).permute(2, 0, 1, 3).reshape(length, batch, width)
        y = self.out_proj(self.quant_attn_output(y))
        y = y.transpose(0, 1) if self.batch_first else y
        if not need_weights:
            return y, None
        return y, weights.mean(1) if average_attn_weights else weights

    @classmethod
    def from_float(cls, other: Any) -> MultiheadAttention:
        """Returns the module with the weights of ``nn.MultiheadAttention``."""
        new = cls(
            other.embed_dim,
            other.num_heads,
            other.dropout,
            other.in_proj_bias is not None,
            kdim=other.kdim,
            vdim=other.vdim,
            batch_first=other.batch_first,
        )
        new.qconfig = getattr(other, "qconfig", None)
        weights = (
            other.in_proj_weight.chunk(3)
            if other._qkv_same_embed_dim
            else (other.q_proj_weight, other.k_proj_weight, other.v_proj_weight)
        )
        biases = other.in_proj_bias.chunk(3) if other.in_proj_bias is not None else (None,) * 3
        for layer, w, b in zip((new.linear_Q, new.linear_K, new.linear_V), weights, biases):
            layer.weight = nn.Parameter(w.detach())
            layer.bias = None if b is None else nn.Parameter(b.detach())
        new.out_proj.weight, new.out_proj.bias = other.out_proj.weight, other.out_proj.bias
        new.train(other.training)
        from ....quantization.quantize import prepare

        return prepare(new, inplace=True) if new.qconfig is not None else new

    @classmethod
    def from_observed(cls, other: Any) -> Any:
        raise NotImplementedError("It looks like you are trying to convert a non-quantizable MHA module")
