"""Rows of training steps whose time is mostly matrix products: transformers, with larger batches
and longer texts than in `bench/programs.py`. Steps in float32 count against PyTorch's in float32; those of
`set_float32_matmul_precision("high")`, which PyTorch's CPU products ignore, and of bfloat16 autocast too.
"""

from __future__ import annotations

from programs import BERT, GPT2, LLAMA, VIT, VIT_TAIL
from rows import Group, training


def resized(program: str, **sizes: str) -> str:
    """Returns the program with each text replaced by another one, which must occur."""
    for old, new in (pair.split(" -> ") for pair in sizes.values()):
        assert old in program, f"'{old}' is not in the program"
        program = program.replace(old, new)
    return program


HIGH = """
plain_step = step

def step():
    torch.set_float32_matmul_precision("high")
    try:
        return plain_step()
    finally:
        torch.set_float32_matmul_precision("highest")
"""
# The loss in a region of autocast; backward and the optimizer as before.
AUTOCAST = """
plain_loss_of = loss_of

def loss_of():
    with torch.autocast("cpu", torch.bfloat16):
        return plain_loss_of()
"""

GPT2_STEP = resized(
    GPT2,
    context="block_size: int = 128 -> block_size: int = 256",
    tokens="50304, 1, 128 -> 50304, 2, 256",
)
BERT_STEP = resized(
    BERT,
    mask="attention = torch.ones(2, 64 -> attention = torch.ones(8, 128",
    tokens="30522, 2, 64 -> 30522, 8, 128",
    labels="random_labels(2, 2) -> random_labels(2, 8)",
)
LLAMA_STEP = resized(LLAMA, tokens="2048, 2, 64 -> 2048, 8, 128")
VIT_STEP = (
    VIT
    + "\nmodel = ViT(384, 12, 6)\n"
    + resized(VIT_TAIL, images="4, 3, 64, 64 -> 16, 3, 64, 64", labels="1000, 4 -> 1000, 16")
)

TRANSFORMERS = Group(
    "transformers",
    "Training steps of transformers",
    threads=2,
    unit="ms",
    rows=[
        training("GPT-2 small step, batch 2x256", GPT2_STEP, (), reach=0.85),
        training("GPT-2 small step, high", GPT2_STEP + HIGH, (), peer_setup=GPT2_STEP, reach=0.70),
        training("GPT-2 small step, bfloat16 autocast", GPT2_STEP + AUTOCAST, (), reach=0.60, tolerance=3e-2),
        training("BERT-base step, batch 8x128", BERT_STEP, (), reach=0.82),
        training("ViT 12x384 step, batch 16", VIT_STEP, (), reach=0.82),
        training("LLaMA-style 6x256 step, batch 8x128", LLAMA_STEP, (), reach=0.82),
    ],
)
