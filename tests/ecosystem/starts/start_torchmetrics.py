"""Metrics, collected over batches."""

import torch
from made import data, show, uniform, whole
from torchmetrics import (
    AUROC,
    Accuracy,
    ConfusionMatrix,
    F1Score,
    MeanMetric,
    MeanSquaredError,
    MetricCollection,
    PearsonCorrCoef,
)
from torchmetrics.functional import pairwise_cosine_similarity
from torchmetrics.image import PeakSignalNoiseRatio, StructuralSimilarityIndexMeasure
from torchmetrics.text import BLEUScore

kind = {"task": "multiclass", "num_classes": 3}
metrics = MetricCollection(
    [Accuracy(**kind), F1Score(**kind, average="macro"), AUROC(**kind), ConfusionMatrix(**kind)]
)
for k in range(3):
    metrics.update(uniform(8, 3, seed=k).softmax(-1), whole(8, below=3, seed=k))
show("classified", metrics.compute())
regression = MetricCollection([MeanSquaredError(), PearsonCorrCoef()])
show("regression", regression(data(10), data(10, seed=1)))
show(
    "ssim",
    StructuralSimilarityIndexMeasure(data_range=1.0)(uniform(1, 1, 16, 16), uniform(1, 1, 16, 16, seed=1)),
)
show("psnr", PeakSignalNoiseRatio(data_range=1.0)(uniform(1, 1, 16, 16), uniform(1, 1, 16, 16, seed=1)))
show("bleu", BLEUScore(n_gram=2)(["the cat sat"], [["the cat sat down"]]))
show("cosine", pairwise_cosine_similarity(data(3, 4), data(2, 4, seed=1)))
mean = MeanMetric()
mean(torch.tensor([1.0, 2.0, 6.0]))
show("mean", mean.compute())
