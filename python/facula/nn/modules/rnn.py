"""Recurrent networks: layers over sequences, and single cells."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any, overload

from ... import _C
from .. import init
from ..parameter import Parameter
from ..utils.rnn import PackedSequence
from .module import Module, TensorModule

Tensor = _C.Tensor
_f = _C.functions
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_FUNCTIONS = {"LSTM": _f.lstm, "GRU": _f.gru, "RNN_TANH": _f.rnn_tanh, "RNN_RELU": _f.rnn_relu}


def _initialise(module: Module, hidden_size: int) -> None:
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0
    for p in module.parameters():
        init.uniform_(p, -bound, bound)


class RNNBase(Module):
    """Layers of cells over sequences, one or two directions each.

    The parameters of layer k are ``weight_ih_lk``, ``weight_hh_lk``, ``bias_ih_lk``, ``bias_hh_lk`` and,
    with a projection, ``weight_hr_lk``; those of the reverse direction end in ``_reverse``.
    """

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias",
        "batch_first", "dropout", "bidirectional", "proj_size",
    ]  # fmt: skip

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
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:  # type: ignore[operator]
            raise ValueError(
                "dropout should be a number in range [0, 1] representing the probability of an element being "
                "zeroed"
            )
        if dropout > 0 and num_layers == 1:
            warnings.warn(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                f"num_layers greater than 1, but got dropout={dropout} and num_layers={num_layers}",
                stacklevel=2,
            )
        for name, value in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode, self.input_size, self.hidden_size, self.num_layers = (
            mode,
            input_size,
            hidden_size,
            num_layers,
        )
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._all_weights = self._names()
        size, state = _GATES[mode] * hidden_size, self._state_size
        for k, names in enumerate(self._all_weights):
            layer = k // self._directions
            sizes = {
                "weight_ih": [size, state * self._directions if layer else input_size],
                "weight_hh": [size, state],
                "bias_ih": [size],
                "bias_hh": [size],
                "weight_hr": [proj_size, hidden_size],
            }
            for name in names:
                values = _f.empty(sizes[name.split("_l")[0]], dtype=dtype, device=device)
                setattr(self, name, Parameter(values))
        self.reset_parameters()

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _state_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _names(self) -> list[list[str]]:
        kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else [])]
        kinds += ["weight_hr"] if self.proj_size else []
        return [
            [f"{kind}_l{layer}{suffix}" for kind in kinds]
            for layer in range(self.num_layers)
            for suffix in ["", "_reverse"][: self._directions]
        ]

    @property
    def all_weights(self) -> list[list[Parameter]]:
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def flatten_parameters(self) -> None:
        """Has no effect: parameters need not be contiguous."""

    def reset_parameters(self) -> None:
        _initialise(self, self.hidden_size)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        weight = self._flat_weights[0]
        if input.dtype != weight.dtype and not _C.autocast_state()[0]:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). "
                f"Convert input: input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        expected = 3 if batch_sizes is None else 2
        if input.dim() != expected:
            raise RuntimeError(f"input must have {expected} dimensions, got {input.dim()}")
        if self.input_size != input.size(-1):
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                f"{input.size(-1)}"
            )

    def _batch(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        return input.size(0 if self.batch_first else 1) if batch_sizes is None else int(batch_sizes[0])

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        return self.num_layers * self._directions, self._batch(input, batch_sizes), self._state_size

    def check_hidden_size(
        self, hx: Tensor, expected_hidden_size: tuple, msg: str = "Expected hidden size {}, got {}"
    ) -> None:
        if tuple(hx.shape) != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return hx if permutation is None else hx.index_select(1, permutation)

    # A state is one tensor, for an LSTM two; the methods below cover the difference.
    def _no_state(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        return _f.zeros(
            self.get_expected_hidden_size(input, batch_sizes), dtype=input.dtype, device=input.device
        )

    def _check_ranks(self, hx: Any, rank: int) -> None:
        if hx.dim() != rank:
            what = "batched 3-D" if rank == 3 else "unbatched 2-D"
            raise RuntimeError(f"For {what} input, hx should also be {rank}-D but got {hx.dim()}-D tensor")

    def _mapped(self, hx: Any, f: Any) -> Any:
        return f(hx)

    def forward(self, input: Any, hx: Any = None) -> Any:
        packed, one = input if isinstance(input, PackedSequence) else None, False
        batch_sizes = packed.batch_sizes if packed is not None else None
        if packed is not None:
            input = packed.data
            if hx is not None:
                hx = self.permute_hidden(hx, packed.sorted_indices)
        else:
            if input.dim() not in (2, 3):
                raise ValueError(
                    f"{self._get_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead"
                )
            one = input.dim() == 2
            if hx is not None:
                self._check_ranks(hx, input.dim())
            if one:
                input = input.unsqueeze(0 if self.batch_first else 1)
                hx = None if hx is None else self._mapped(hx, lambda h: h.unsqueeze(1))
        if hx is None:
            hx = self._no_state(input, batch_sizes)
        self.check_forward_args(input, hx, batch_sizes)
        settings = self.bias, self.num_layers, self.dropout, self.training, self.bidirectional
        function = _FUNCTIONS[self.mode]
        if packed is not None:
            output, *state = function(input, batch_sizes, hx, self._flat_weights, *settings)
            output = PackedSequence(output, batch_sizes, packed.sorted_indices, packed.unsorted_indices)
            return output, self.permute_hidden(self._state(state), packed.unsorted_indices)
        output, *state = function(input, hx, self._flat_weights, *settings, self.batch_first)
        state = self._state(state)
        if one:
            return output.squeeze(0 if self.batch_first else 1), self._mapped(state, lambda h: h.squeeze(1))
        return output, state

    def _state(self, results: list[Tensor]) -> Any:
        return results[0]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True),
            ("batch_first", False), ("dropout", 0), ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                text += f", {name}={getattr(self, name)}"
        return text

    def __getstate__(self) -> dict[str, Any]:
        flat = {"_flat_weights_names": self._flat_weights_names, "_flat_weights": self._flat_weights}
        return {**self.__dict__, **flat}  # PyTorch expects them when it reads the state

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        for derived in ("_flat_weights", "_flat_weights_names", "_flat_weight_refs", "all_weights"):
            state.pop(derived, None)
        state.setdefault("proj_size", 0)
        super().__setstate__(state)
        self._all_weights = self._names()


class RNN(RNNBase):
    """Layers of h' = tanh(x W_ih^T + b_ih + h W_hh^T + b_hh), or of relu.  Elman, 1990.

    Shape: ``[T, N, input_size]``, ``[N, T, input_size]`` with ``batch_first``, ``[T, input_size]`` or a
    PackedSequence, and a state ``[layers * directions, N, hidden_size]``; returns the states of the last
    layer at each step, and the last state of each layer.

    >>> nn.RNN(10, 20, 2)(facula.randn(5, 3, 10))[0].shape
    facula.Size([5, 3, 20])
    """

    @overload
    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None: ...

    @overload
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        nonlinearity = args[3] if len(args) > 3 else kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_" + nonlinearity.upper(), *args[:3], *args[4:], **kwargs)
        self.nonlinearity = nonlinearity


class GRU(RNNBase):
    """Layers of gated recurrent units; shapes as for RNN.  Cho et al., 2014.

    >>> nn.GRU(10, 20, bidirectional=True)(facula.randn(5, 3, 10))[0].shape
    facula.Size([5, 3, 40])
    """

    @overload
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
    ) -> None: ...

    @overload
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Layers of long short-term memory; shapes as for RNN, the state is (h, c).  Hochreiter, Schmidhuber,
    1997.

    ``proj_size`` projects hidden states to that size.

    >>> y, (h, c) = nn.LSTM(10, 20, 2, batch_first=True)(facula.randn(3, 5, 10))
    >>> y.shape, c.shape
    (facula.Size([3, 5, 20]), facula.Size([2, 3, 20]))
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        return self.num_layers * self._directions, self._batch(input, batch_sizes), self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        self.check_input(input, batch_sizes)
        wanted = (
            self.get_expected_hidden_size(input, batch_sizes),
            self.get_expected_cell_size(input, batch_sizes),
        )
        for k, size in enumerate(wanted):
            self.check_hidden_size(hidden[k], size, f"Expected hidden[{k}] size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        return hx if permutation is None else tuple(h.index_select(1, permutation) for h in hx)

    def _no_state(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        return (
            _f.zeros(
                self.get_expected_hidden_size(input, batch_sizes), dtype=input.dtype, device=input.device
            ),
            _f.zeros(self.get_expected_cell_size(input, batch_sizes), dtype=input.dtype, device=input.device),
        )

    def _check_ranks(self, hx: Any, rank: int) -> None:
        if hx[0].dim() != rank or hx[1].dim() != rank:
            what = "batched 3-D" if rank == 3 else "unbatched 2-D"
            raise RuntimeError(
                f"For {what} input, hx and cx should also be {rank}-D but got "
                f"({hx[0].dim()}-D, {hx[1].dim()}-D) tensors"
            )

    def _mapped(self, hx: Any, f: Any) -> Any:
        return tuple(f(h) for h in hx)

    def _state(self, results: list[Tensor]) -> Any:
        return tuple(results)


class RNNCellBase(TensorModule):
    __constants__ = ["input_size", "hidden_size", "bias"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size

        def parameter(*sizes: int) -> Parameter:
            return Parameter(_f.empty(sizes, dtype=dtype, device=device))

        self.weight_ih, self.weight_hh = parameter(rows, input_size), parameter(rows, hidden_size)
        if bias:
            self.bias_ih, self.bias_hh = parameter(rows), parameter(rows)
        else:
            self.register_parameter("bias_ih", None)
            self.register_parameter("bias_hh", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _initialise(self, self.hidden_size)

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if getattr(self, "nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text

    def _step(self, function: Any, input: Tensor, hx: Any, states: int) -> Any:
        """Applies ``function`` to a batch, after adding the batch dimension if input and states lack it."""
        name = self._get_name()
        if input.dim() not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        states_in = () if hx is None else hx if states > 1 else (hx,)
        for k, h in enumerate(states_in):
            if h.dim() not in (1, 2):
                what = "hidden" if states == 1 else f"hx[{k}]"
                raise ValueError(f"{name}: Expected {what} to be 1D or 2D, got {h.dim()}D instead")
        one = input.dim() == 1
        if one:
            input, states_in = input.unsqueeze(0), tuple(h.unsqueeze(0) for h in states_in)
        if hx is None:
            states_in = (
                _f.zeros([input.shape[0], self.hidden_size], dtype=input.dtype, device=input.device),
            ) * states
        state = tuple(states_in) if states > 1 else states_in[0]
        y = function(input, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        if not one:
            return y
        return tuple(t.squeeze(0) for t in y) if states > 1 else y.squeeze(0)


class RNNCell(RNNCellBase):
    """One step of RNN: ``[N, input_size]`` and a state ``[N, hidden_size]`` to the next state.

    >>> nn.RNNCell(10, 20)(facula.randn(3, 10)).shape
    facula.Size([3, 20])
    """

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step(getattr(_f, f"rnn_{self.nonlinearity}_cell"), input, hx, 1)


class LSTMCell(RNNCellBase):
    """One step of LSTM: the next (h, c).

    >>> h, c = nn.LSTMCell(10, 20)(facula.randn(3, 10))
    >>> h.shape
    facula.Size([3, 20])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Any:
        return self._step(_f.lstm_cell, input, hx, 2)


class GRUCell(RNNCellBase):
    """One step of GRU: the next state.

    >>> nn.GRUCell(10, 20)(facula.randn(3, 10)).shape
    facula.Size([3, 20])
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        return self._step(_f.gru_cell, input, hx, 1)
