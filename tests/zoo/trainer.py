"""transformers' Trainer fine-tunes a tiny random BERT: its loss must fall below a tenth of ln 2."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments


class Sentences(torch.utils.data.Dataset):
    """Of class 0 or 1 by the word that fills them."""

    def __len__(self):
        return 64

    def __getitem__(self, k):
        words = torch.full((8,), 5 + k % 2 * 7)
        words[k % 8] = k % 40
        return {"input_ids": words, "labels": torch.tensor(k % 2)}


torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
model = BertForSequenceClassification(BertConfig(vocab_size=50, **sizes))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=4,
        learning_rate=5e-3,
        report_to=[],
        disable_tqdm=True,
        no_cuda=True,
        save_strategy="no",
        seed=1,
    )
    trainer = Trainer(model, arguments, train_dataset=Sentences(), eval_dataset=Sentences())
    trainer.train()
    loss = trainer.evaluate()["eval_loss"]
assert loss < 0.07, loss
