"""A network of X-ray images without its weights."""

import torch
import torchxrayvision as xrv
from made import data, fill, show

model = fill(xrv.models.DenseNet(weights=None, num_classes=18)).eval()
with torch.no_grad():
    show("classes", model(data(1, 1, 64, 64)))
    show("features", model.features(data(1, 1, 64, 64)))
image = xrv.datasets.normalize(255 * (data(1, 32, 32).numpy() * 0 + 0.25), 255)
show("normalized", xrv.datasets.XRayCenterCrop()(image))
