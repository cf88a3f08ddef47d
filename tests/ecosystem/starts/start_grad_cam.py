"""Maps of what a convolutional network looks at."""

import torch
from made import data, fill, show
from pytorch_grad_cam import EigenCAM, GradCAM, GradCAMPlusPlus
from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

model = fill(
    torch.nn.Sequential(
        torch.nn.Conv2d(3, 6, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(6, 3),
    )  # fmt: skip
)
for method in (GradCAM, GradCAMPlusPlus, EigenCAM):
    with method(model=model, target_layers=[model[0]]) as cam:
        show(method.__name__, cam(input_tensor=data(2, 3, 12, 12), targets=[ClassifierOutputTarget(1)] * 2))
