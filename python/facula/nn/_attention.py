"""Multi-head attention of ``facula.nn.functional``: projections around the operator."""

from __future__ import annotations

import math
import warnings
from typing import Any

from .. import _C

Tensor = _C.Tensor
_f = _C.functions
_op = _C.nn_functional


def _additive(mask: Tensor | None, name: str, other: Tensor | None, other_name: str, dtype: Any) -> Any:
    """A boolean mask (True: left out) as numbers to be added to the scores."""
    if mask is None:
        return None
    if mask.dtype != _C.bool and not mask.is_floating_point():
        raise AssertionError(f"only bool and floating types of {name} are supported")
    if other is not None and mask.dtype != other.dtype:
        warnings.warn(
            f"Support for mismatched {name} and {other_name} is deprecated. Use same type for both instead.",
            stacklevel=3,
        )
    if mask.dtype == _C.bool:
        return _f.zeros_like(mask, dtype=dtype).masked_fill(mask, float("-inf"))
    return mask


def _check_shapes(
    query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, heads: int
) -> bool:
    """Is there a batch dimension?"""
    if query.dim() not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor"
        )
    batched = query.dim() == 3
    kind = "batched (3-D)" if batched else "unbatched (2-D)"
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"For {kind} `query`, expected `key` and `value` to be {query.dim()}-D but found "
            f"{key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != query.dim() - 1:
        raise AssertionError(
            f"For {kind} `query`, expected `key_padding_mask` to be `None` or {query.dim() - 1}-D but found "
            f"{padding.dim()}-D tensor instead"
        )
    if mask is not None:
        if mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {kind} `query`, expected `attn_mask` to be `None`, 2-D or 3-D but found "
                f"{mask.dim()}-D tensor instead"
            )
        expected = (heads, query.shape[0], key.shape[0])
        if not batched and mask.dim() == 3 and mask.shape != expected:
            raise AssertionError(f"Expected `attn_mask` shape to be {expected} but got {tuple(mask.shape)}")
    return batched


def _thirds(name: str, t: Tensor) -> Any:
    pieces = t.chunk(3)
    if len(pieces) != 3:
        raise ValueError(f"{name} of shape {tuple(t.shape)} has no parts for query, key and value")
    return pieces


def _projected(
    query: Tensor, key: Tensor, value: Tensor, weight: Any, separate: Any, bias: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values: one product where the operands are one."""
    width = query.shape[-1]
    if separate is None and key is value and weight.shape[:1] != (3 * width,):
        expected = (3 * width, width)
        raise RuntimeError(f"expected in_proj_weight of shape {expected}, got {tuple(weight.shape)}")
    if separate is None and query is key and key is value:
        q, k, v = _op.linear(query, weight, bias).split(width, -1)
        return q, k, v
    if separate is None and key is value:
        w_q, w_kv = weight.split([width, 2 * width])
        b_q, b_kv = (None, None) if bias is None else bias.split([width, 2 * width])
        k, v = _op.linear(key, w_kv, b_kv).split(width, -1)
        return _op.linear(query, w_q, b_q), k, v
    w_q, w_k, w_v = _thirds("in_proj_weight", weight) if separate is None else separate
    b_q, b_k, b_v = (None, None, None) if bias is None else _thirds("in_proj_bias", bias)
    return _op.linear(query, w_q, b_q), _op.linear(key, w_k, b_k), _op.linear(value, w_v, b_v)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of ``num_heads`` heads over ``[positions, batch, width]`` or ``[positions, width]``, with the
    weights ``[batch, positions, keys]`` if they are asked for. Without them no matrix of scores is made.
    Vaswani et al., 2017.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same_key, same_value = key is query, value is key
        query = query.unsqueeze(1)
        key = query if same_key else key.unsqueeze(1)
        value = key if same_value else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    rows, batch, width = query.shape
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if width != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    head_dim = width // num_heads
    if head_dim * num_heads != width:
        raise AssertionError(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(
                f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}"
            )
    elif key.shape != value.shape:
        raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")

    padding = _additive(key_padding_mask, "key_padding_mask", attn_mask, "attn_mask", query.dtype)
    plain_causal = is_causal and padding is None and not need_weights
    mask = None if plain_causal else _additive(attn_mask, "attn_mask", None, "", query.dtype)
    if mask is not None:
        expected: tuple = (rows, key.shape[0])
        if mask.dim() == 3:
            expected = (batch * num_heads, *expected)
        if tuple(mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the {mask.dim()}D attn_mask is {tuple(mask.shape)}, but should be {expected}."
            )
        mask = mask.view(batch, num_heads, *mask.shape[1:]) if mask.dim() == 3 else mask

    separate = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(query, key, value, in_proj_weight, separate, in_proj_bias)
    added = 0  # keys beyond the given ones, which no mask leaves out
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value.")
        k, v = (_f.cat([t, b.expand(1, batch, width)]) for t, b in ((k, bias_k), (v, bias_v)))
        added += 1
    heads = lambda t: t.view(t.shape[0], batch, num_heads, head_dim).permute(1, 2, 0, 3)  # noqa: E731
    q = heads(q)
    k, v = (
        heads(t) if given is None else given.view(batch, num_heads, -1, head_dim)
        for t, given in ((k, static_k), (v, static_v))
    )
    if add_zero_attn:
        zeros = _f.zeros([batch, num_heads, 1, head_dim], dtype=k.dtype, device=k.device)
        k, v = _f.cat([k, zeros], 2), _f.cat([v, zeros], 2)
        added += 1
    widen = lambda m: m if m is None or not added else _f.constant_pad_nd(m, [0, added], 0)  # noqa: E731
    mask, padding = widen(mask), widen(padding)
    if padding is not None:
        if tuple(padding.shape) != (batch, k.shape[2]):
            raise AssertionError(
                f"expecting key_padding_mask shape of {(batch, k.shape[2] - added)}, but got "
                f"{(padding.shape[0], padding.shape[1] - added)}"
            )
        padding = padding.view(batch, 1, 1, k.shape[2])
        mask = padding if mask is None else mask + padding
    p = dropout_p if training else 0.0

    weights = None
    if need_weights:
        scores = (q * math.sqrt(1.0 / head_dim)) @ k.transpose(-2, -1)
        weights = _f.softmax(scores if mask is None else scores + mask, -1)
        if p > 0:
            weights = _f.dropout(weights, p)
        y = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        y = _op.scaled_dot_product_attention(q, k, v, mask, p, plain_causal)
    y = _op.linear(y.transpose(1, 2).reshape(batch, rows, width), out_proj_weight, out_proj_bias)
    if batched:
        return y.transpose(0, 1), weights
    return y.squeeze(0), None if weights is None else weights.squeeze(0)
