"""Attention in many forms: masks, biases, grouped heads, blocks of a transformer, jagged batches, flexible scores, caches, backends."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

rng = np.random.RandomState(2)
torch.set_printoptions(precision=3, sci_mode=False)


def tensor(*sizes, scale=1.0):
    return torch.from_numpy(rng.randn(*sizes).astype(np.float32)) * scale


def attend(q, k, v, mask=None, is_causal=False, scale=None):
    scale = 1 / math.sqrt(q.size(-1)) if scale is None else scale
    scores = q @ k.transpose(-2, -1) * scale
    if is_causal:
        mask = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf")) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ v


q, k, v = tensor(2, 4, 5, 8), tensor(2, 4, 7, 8), tensor(2, 4, 7, 6)
mask = torch.from_numpy(rng.rand(5, 7) > 0.3)
mask[:, 0] = True
bias = tensor(1, 4, 5, 7)
for options in ({}, {"attn_mask": mask}, {"attn_mask": bias}, {"is_causal": True}, {"scale": 0.3}):
    mine = attend(q, k, v, options.get("attn_mask"), options.get("is_causal", False), options.get("scale"))
    print(
        sorted(options), torch.allclose(F.scaled_dot_product_attention(q, k, v, **options), mine, atol=1e-5)
    )
with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
    print(F.scaled_dot_product_attention(q, k, v)[0, 0, 0])
print(F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True).shape)
print(
    type(causal_upper_left(5, 7)),
    torch.allclose(
        F.scaled_dot_product_attention(q, k, v, causal_upper_left(5, 7)),
        attend(q, k, v, is_causal=True),
        atol=1e-5,
    ),
)
lower = torch.ones(5, 7, dtype=torch.bool).tril(2)
print(
    isinstance(causal_lower_right(5, 7), CausalBias),
    torch.allclose(
        F.scaled_dot_product_attention(q, k, v, causal_lower_right(5, 7)), attend(q, k, v, lower), atol=1e-5
    ),
)


class CausalSelfAttention(nn.Module):
    def __init__(self, num_heads, embed_dimension, bias=False, is_causal=False, dropout=0.0):
        super().__init__()
        self.c_attn = nn.Linear(embed_dimension, 3 * embed_dimension, bias=bias)
        self.c_proj = nn.Linear(embed_dimension, embed_dimension, bias=bias)
        self.dropout, self.num_heads, self.is_causal = dropout, num_heads, is_causal

    def forward(self, x):
        query, key, value = self.c_attn(x).chunk(3, -1)
        query, key, value = (
            t.view(x.size(0), -1, self.num_heads, x.size(-1) // self.num_heads).transpose(1, 2)
            for t in (query, key, value)
        )
        y = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=self.is_causal
        )
        return self.c_proj(y.transpose(1, 2).reshape(x.shape))


def filled(net, scale=0.3):
    for p in net.parameters():
        p.data = tensor(*p.shape, scale=scale)
    return net


model = filled(CausalSelfAttention(4, 16, is_causal=True)).eval()
x = tensor(3, 6, 16)
out = model(x)
print(out.shape, out[0, 0, :4].detach())
out.pow(2).mean().backward()
print({n: round(p.grad.norm().item(), 4) for n, p in model.named_parameters()})

# ---- a batch of different lengths
lengths = [2, 5, 3]
parts = [tensor(n, 16) for n in lengths]
ragged = torch.nested.nested_tensor(parts, layout=torch.jagged)
print(ragged.is_nested, ragged.size(0), ragged.offsets().tolist(), ragged.values().shape)


class MultiHead(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.packed, self.out, self.heads = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), heads

    def forward(self, x, is_causal=False):
        q, k, v = (
            t.unflatten(-1, [self.heads, -1]).transpose(1, 2) for t in torch.chunk(self.packed(x), 3, dim=-1)
        )
        return self.out(
            F.scaled_dot_product_attention(q, k, v, is_causal=is_causal).transpose(1, 2).flatten(-2)
        )


mha = filled(MultiHead(16, 2)).eval()
with torch.no_grad():
    packed = mha.packed(ragged)
    print([torch.allclose(a, mha.packed(b), atol=1e-5) for a, b in zip(packed.unbind(), parts)])
    padded = torch.nested.to_padded_tensor(packed, 0.0)
    print(padded.shape, padded[0, 2:].abs().sum())
    alone = [mha(p.unsqueeze(0)).squeeze(0) for p in parts]
lengths_t = torch.tensor(lengths)
keep = torch.arange(5) < lengths_t.unsqueeze(1)
dense = nn.utils.rnn.pad_sequence(parts, batch_first=True)
q, k, v = (t.unflatten(-1, [2, -1]).transpose(1, 2) for t in mha.packed(dense).chunk(3, -1))
y = mha.out(F.scaled_dot_product_attention(q, k, v, keep[:, None, None, :]).transpose(1, 2).flatten(-2))
print(torch.allclose(y[keep], torch.cat(alone), atol=1e-5))

# ---- scores by functions
q, k, v = tensor(1, 2, 16, 8), tensor(1, 2, 16, 8), tensor(1, 2, 16, 8)


def relative(score, b, h, q_idx, kv_idx):
    return score + (q_idx - kv_idx) * 0.1


def alibi(score, b, h, q_idx, kv_idx):
    return score - torch.exp2(-(h + 1) * 1.0) * (q_idx - kv_idx).abs()


def sliding(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx <= 4)


at = torch.arange(16)
with torch.no_grad():
    dist = (at[:, None] - at[None]).float()
    print(torch.allclose(flex_attention(q, k, v, score_mod=relative), attend(q, k, v, dist * 0.1), atol=1e-5))
    slopes = torch.exp2(-torch.arange(1.0, 3.0)).view(1, 2, 1, 1)
    print(
        torch.allclose(
            flex_attention(q, k, v, score_mod=alibi), attend(q, k, v, -slopes * dist.abs()), atol=1e-5
        )
    )
    block = create_block_mask(sliding, None, None, 16, 16, device="cpu")
    print(
        torch.allclose(
            flex_attention(q, k, v, block_mask=block), attend(q, k, v, (dist >= 0) & (dist <= 4)), atol=1e-5
        )
    )

# ---- modules, a cache, weights of attention
layer = filled(
    nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, norm_first=True), 0.2
).eval()
causal = nn.Transformer.generate_square_subsequent_mask(6)
print(layer(x, src_mask=causal, is_causal=True)[0, -1, :4].detach())
m = filled(nn.MultiheadAttention(16, 4, batch_first=True, kdim=8, vdim=8))
out, weights = m(x, tensor(3, 7, 8), tensor(3, 7, 8), key_padding_mask=torch.arange(7).expand(3, 7) >= 5)
print(out.shape, weights.shape, weights.sum(-1).allclose(torch.ones(3, 6)), weights[..., 5:].sum())
_, heads = m(x, tensor(3, 7, 8), tensor(3, 7, 8), average_attn_weights=False)
print(heads.shape)
cache_k = torch.zeros(3, 2, 6, 8)
cache_v = torch.zeros(3, 2, 6, 8)
steps = []
with torch.no_grad():
    for t in range(6):
        q, k, v = (s.unflatten(-1, [2, -1]).transpose(1, 2) for s in mha.packed(x[:, t : t + 1]).chunk(3, -1))
        cache_k[:, :, t : t + 1], cache_v[:, :, t : t + 1] = k, v
        y = F.scaled_dot_product_attention(q, cache_k[:, :, : t + 1], cache_v[:, :, : t + 1])
        steps.append(mha.out(y.transpose(1, 2).flatten(-2)))
    print(torch.allclose(torch.cat(steps, 1), mha(x, is_causal=True), atol=1e-5))
