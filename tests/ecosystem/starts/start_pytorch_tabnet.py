"""The network of TabNet and a fitted classifier."""

import numpy as np
import torch
from made import data, fill, show
from pytorch_tabnet.tab_model import TabNetClassifier
from pytorch_tabnet.tab_network import TabNet

network = fill(TabNet(6, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(6))).eval()
out, sparsity = network(data(8, 6))
show("out", out)
show("sparsity", sparsity)
show("masks", list(network.forward_masks(data(8, 6)))[0])
x = np.random.RandomState(0).randn(64, 6).astype(np.float32)
y = (x[:, 0] > 0).astype(int)
model = TabNetClassifier(n_d=4, n_a=4, n_steps=2, verbose=0, seed=0)
model.fit(x, y, max_epochs=3, batch_size=32, virtual_batch_size=16)
show("probabilities", list(model.predict_proba(x).shape))
