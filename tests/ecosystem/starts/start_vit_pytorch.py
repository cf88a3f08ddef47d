"""Vision transformers."""

from made import data, fill, show
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cct import CCT

x = data(2, 3, 32, 32)
model = fill(ViT(image_size=32, patch_size=8, num_classes=5, dim=16, depth=2, heads=2, mlp_dim=16))
out = model(x)
show("vit", out)
out.pow(2).mean().backward()
show("gradient", model.pos_embedding.grad)
show(
    "simple",
    fill(SimpleViT(image_size=32, patch_size=8, num_classes=5, dim=16, depth=1, heads=2, mlp_dim=16))(x),
)
show(
    "cct",
    fill(
        CCT(
            img_size=32,
            embedding_dim=16,
            n_conv_layers=1,
            num_layers=1,
            num_heads=2,
            num_classes=5,
            mlp_ratio=1.0,
            positional_embedding="sine",
        )
    ).eval()(x),
)
