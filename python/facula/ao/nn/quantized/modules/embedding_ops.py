"""Quantised embeddings."""

from __future__ import annotations

from typing import Any

from ..... import _C, _quantized, _quantized_ops
from ....._types import quint4x2, quint8
from .....nn import Embedding as _Embedding
from .....nn import EmbeddingBag as _EmbeddingBag
from .....nn import Module
from .utils import check_kind, check_weight, quantized_weight, taken

__all__ = ["Embedding", "EmbeddingBag", "EmbeddingPackedParams"]

_f = _C.functions


class EmbeddingPackedParams(Module):
    """A table in the form that look-ups take."""

    _version = 1

    def __init__(self, num_embeddings: int, embedding_dim: int, dtype: Any = quint8) -> None:
        super().__init__()
        self.dtype = dtype
        if dtype not in (quint8, quint4x2):
            raise NotImplementedError(
                f"Unsupported dtype on quantized embedding: {dtype}; quint8 and quint4x2 are"
            )
        weight = _quantized._empty_per_channel_affine_quantized(
            [num_embeddings, embedding_dim],
            scales=_f.ones([num_embeddings]),
            zero_points=_f.zeros([num_embeddings]),
            axis=0,
            dtype=dtype,
        )
        weight._integers.zero_()
        self.set_weight(weight)

    def set_weight(self, weight: Any) -> None:
        self._packed_weight = _quantized_ops.embedding_bag_prepack(weight)

    def _weight(self) -> Any:
        return self._packed_weight.unpack()

    def forward(self, x: Any) -> Any:
        return x

    def __repr__(self) -> str:
        return repr(self._weight())

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_weight"] = self._weight()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, metadata: Any, *args: Any) -> None:
        self.dtype = taken(self, state_dict, prefix, "dtype")
        weight = taken(self, state_dict, prefix, "_packed_weight")
        check_weight(self, prefix, weight, self._weight())
        self.set_weight(weight)
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *args[1:])


class Embedding(Module):
    """A look-up in a table of 8-bit or 4-bit integers; the rows are float32."""

    _version = 1
    _FLOAT_MODULE: tuple = (_Embedding,)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Any = None,
        dtype: Any = quint8,
    ) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim, self.dtype = num_embeddings, embedding_dim, dtype
        self._packed_params = EmbeddingPackedParams(num_embeddings, embedding_dim, dtype)
        if _weight is not None:
            check_weight(self, "", _weight, self.weight())
            self._packed_params.set_weight(_weight)

    def _get_name(self) -> str:
        return "QuantizedEmbedding"

    def __repr__(self) -> str:
        return f"{self._get_name()}({self.extra_repr()})"

    def extra_repr(self) -> str:
        return (
            f"num_embeddings={self.num_embeddings}, embedding_dim={self.embedding_dim}, dtype={self.dtype}, "
            f"qscheme={self.weight().qscheme()}"
        )

    def forward(self, indices: Any) -> Any:
        return _quantized_ops.embedding_byte(self._packed_params._packed_weight, indices)

    def set_weight(self, w: Any) -> None:
        self._packed_params.set_weight(w)

    def weight(self) -> Any:
        return self._packed_params._weight()

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Returns the quantised form of an embedding."""
        observer = getattr(mod, "weight_fake_quant", None)
        if observer is None:
            check_kind(cls, mod, cls._FLOAT_MODULE)
            if mod.qconfig is None or mod.qconfig.weight is None:
                raise AssertionError(
                    "Embedding quantization needs a qconfig such as float_qparams_weight_only_qconfig"
                )
            observer = mod.qconfig.weight()
        if not use_precomputed_fake_quant:
            observer(mod.weight)
        if observer.dtype not in (quint8, quint4x2):
            raise AssertionError(
                f"The weight of an embedding must be quint8 or quint4x2, got {observer.dtype}"
            )
        new = cls._like(mod, observer.dtype)
        new.set_weight(quantized_weight(mod.weight, observer))
        return new

    @classmethod
    def _like(cls, mod: Any, dtype: Any) -> Any:
        return cls(mod.num_embeddings, mod.embedding_dim, dtype=dtype)


class EmbeddingBag(Embedding):
    """Sums or means of rows of a table of 8-bit or 4-bit integers."""

    _FLOAT_MODULE: tuple = (_EmbeddingBag,)

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "sum",
        sparse: bool = False,
        _weight: Any = None,
        include_last_offset: bool = False,
        dtype: Any = quint8,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, _weight=_weight, dtype=dtype)
        self.mode, self.include_last_offset, self.pruned_weights = mode, include_last_offset, False

    def _get_name(self) -> str:
        return "QuantizedEmbeddingBag"

    def forward(
        self,
        indices: Any,
        offsets: Any = None,
        per_sample_weights: Any = None,
        compressed_indices_mapping: Any = None,
    ) -> Any:
        modes = {"sum": 0, "mean": 1}
        if self.mode not in modes:
            raise NotImplementedError(
                f"EmbeddingBag: mode {self.mode!r} is not quantized; 'sum' and 'mean' are"
            )
        return _quantized_ops.embedding_bag_byte(
            self._packed_params._packed_weight,
            indices,
            offsets,
            mode=modes[self.mode],
            per_sample_weights=per_sample_weights,
            compressed_indices_mapping=compressed_indices_mapping,
            include_last_offset=self.include_last_offset,
        )

    @classmethod
    def _like(cls, mod: Any, dtype: Any) -> Any:
        return cls(
            mod.num_embeddings,
            mod.embedding_dim,
            mode=mod.mode,
            include_last_offset=mod.include_last_offset,
            dtype=dtype,
        )
