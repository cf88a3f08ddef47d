"""Two networks without their weights."""

import torch
from made import data, fill, show
from pretrainedmodels.models import bninception, xception

with torch.no_grad():
    show("xception", fill(xception(num_classes=10, pretrained=None)).eval()(data(1, 3, 96, 96)))
    show("inception", fill(bninception(num_classes=10, pretrained=None)).eval().features(data(1, 3, 64, 64)))
