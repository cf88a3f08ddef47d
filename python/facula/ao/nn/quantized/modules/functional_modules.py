"""Operations of two tensors as modules, so that their results are observed and quantised."""

from __future__ import annotations

from typing import Any, NoReturn

from ..... import _C, _quantized_ops
from .....nn import Identity, Module
from .utils import OutputParameters, output_parameters

__all__ = ["FXFloatFunctional", "FloatFunctional", "QFunctional"]

Tensor = _C.Tensor
_f = _C.functions


def _no_forward(kind: str) -> NoReturn:
    raise RuntimeError(f"{kind} is not intended to use the 'forward'. Please use the underlying operation")


class FloatFunctional(Module):
    """``add``, ``mul``, ``cat`` and others, whose results pass through ``activation_post_process``.

    >>> facula.nn.quantized.FloatFunctional().add_relu(facula.tensor([1.0]), facula.tensor([-3.0]))
    tensor([0.])
    """

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = Identity()

    def forward(self, x: Any) -> Any:
        _no_forward("FloatFunctional")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.add(x, y))

    def add_scalar(self, x: Tensor, y: float) -> Tensor:
        return _f.add(x, y)

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.mul(x, y))

    def mul_scalar(self, x: Tensor, y: float) -> Tensor:
        return _f.mul(x, y)

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return self.activation_post_process(_f.cat(x, dim=dim))

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.relu(_f.add(x, y)))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return self.activation_post_process(_f.matmul(x, y))


class FXFloatFunctional(Module):
    """The same operations without a place for an observer, as graphs have them."""

    def forward(self, x: Any) -> Any:
        _no_forward("FloatFunctional")

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return _f.add(x, y)

    add_scalar = add

    def mul(self, x: Tensor, y: Tensor) -> Tensor:
        return _f.mul(x, y)

    mul_scalar = mul

    def cat(self, x: list[Tensor], dim: int = 0) -> Tensor:
        return _f.cat(x, dim=dim)

    def add_relu(self, x: Tensor, y: Tensor) -> Tensor:
        return _f.relu(_f.add(x, y))

    def matmul(self, x: Tensor, y: Tensor) -> Tensor:
        return _f.matmul(x, y)


class QFunctional(OutputParameters):
    """The operations of FloatFunctional on quantised tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.activation_post_process = Identity()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        self._take_parameters(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> Any:
        _no_forward("Functional")

    def _call(self, name: str, *args: Any) -> Any:
        result = _quantized_ops.find(name)(*args, self.scale, self.zero_point)
        return self.activation_post_process(result)

    def add(self, x: Any, y: Any) -> Any:
        return self._call("add", x, y)

    def add_scalar(self, x: Any, y: float) -> Any:
        return _quantized_ops.find("add_scalar")(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        return self._call("mul", x, y)

    def mul_scalar(self, x: Any, y: float) -> Any:
        return _quantized_ops.find("mul_scalar")(x, y)

    def cat(self, x: list[Any], dim: int = 0) -> Any:
        return self._call("cat", x, dim)

    def add_relu(self, x: Any, y: Any) -> Any:
        return self._call("add_relu", x, y)

    def matmul(self, x: Any, y: Any) -> Any:
        return self._call("matmul", x, y)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of an observed FloatFunctional."""
        if type(mod) is not FloatFunctional:
            raise AssertionError(
                f"QFunctional.from_float expects an instance of FloatFunctional, got {type(mod)}"
            )
        new = cls()
        new.scale, new.zero_point = output_parameters(mod)
        return new
