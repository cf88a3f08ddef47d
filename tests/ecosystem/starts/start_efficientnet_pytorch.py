"""EfficientNet-B0 and its features."""

from efficientnet_pytorch import EfficientNet
from made import data, fill, show

model = fill(EfficientNet.from_name("efficientnet-b0", num_classes=5)).eval()
x = data(1, 3, 32, 32)
show("logits", model(x))
show("features", model.extract_features(x))
show("endpoints", {k: list(v.shape) for k, v in model.extract_endpoints(x).items()})
