"""A small Llama: rotary embeddings, grouped queries, a cache of keys, tied weights, decay by groups, many ways to sample."""

import inspect
import math
from dataclasses import dataclass, field
from typing import Optional, Tuple

import numpy as np
import torch
import torch.nn as nn
from torch.nn import functional as F

rng = np.random.RandomState(7)
torch.manual_seed(1337)
torch.set_float32_matmul_precision("high")
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_printoptions(precision=4, sci_mode=False)
device = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float32"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
text = (
    "to be or not to be that is the question whether tis nobler in the mind to suffer the slings and arrows "
)
chars = sorted(list(set(text)))
stoi, itos = {ch: i for i, ch in enumerate(chars)}, {i: ch for i, ch in enumerate(chars)}
encode, decode = lambda s: [stoi[c] for c in s], lambda ids: "".join([itos[i] for i in ids])  # noqa: E731
data = torch.tensor(encode(text), dtype=torch.long)


@dataclass
class ModelArgs:
    dim: int = 16
    n_layers: int = 2
    n_heads: int = 4
    n_kv_heads: Optional[int] = 2
    vocab_size: int = -1
    norm_eps: float = 1e-5
    max_seq_len: int = 24
    dropout: float = 0.0
    betas: Tuple[float, float] = field(default_factory=lambda: (0.9, 0.95))


class RMSNorm(torch.nn.Module):
    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end, device=freqs.device), freqs).float()
    return torch.polar(torch.ones_like(freqs), freqs)


def apply_rotary_emb(xq: torch.Tensor, xk: torch.Tensor, freqs_cis: torch.Tensor):
    xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
    xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
    freqs_cis = freqs_cis.view([d if i in (1, xq_.ndim - 1) else 1 for i, d in enumerate(xq_.shape)])
    return torch.view_as_real(xq_ * freqs_cis).flatten(3).type_as(xq), torch.view_as_real(
        xk_ * freqs_cis
    ).flatten(3).type_as(xk)


def repeat_kv(x: torch.Tensor, n_rep: int) -> torch.Tensor:
    bs, slen, n_kv_heads, head_dim = x.shape
    return (
        x
        if n_rep == 1
        else x[:, :, :, None, :]
        .expand(bs, slen, n_kv_heads, n_rep, head_dim)
        .reshape(bs, slen, n_kv_heads * n_rep, head_dim)
    )


