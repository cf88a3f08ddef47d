"""Attributions of a small network."""

import torch
from captum.attr import DeepLift, IntegratedGradients, LayerGradCam, Occlusion, Saliency, ShapleyValueSampling
from made import data, fill, show

model = fill(torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3)))
x = data(5, 4)
attributions, delta = IntegratedGradients(model).attribute(x, target=1, return_convergence_delta=True)
show("integrated", attributions)
show("sum", attributions.sum(1) + delta)
show("saliency", Saliency(model).attribute(x, target=0))
show("deeplift", DeepLift(model).attribute(x, target=2))
show("occlusion", Occlusion(model).attribute(x, sliding_window_shapes=(1,), target=1))
image = fill(
    torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(48, 2))
)
show("gradcam", LayerGradCam(image, image[0]).attribute(data(2, 1, 6, 6), target=1))
show("shapley", ShapleyValueSampling(lambda v: v.sum(1)).attribute(x, n_samples=2))
