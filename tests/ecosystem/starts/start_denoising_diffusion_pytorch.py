"""A U-Net of diffusion and its loss."""

import torch
from denoising_diffusion_pytorch import GaussianDiffusion, Unet
from made import data, fill, show, uniform

model = fill(Unet(dim=8, dim_mults=(1, 2), flash_attn=False))
diffusion = GaussianDiffusion(model, image_size=16, timesteps=10)
images, noise = uniform(2, 3, 16, 16), data(2, 3, 16, 16)
times = torch.tensor([1, 7])
show("predicted", model(images, times))
show("noisy", diffusion.q_sample(images, times, noise))
loss = diffusion.p_losses(diffusion.normalize(images), times, noise)
loss.backward()
show("loss", loss)
show("gradient", model.init_conv.weight.grad)
