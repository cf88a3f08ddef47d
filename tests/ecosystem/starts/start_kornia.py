"""Filters, geometry, colours and losses of images."""

import kornia
import torch
from made import data, show, uniform

image = uniform(2, 3, 16, 16).requires_grad_()
blurred = kornia.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5))
show("blurred", blurred)
show("edges", kornia.filters.sobel(image))
show("canny", kornia.filters.canny(image)[0])
show("rotated", kornia.geometry.rotate(image, torch.tensor([30.0, -45.0])))
show(
    "warped",
    kornia.geometry.warp_perspective(image, torch.eye(3).repeat(2, 1, 1) + 0.01 * data(2, 3, 3), (12, 12)),
)
show("hsv", kornia.color.rgb_to_hsv(image))
show("lab", kornia.color.rgb_to_lab(image))
show("corners", kornia.feature.harris_response(image[:, :1], 0.04))
show("quaternion", kornia.geometry.axis_angle_to_quaternion(data(3, 3)))
show("ssim", kornia.losses.ssim_loss(image, image.flip(3), 5))
show("equalized", kornia.enhance.equalize(image.detach()))
blurred.pow(2).sum().backward()
show("gradient", image.grad)