class Attention(nn.Module):
    def __init__(self, args: ModelArgs):
        super().__init__()
        self.n_kv_heads = args.n_heads if args.n_kv_heads is None else args.n_kv_heads
        self.n_heads, self.n_rep, self.head_dim = (
            args.n_heads,
            args.n_heads // self.n_kv_heads,
            args.dim // args.n_heads,
        )
        self.wq = nn.Linear(args.dim, args.n_heads * self.head_dim, bias=False)
        self.wk = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(args.dim, self.n_kv_heads * self.head_dim, bias=False)
        self.wo = nn.Linear(args.n_heads * self.head_dim, args.dim, bias=False)
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")
        self.cache_k = self.cache_v = None
        mask = torch.triu(torch.full((1, 1, args.max_seq_len, args.max_seq_len), float("-inf")), diagonal=1)
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x, freqs_cis, start_pos=None):
        bsz, seqlen, _ = x.shape
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk, xv = (
            self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim),
            self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim),
        )
        xq, xk = apply_rotary_emb(xq, xk, freqs_cis)
        if start_pos is not None:
            if start_pos == 0:
                self.cache_k = self.cache_v = torch.zeros(bsz, 0, self.n_kv_heads, self.head_dim)
            xk = self.cache_k = torch.cat([self.cache_k, xk], dim=1)
            xv = self.cache_v = torch.cat([self.cache_v, xv], dim=1)
        if start_pos is None:
            out = F.scaled_dot_product_attention(
                *(t.transpose(1, 2) for t in (xq, xk, xv)), is_causal=True, enable_gqa=True
            )
        else:
            keys, values = (
                repeat_kv(xk, self.n_rep).transpose(1, 2),
                repeat_kv(xv, self.n_rep).transpose(1, 2),
            )
            scores = torch.matmul(xq.transpose(1, 2), keys.transpose(2, 3)) / math.sqrt(self.head_dim)
            scores = scores + self.mask[:, :, start_pos : start_pos + seqlen, : start_pos + seqlen]
            out = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(xq), values)
        return self.wo(out.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        hidden = 8 * ((int(2 * 4 * args.dim / 3) + 7) // 8)
        self.attention, self.attention_norm, self.ffn_norm = (
            Attention(args),
            RMSNorm(args.dim, eps=args.norm_eps),
            RMSNorm(args.dim, eps=args.norm_eps),
        )
        self.feed_forward = nn.ModuleDict(
            dict(
                w1=nn.Linear(args.dim, hidden, bias=False),
                w2=nn.Linear(hidden, args.dim, bias=False),
                w3=nn.Linear(args.dim, hidden, bias=False),
            )
        )

    def forward(self, x, freqs_cis, start_pos=None):
        h = x + self.attention(self.attention_norm(x), freqs_cis, start_pos)
        n, f = self.ffn_norm(h), self.feed_forward
        return h + f.w2(F.silu(f.w1(n)) * f["w3"](n))


class Transformer(nn.Module):
    last_loss: Optional[torch.Tensor]

    def __init__(self, params: ModelArgs):
        super().__init__()
        self.params = params
        self.tok_embeddings = nn.Embedding(params.vocab_size, params.dim)
        self.layers = torch.nn.ModuleList(Block(params) for _ in range(params.n_layers))
        self.norm, self.output = (
            RMSNorm(params.dim, eps=params.norm_eps),
            nn.Linear(params.dim, params.vocab_size, bias=False),
        )
        self.tok_embeddings.weight = self.output.weight
        self.register_buffer(
            "freqs_cis",
            precompute_freqs_cis(params.dim // params.n_heads, params.max_seq_len),
            persistent=False,
        )
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith("wo.weight") or pn.endswith("w2.weight"):
                p.data.div_(math.sqrt(2 * params.n_layers))
        self.last_loss = None

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.copy_(torch.from_numpy(rng.normal(0.0, 0.25, module.weight.shape)))

    def forward(self, tokens, targets=None, start_pos=None):
        _bsz, seqlen = tokens.shape
        h = self.tok_embeddings(tokens)
        pos = start_pos or 0
        for layer in self.layers:
            h = layer(h, self.freqs_cis[pos : pos + seqlen], start_pos)
        h = self.norm(h)
        if targets is not None:
            logits = self.output(h)
            self.last_loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1
            )
            return logits
        return self.output(h[:, [-1], :])

    def configure_optimizers(self, weight_decay, learning_rate, betas, device_type):
        param_dict = {pn: p for pn, p in self.named_parameters() if p.requires_grad}
        decay_params = [p for n, p in param_dict.items() if p.dim() >= 2]
        nodecay_params = [p for n, p in param_dict.items() if p.dim() < 2]
        print(
            f"num decayed parameter tensors: {len(decay_params)}, with {sum(p.numel() for p in decay_params):,} parameters"
        )
        print(
            f"num non-decayed parameter tensors: {len(nodecay_params)}, with {sum(p.numel() for p in nodecay_params):,} parameters"
        )
        use_fused = "fused" in inspect.signature(torch.optim.AdamW).parameters and device_type == "cuda"
        groups = [
            {"params": decay_params, "weight_decay": weight_decay},
            {"params": nodecay_params, "weight_decay": 0.0},
        ]
        print(f"using fused AdamW: {use_fused}")
        return torch.optim.AdamW(
            groups, lr=learning_rate, betas=betas, **(dict(fused=True) if use_fused else dict())
        )

    @torch.inference_mode()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None, use_cache=False):
        for step in range(max_new_tokens):
            crop = idx if idx.size(1) <= self.params.max_seq_len else idx[:, -self.params.max_seq_len :]
            logits = self(
                crop if not use_cache or step == 0 else idx[:, -1:],
                start_pos=(0 if step == 0 else idx.size(1) - 1) if use_cache else None,
            )[:, -1, :]
            if temperature == 0.0:
                _, idx_next = torch.topk(logits, k=1, dim=-1)
            else:
                logits = logits / temperature
                if top_k is not None:
                    v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                    logits[logits < v[:, [-1]]] = -float("Inf")
                idx_next = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


def top_k_top_p_filtering(logits, top_k=0, top_p=0.0, filter_value=-float("Inf")):
    if top_k > 0:
        logits = logits.masked_fill(logits < torch.topk(logits, top_k)[0][..., -1, None], filter_value)
    if top_p > 0.0:
        sorted_logits, sorted_indices = torch.sort(logits, descending=True)
        cumulative_probs = torch.cumsum(F.softmax(sorted_logits, dim=-1), dim=-1)
        remove = cumulative_probs > top_p
        remove[..., 1:] = remove[..., :-1].clone()
        remove[..., 0] = 0
        logits = logits.masked_fill(remove.scatter(1, sorted_indices, remove), filter_value)
    return logits


def get_lr(it, warmup=5, decay=40, lr=2e-2, min_lr=2e-3):
    if it < warmup:
        return lr * (it + 1) / (warmup + 1)
    ratio = min((it - warmup) / (decay - warmup), 1.0)
    return min_lr + 0.5 * (1.0 + math.cos(math.pi * ratio)) * (lr - min_lr)


args = ModelArgs(vocab_size=len(chars))
model = Transformer(args).to(device)
print(args)
print(model)
print(
    "number of parameters: %.2fK" % (sum(p.numel() for p in model.parameters()) / 1e3,),
    model.tok_embeddings.weight is model.output.weight,
)
optimizer = model.configure_optimizers(1e-1, 2e-2, args.betas, device)
scaler = torch.amp.GradScaler(device, enabled=(dtype == "float16"))
ctx = torch.amp.autocast(device_type=device, dtype=ptdtype, enabled=False)
for it in range(40):
    lr = get_lr(it)
    for param_group in optimizer.param_groups:
        param_group["lr"] = lr
    for micro_step in range(2):
        ix = torch.from_numpy(rng.randint(0, len(data) - 17, (4,)))
        x = torch.stack([data[i : i + 16] for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + 16] for i in ix])
        with ctx:
            logits = model(x, y)
            loss = model.last_loss / 2
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if it < 4:
        print(f"iter {it}: loss {loss.item() * 2:.4f} lr {lr:e} norm {norm:.4f} scale {scaler.get_scale()}")
