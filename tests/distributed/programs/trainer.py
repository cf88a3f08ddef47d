"""Trains a small BERT by the Trainer of transformers. Each step takes all sentences, so that their order
does not matter.
"""

import numpy as np
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    def __init__(self):
        draw = np.random.default_rng(0)
        self.ids, self.labels = draw.integers(0, 50, (32, 8)), draw.integers(0, 2, 32)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, k):
        return {"input_ids": torch.from_numpy(self.ids[k]), "labels": int(self.labels[k])}


def weights(model):
    draw = np.random.default_rng(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.from_numpy(draw.normal(0, 0.05, tuple(p.shape)).astype("float32")))


config = BertConfig(
    vocab_size=50,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config)
weights(model)
arguments = TrainingArguments(
    "out",
    per_device_train_batch_size=16,
    num_train_epochs=6,
    logging_steps=1,
    report_to=[],
    use_cpu=True,
    ddp_backend="gloo",
    learning_rate=1e-2,
    save_strategy="no",
    disable_tqdm=True,
    seed=0,
    data_seed=0,
)
trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
trainer.train()
loss = trainer.evaluate()["eval_loss"]
if trainer.is_world_process_zero():
    print("processes", arguments.world_size, "steps", trainer.state.global_step, "loss", round(loss, 5))
