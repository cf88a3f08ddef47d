"""A sentence encoder of made weights and words."""

import os

from made import fill, show
from sentence_transformers import SentenceTransformer, models, util
from transformers import BertConfig, BertModel, BertTokenizer

words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"a cat dog sat on the mat ran".split()]
os.makedirs("bert", exist_ok=True)
with open("bert/vocab.txt", "w") as f:
    f.write("\n".join(words))
BertTokenizer("bert/vocab.txt").save_pretrained("bert")
config = BertConfig(
    vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
)
fill(BertModel(config)).eval().save_pretrained("bert")
encoder = models.Transformer("bert")
model = SentenceTransformer(modules=[encoder, models.Pooling(16)], device="cpu")
embedded = model.encode(["the cat sat", "a dog ran on the mat"], convert_to_tensor=True)
show("embedded", embedded)
show("similar", util.cos_sim(embedded, embedded))
show("found", [[h["corpus_id"] for h in q] for q in util.semantic_search(embedded, embedded)])
