"""A U-Net of volumes, losses, transforms and sliding windows."""

import torch
from made import data, fill, show, uniform
from monai.inferers import sliding_window_inference
from monai.losses import DiceCELoss, DiceLoss, FocalLoss
from monai.metrics import DiceMetric, compute_hausdorff_distance
from monai.networks.nets import UNet
from monai.transforms import Compose, NormalizeIntensity, Resize, ToTensor

model = fill(
    UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8), strides=(2,), num_res_units=1)
)
x, y = data(2, 1, 16, 16), (data(2, 1, 16, 16, seed=1) > 0).long()
out = model(x)
show("out", out)
for loss in (
    DiceLoss(to_onehot_y=True, softmax=True),
    DiceCELoss(to_onehot_y=True, softmax=True),
    FocalLoss(to_onehot_y=True),
):
    show(type(loss).__name__, loss(out, y))
out.pow(2).mean().backward()
show("gradient", next(model.parameters()).grad)
model.eval()
show("windows", sliding_window_inference(data(1, 1, 24, 24), (16, 16), 2, model))
metric = DiceMetric(include_background=True)
metric(y_pred=(out.argmax(1, keepdim=True) > 0), y=y)
show("dice", metric.aggregate())
transform = Compose([NormalizeIntensity(), Resize((8, 8)), ToTensor()])
show("transformed", torch.as_tensor(transform(uniform(1, 12, 12))))
show("distance", compute_hausdorff_distance(torch.eye(8)[None, None], torch.eye(8).flip(0)[None, None]))
