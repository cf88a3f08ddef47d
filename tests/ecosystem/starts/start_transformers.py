"""Small transformers of made weights: trained, generating, saved and loaded."""

from made import data, fill, show, train, whole
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    T5Config,
    T5ForConditionalGeneration,
    ViTConfig,
    ViTModel,
)  # fmt: skip

tokens = whole(2, 8, below=40)
shape = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}
llama = fill(LlamaForCausalLM(LlamaConfig(**shape, max_position_embeddings=32)))
show("losses", train(llama.parameters(), lambda: llama(input_ids=tokens, labels=tokens).loss, lr=0.1))
show("generated", llama.eval().generate(tokens[:1], max_new_tokens=5, do_sample=False, pad_token_id=0))
llama.save_pretrained("llama")
show("loaded", AutoModelForCausalLM.from_pretrained("llama")(tokens).logits)
bert = fill(BertForSequenceClassification(BertConfig(**shape, num_labels=3))).eval()
show("bert", bert(tokens, attention_mask=(tokens > 3).long()).logits)
gpt = fill(GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=1, n_head=2))).eval()
show("gpt", gpt(tokens).logits)
t5 = fill(
    T5ForConditionalGeneration(
        T5Config(
            vocab_size=40,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
        )
    )
).eval()
show("t5", t5(input_ids=tokens, labels=tokens).loss)
vit = fill(
    ViTModel(
        ViTConfig(
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=32,
            image_size=16,
            patch_size=8,
        )
    )
)
show("vit", vit.eval()(data(1, 3, 16, 16)).last_hidden_state)
