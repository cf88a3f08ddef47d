"""Medical images: transforms, subjects, patches."""

import torch
import torchio as tio
from made import show, uniform

subject = tio.Subject(
    image=tio.ScalarImage(tensor=uniform(1, 12, 12, 12)),
    label=tio.LabelMap(tensor=uniform(1, 12, 12, 12) > 0.5),
)
transform = tio.Compose(
    [
        tio.ToCanonical(),
        tio.Resample(2),
        tio.CropOrPad((8, 8, 8)),
        tio.ZNormalization(),
        tio.RescaleIntensity((0, 1)),
    ]
)
changed = transform(subject)
show("image", changed.image.data)
show("label", changed.label.data.float())
show("flipped", tio.Flip(axes=0)(subject).image.data if hasattr(tio, "Flip") else 0)
sampler = tio.inference.GridSampler(subject, 8, 4)
aggregator = tio.inference.GridAggregator(sampler)
for batch in torch.utils.data.DataLoader(sampler, batch_size=4):
    aggregator.add_batch(2 * batch["image"]["data"], batch["location"])
show("aggregated", aggregator.get_output_tensor())
