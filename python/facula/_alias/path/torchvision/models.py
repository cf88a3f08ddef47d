"""Names of models that libraries import. This replacement has no models; timm has."""

from __future__ import annotations

from typing import Any


def _absent(name: str) -> Any:
    def model(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torchvision.models.{name} is not in Facula's stand-in for torchvision; timm has such models"
        )

    model.__name__ = model.__qualname__ = name
    return model


resnet18, resnet34, resnet50 = _absent("resnet18"), _absent("resnet34"), _absent("resnet50")
alexnet, vgg16, squeezenet1_1 = _absent("alexnet"), _absent("vgg16"), _absent("squeezenet1_1")


class VGG16_Weights:
    """A name for weights, which this replacement does not have."""