print("learnt", loss.item() * 2 < 1.2)
model.eval()
context = torch.tensor([encode("to be")], dtype=torch.long, device=device)
greedy = model.generate(context, 10, temperature=0.0)
cached = model.generate(context, 10, temperature=0.0, use_cache=True)
print(torch.equal(greedy, cached), len(decode(greedy[0].tolist())), model.layers[0].attention.cache_k.shape)
print(model.generate(context.repeat(3, 1), 5, temperature=0.8, top_k=3).shape)
logits = torch.tensor([[1.0, 3.0, 2.0, 0.5, -1.0], [0.0, 0.0, 5.0, 1.0, 1.0]])
print(top_k_top_p_filtering(logits, top_k=3))
print(top_k_top_p_filtering(logits, top_p=0.9))
penalised = torch.where(logits < 0, logits * 1.2, logits / 1.2).scatter(1, torch.tensor([[1], [2]]), -10.0)
print(penalised, F.gumbel_softmax(logits, tau=0.5, hard=True).sum(-1))


def beam_search(start, beams=3, steps=6):
    sequences, scores = start.expand(1, -1), torch.zeros(1)
    for _ in range(steps):
        log_probs = F.log_softmax(model(sequences)[:, -1], -1)
        total = scores[:, None] + log_probs
        scores, flat = total.view(-1).topk(beams)
        origin, token = torch.div(flat, total.size(1), rounding_mode="floor"), flat % total.size(1)
        sequences = torch.cat([sequences[origin], token[:, None]], 1)
    return sequences, scores


with torch.no_grad():
    found, scores = beam_search(context)
    ours = model(found[:, :-1], found[:, 1:])
    check = F.log_softmax(ours, -1).gather(2, found[:, 1:, None]).squeeze(-1)[:, 4:].sum(1)
print(found.shape, torch.allclose(check, scores, atol=1e-4), bool((scores[:-1] >= scores[1:]).all()))
perplexity = torch.exp(
    F.cross_entropy(ours.flatten(0, 1), found[:, 1:].flatten(), reduction="none").view(3, -1).mean(1)
)
print(perplexity.shape, perplexity.dtype, sorted(model.state_dict())[:3], "freqs_cis" in model.state_dict())
alibi = (
    torch.tensor([2 ** (-8 / 4 * (i + 1)) for i in range(4)]).view(4, 1, 1)
    * -(torch.arange(5)[:, None] - torch.arange(5)).abs().tril()
)
print(alibi[1])
