"""A network as an estimator of scikit-learn."""

import numpy as np
import torch
from made import fill, show
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from skorch import NeuralNetClassifier
from skorch.callbacks import EpochScoring

x = np.random.RandomState(0).randn(40, 4).astype(np.float32)
y = (x.sum(1) > 0).astype(np.int64)
network = fill(
    torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2), torch.nn.Softmax(-1))
)
classifier = NeuralNetClassifier(
    network,
    max_epochs=4,
    lr=0.1,
    iterator_train__shuffle=False,
    verbose=0,
    callbacks=[EpochScoring("accuracy", name="scored")],
)
pipeline = Pipeline([("scale", StandardScaler()), ("net", classifier)]).fit(x, y)
show("losses", classifier.history[:, "train_loss"])
show("scored", [float(v) for v in classifier.history[:, "scored"]])
show("probabilities", pipeline.predict_proba(x))
classifier.save_params(f_params="p.pt", f_optimizer="o.pt")
classifier.load_params(f_params="p.pt", f_optimizer="o.pt")
show("accuracy", float(pipeline.score(x, y)))
