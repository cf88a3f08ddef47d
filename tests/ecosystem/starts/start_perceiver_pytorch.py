"""Cross attention from latents to an image."""

from made import data, fill, show
from perceiver_pytorch import Perceiver, PerceiverIO

model = Perceiver(input_channels=3, input_axis=2, num_freq_bands=2, max_freq=4.0, depth=1, num_latents=6, latent_dim=16,
                  cross_heads=1, latent_heads=2, cross_dim_head=8, latent_dim_head=8, num_classes=5)  # fmt: skip
out = fill(model)(data(2, 8, 8, 3))
show("classes", out)
out.pow(2).mean().backward()
show("gradient", model.latents.grad)
general = PerceiverIO(dim=8, queries_dim=8, logits_dim=4, depth=1, num_latents=6, latent_dim=16)
show("general", fill(general)(data(2, 9, 8), queries=data(5, 8)))
