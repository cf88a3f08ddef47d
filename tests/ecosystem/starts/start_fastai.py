"""A learner of a small network."""

import torch
from fastai.basics import CrossEntropyLossFlat, DataLoader, DataLoaders, Learner, accuracy
from fastai.callback.progress import ProgressCallback
from fastai.callback.schedule import ParamScheduler, SchedCos
from made import data, fill, show, whole

items = [(x, y) for x, y in zip(data(32, 4), whole(32, below=3))]
loaders = DataLoaders(DataLoader(items, bs=8), DataLoader(items, bs=8))
model = fill(torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3)))
learner = Learner(loaders, model, loss_func=CrossEntropyLossFlat(), metrics=accuracy)
learner.remove_cb(ProgressCallback)
with learner.no_logging():
    learner.fit(2, cbs=ParamScheduler({"lr": SchedCos(0.01, 0.001)}))
    show("validated", learner.validate())
show("values", [list(map(float, v)) for v in learner.recorder.values])
show("predicted", learner.get_preds(dl=loaders.valid)[0])
