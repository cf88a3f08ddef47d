"""Layers of attention and feed-forward networks, and stacks of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ... import _C
from .. import functional as F
from .. import init
from .activation import MultiheadAttention
from .container import ModuleList
from .dropout import Dropout
from .linear import Linear
from .module import Module
from .normalization import LayerNorm

Tensor = _C.Tensor
_f = _C.functions


def _get_activation_fn(activation: str) -> Callable[[Tensor], Tensor]:
    """Returns ``F.relu`` or ``F.gelu`` by its name."""
    return _activation(activation)


def _activation(activation: str | Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


class _Layer(Module):
    """The common part of the layers of encoders and decoders."""

    __constants__ = ["norm_first"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__({"activation": F.relu, **state})  # absent in files of PyTorch before 1.2

    def _sa_block(
        self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        y, _ = self.self_attn(
            x, x, x, attn_mask=mask, key_padding_mask=padding, need_weights=False, is_causal=is_causal
        )
        return self.dropout1(y)

    def _feed_forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.dropout(self.activation(self.linear1(x))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward network, each with dropout, a residual connection and a norm.

    Shape: ``[L, N, d_model]`` (``[N, L, d_model]`` with ``batch_first``) to the same.
    Source: Vaswani et al., 2017; ``norm_first``: Xiong et al., 2020.

    >>> nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(facula.randn(2, 5, 8)).shape
    facula.Size([2, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **factory)
        self.linear1 = Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **factory)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)
        # The activation's number in PyTorch's own kernels.
        numbered = (F.relu, F.gelu)
        self.activation_relu_or_gelu = (
            numbered.index(self.activation) + 1 if self.activation in numbered else 0
        )

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            src = src + self._sa_block(self.norm1(src), *masks)
            return src + self._ff_block(self.norm2(src))
        src = self.norm1(src + self._sa_block(src, *masks))
        return self.norm2(src + self._ff_block(src))

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self._feed_forward(x))


def _copied(layer: Module) -> Module:
    try:
        return copy.deepcopy(layer)
    except TypeError as e:
        raise TypeError(f"a {type(layer).__name__} cannot be copied: {e}") from e


def _clones(layer: Module, count: int) -> ModuleList:
    return ModuleList(_copied(layer) for _ in range(count))


def _is_causal(mask: Tensor | None, flag: bool | None, size: int) -> bool:
    """Returns whether this is the mask of generate_square_subsequent_mask."""
    if flag is not None:
        return flag
    if mask is None or mask.shape[-2:] != (size, size) or mask.dim() != 2:
        return False
    if _C.is_tracing():  # its elements are not known; the mask is applied like any other
        return False
    causal = _f.full(
        [size, size],
        float("-inf"),
        dtype=mask.dtype if mask.is_floating_point() else None,
        device=mask.device,
    ).triu(1)
    return bool(
        (
            (mask if mask.is_floating_point() else _f.zeros_like(causal).masked_fill(mask, float("-inf")))
            == causal
        ).all()
    )


class TransformerEncoder(Module):
    """``num_layers`` copies of a layer, one after the other, and an optional norm.

    >>> layer = nn.TransformerEncoderLayer(8, 2, 16)
    >>> nn.TransformerEncoder(layer, 2)(facula.randn(5, 3, 8)).shape
    facula.Size([5, 3, 8])
    """

    __constants__ = ["norm"]

    def __init__(
        self,
        encoder_layer: TransformerEncoderLayer,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _clones(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        batch_first = self.layers[0].self_attn.batch_first if self.num_layers else False
        causal = _is_causal(mask, is_causal, src.shape[1 if src.dim() == 3 and batch_first else 0])
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, causal)
        return src if self.norm is None else self.norm(src)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to a memory, and a feed-forward network; each as in
    TransformerEncoderLayer.

    Shape: ``[T, N, d_model]`` and memory ``[S, N, d_model]`` (``N`` first with ``batch_first``) to the
    former.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    >>> layer(facula.randn(2, 5, 8), facula.randn(2, 7, 8)).shape
    facula.Size([2, 5, 8])
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, **factory)
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout, bias, batch_first=batch_first, **factory
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias, **factory)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, **factory)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, **factory)
        self.dropout1, self.dropout2, self.dropout3 = Dropout(dropout), Dropout(dropout), Dropout(dropout)
        self.activation = _activation(activation)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        def itself(x: Tensor) -> Tensor:
            return self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def other(x: Tensor) -> Tensor:
            return self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = tgt
        for norm, block in ((self.norm1, itself), (self.norm2, other), (self.norm3, self._ff_block)):
            x = x + block(norm(x)) if self.norm_first else norm(x + block(x))
        return x

    def _mha_block(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None,
        padding: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = {"attn_mask": mask, "key_padding_mask": padding, "is_causal": is_causal}
        y, _ = self.multihead_attn(x, memory, memory, need_weights=False, **masks)
        return self.dropout2(y)

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout3(self._feed_forward(x))


class TransformerDecoder(Module):
    """``num_layers`` copies of a layer, one after the other, and an optional norm.

    >>> layer = nn.TransformerDecoderLayer(8, 2, 16)
    >>> nn.TransformerDecoder(layer, 2)(facula.randn(5, 3, 8), facula.randn(4, 3, 8)).shape
    facula.Size([5, 3, 8])
    """

    __constants__ = ["norm"]

    def __init__(
        self, decoder_layer: TransformerDecoderLayer, num_layers: int, norm: Module | None = None
    ) -> None:
        super().__init__()
        self.layers = _clones(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch_first = self.layers[0].self_attn.batch_first if self.num_layers else False
        causal = _is_causal(tgt_mask, tgt_is_causal, tgt.shape[1 if tgt.dim() == 3 and batch_first else 0])
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, causal, memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder, whose result becomes the memory of a decoder.

    Shape: ``[S, N, d_model]`` and ``[T, N, d_model]`` (``N`` first with ``batch_first``) to the latter.
    Source: Vaswani et al., "Attention is all you need", 2017.

    >>> net = nn.Transformer(8, 2, 1, 1, 16)
    >>> net(facula.randn(7, 3, 8), facula.randn(5, 3, 8)).shape
    facula.Size([5, 3, 8])
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}

        def stack(custom: Any, stack_class: Any, layer: Any, count: int) -> Any:
            if custom is not None:
                return custom
            shape = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps)
            one = layer(*shape, batch_first, norm_first, bias, **factory)
            return stack_class(one, count, LayerNorm(d_model, layer_norm_eps, bias=bias, **factory))

        self.encoder = stack(custom_encoder, TransformerEncoder, TransformerEncoderLayer, num_encoder_layers)
        self.decoder = stack(custom_decoder, TransformerDecoder, TransformerDecoderLayer, num_decoder_layers)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        batch = 0 if self.batch_first else 1
        if src.dim() == 3 and src.shape[batch] != tgt.shape[batch]:
            raise RuntimeError(
                f"the batch number of src and tgt must be equal, got {list(src.shape)} and {list(tgt.shape)}"
            )
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(
                f"the feature number of src and tgt must be equal to d_model = {self.d_model}, "
                f"got {list(src.shape)} and {list(tgt.shape)}"
            )
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """Returns -inf where a position would see a later one, else 0."""
        return _f.full([sz, sz], float("-inf"), dtype=dtype, device=device).triu(1)

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)
