"""A tiny CLIP model and its loss."""

import open_clip
import torch
from made import data, fill, show, whole
from open_clip.loss import ClipLoss

model = open_clip.CLIP(
    embed_dim=8,
    vision_cfg={"image_size": 16, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
    text_cfg={"context_length": 10, "vocab_size": 50, "width": 16, "heads": 2, "layers": 2},
)
fill(model)
images, texts = (
    model.encode_image(data(3, 3, 16, 16), normalize=True),
    model.encode_text(whole(3, 10, below=50), normalize=True),
)
show("images", images)
show("texts", texts)
loss = ClipLoss()(images, texts, torch.tensor(10.0))
loss.backward()
show("loss", loss)
show("gradient", model.text_projection.grad)
show("tokens", open_clip.tokenize(["a picture of a cat"])[0, :8])
