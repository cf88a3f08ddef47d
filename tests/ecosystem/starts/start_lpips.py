"""A perceptual distance, with random weights of its network."""

import lpips
from made import fill, show, uniform

model = fill(lpips.LPIPS(net="squeeze", pretrained=False, pnet_rand=True, verbose=False)).eval()
a, b = (2 * uniform(1, 3, 32, 32, seed=k) - 1 for k in (0, 1))
a.requires_grad_()
distance = model(a, b)
distance.sum().backward()
show("distance", distance)
show("gradient", a.grad)
show("normalized", lpips.normalize_tensor(a))
