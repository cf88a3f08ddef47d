"""Fine-tuning of a small model by its trainer."""

from datasets import Dataset
from made import fill, show
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, PrinterCallback
from trl import SFTConfig, SFTTrainer

words = ["[PAD]", "[EOS]", "[UNK]", *"a cat dog sat on the mat ran".split()]
inner = Tokenizer(models.WordLevel({w: k for k, w in enumerate(words)}, unk_token="[UNK]"))
inner.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]"
)
model = fill(
    GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(words),
            n_positions=16,
            n_embd=16,
            n_layer=1,
            n_head=2,
            resid_pdrop=0,
            embd_pdrop=0,
            attn_pdrop=0,
        )
    )
)
table = Dataset.from_dict({"text": ["the cat sat on the mat", "a dog ran on the mat"] * 2})
settings = SFTConfig(
    output_dir="out", max_steps=3, per_device_train_batch_size=4, learning_rate=0.1, logging_steps=1, report_to=[], use_cpu=True,
    disable_tqdm=True, max_length=12, bf16=False, optim="sgd", save_strategy="no", gradient_checkpointing=False,
    logging_strategy="steps",
)  # fmt: skip
trainer = SFTTrainer(model, settings, train_dataset=table, processing_class=tokenizer)
trainer.remove_callback(PrinterCallback)  # it prints times
trainer.train()
print()
show("losses", [line["loss"] for line in trainer.state.log_history if "loss" in line])
