"""What convolutions of every execution model but GPUs' share."""

from __future__ import annotations

from typing import ClassVar, cast

from silicast.kernels.convolution.conv2d import Conv2d
from silicast.kernels.execution_models.fallback_kernels import Fallback
from silicast.kernels.registry import implementation_for

_ON_GPUS = cast("Conv2d", implementation_for("conv2d", "simt"))


class Conv2dElsewhere(Fallback):
    """Sizes, formats and gradients are those of the SIMT catalog's convolutions."""

    family: ClassVar[str] = "conv2d"
    original = _ON_GPUS
    dtypes = _ON_GPUS.dtypes
    dims = _ON_GPUS.dims
    lessening = _ON_GPUS.lessening
