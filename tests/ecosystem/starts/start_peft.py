"""Low-rank adapters of a small transformer, trained and merged."""

import torch
from made import fill, show, train, whole
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel

model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=40,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
)
adapted = get_peft_model(
    fill(model), LoraConfig(r=2, target_modules=["c_attn"], lora_alpha=4, fan_in_fan_out=True)
)
fill(adapted)
tokens = whole(2, 10, below=40)
trained = [p for p in adapted.parameters() if p.requires_grad]
show("trained", [len(trained), sum(p.numel() for p in trained)])
show("losses", train(trained, lambda: adapted(input_ids=tokens, labels=tokens).loss, lr=0.1))
before = adapted(tokens).logits
merged = adapted.merge_and_unload()
show("merged", merged(tokens).logits)
show("same", bool(torch.allclose(before, merged(tokens).logits, atol=1e-3)))
