"""Models, transforms and operators of images."""

import torch
import torchvision
from made import data, fill, show, uniform
from torchvision.transforms import v2

with torch.no_grad():
    show("resnet", fill(torchvision.models.resnet18(num_classes=5)).eval()(data(1, 3, 32, 32)))
    show("mobile", fill(torchvision.models.mobilenet_v3_small(num_classes=5)).eval()(data(1, 3, 32, 32)))
image = uniform(3, 16, 16)
show("resized", v2.Resize((8, 8), antialias=True)(image))
show(
    "changed",
    v2.Compose([v2.CenterCrop(12), v2.Normalize([0.5] * 3, [0.5] * 3), v2.functional.hflip])(image)
    if False
    else v2.CenterCrop(12)(image),
)
show("bright", v2.functional.adjust_brightness(image, 0.7))
show("grid", torchvision.utils.make_grid(uniform(4, 3, 8, 8), nrow=2))
show("overlap", torchvision.ops.box_iou(torch.tensor([[0.0, 0, 2, 2]]), torch.tensor([[1.0, 1, 3, 3]])))
show("focal", torchvision.ops.sigmoid_focal_loss(data(4), (data(4, seed=1) > 0).float(), reduction="mean"))
