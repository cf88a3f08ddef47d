"""A small U-Net with a schedule of noise."""

import torch
from diffusers import AutoencoderKL, DDIMScheduler, DDPMScheduler, UNet2DConditionModel, UNet2DModel
from made import data, fill, show

unet = UNet2DModel(
    sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
fill(unet)
noise, times = data(1, 3, 8, 8), torch.tensor([5])
show("noise", unet(noise, times).sample)
scheduler = DDIMScheduler(num_train_timesteps=100)
scheduler.set_timesteps(3)
image = noise
with torch.no_grad():
    for t in scheduler.timesteps:
        image = scheduler.step(unet(image, t).sample, t, image).prev_sample
show("image", image)
show("noisy", DDPMScheduler(num_train_timesteps=100).add_noise(noise, data(1, 3, 8, 8, seed=1), times))
conditional = UNet2DConditionModel(
    sample_size=8, block_out_channels=(8, 16), norm_num_groups=4, layers_per_block=1, cross_attention_dim=8,
    attention_head_dim=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
    up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
show("conditional", fill(conditional)(data(1, 4, 8, 8), times, data(1, 3, 8)).sample)
autoencoder = fill(AutoencoderKL(block_out_channels=(8,), norm_num_groups=4, latent_channels=2))
show("latent", autoencoder.encode(noise).latent_dist.mode())
