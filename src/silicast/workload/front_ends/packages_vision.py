"""Models of timm and of torchvision, by the names of their registries."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, ClassVar, final

from silicast.workload.front_ends.packages import Input, ModelPackage, PackagedModel

SIDE = 224
"""Of an image in pixels, where a package does not state one (the usual one of ImageNet)."""
SCENE = 800
"""Of an image with objects to be found: the shorter side that detection models resize to."""
CLIP = 16
"""Images of a film (``torchvision.transforms`` of video models)."""


@final
class Timm(ModelPackage):
    """``timm.create_model``; images as the model's configuration says."""

    package: ClassVar[str] = "timm"

    def names(self) -> Sequence[str]:
        import timm

        return list(timm.list_models())

    def model(self, name: str) -> PackagedModel | None:
        """See :class:`ModelPackage`; a name may say which weights ("vit_base_patch16_224.mae")."""
        import timm

        if not timm.is_model(name):
            return None
        module = timm.create_model(name, pretrained=False)
        channels, height, width = getattr(module, "default_cfg", {}).get(
            "input_size", (3, SIDE, SIDE)
        )
        sides = ("image", "image") if height == width else ("height", "width")
        sizes = {"batch": 1, sides[0]: height, sides[1]: width}
        return PackagedModel(module, (Input(("batch", channels, *sides)),), {}, sizes)


@final
class Torchvision(ModelPackage):
    """``torchvision.models.get_model``; images as the transforms of its weights make them."""

    package: ClassVar[str] = "torchvision"

    def names(self) -> Sequence[str]:
        from torchvision import models

        return list(models.list_models())

    def model(self, name: str) -> PackagedModel | None:
        from torchvision import models

        if name not in models.list_models():
            return None
        builder = models.get_model_builder(name)
        options = {"weights": None}
        if "weights_backbone" in inspect.signature(builder).parameters:
            options["weights_backbone"] = None
        module = builder(**options)
        weights = list(models.get_model_weights(name))
        side = _side(weights[-1]) if weights else SIDE
        image: tuple[int | str, ...] = (3, "image", "image")
        kind = builder.__module__.removeprefix("torchvision.models.").partition(".")[0]
        if kind == "detection":
            return PackagedModel(module, ([Input(image)],), {}, {"image": SCENE})
        sizes = {"batch": 1, "image": side}
        if kind == "video":
            film = Input(("batch", 3, "frames", "image", "image"))
            return PackagedModel(module, (film,), {}, {**sizes, "frames": CLIP})
        count = 2 if kind == "optical_flow" else 1
        return PackagedModel(module, (Input(("batch", *image)),) * count, {}, sizes)


def _side(weights: Any) -> int:
    """Side of the images that weights were made for; nothing is loaded for it."""
    options = getattr(weights.transforms, "keywords", {})
    least = max(weights.meta.get("min_size", (1, 1)))
    value = options.get("crop_size") or options.get("resize_size") or max(least, SIDE)
    return int(value[0] if isinstance(value, list | tuple) else value)
