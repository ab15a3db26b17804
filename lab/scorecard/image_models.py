"""Programs of timm's image models, traced without data; for the suite "vision"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from lab.scorecard.traces import kept
from silicast.core.decode import read_toml
from silicast.workload.front_ends.packages import made_without_data
from silicast.workload.front_ends.programs import graph_of, require
from silicast.workload.graphs.graph import Graph
from silicast.workload.training.gradient_buckets import with_update

UPDATE = "sgd_momentum"
"""What timm's benchmark script trains with unless it is told otherwise; the rows do not name it."""


@final
@dataclass(frozen=True)
class ImageRun:
    """One program: an architecture on images of one size.

    Attributes:
        architecture: timm's name.
        size: pixels a side.
        channels_last: module and images are in that memory format.
        training: forward, backward and update; attention as products and softmax, as before
            PyTorch 2.
        narrow_math: attention written out stays in 16 bits, as before PyTorch 2.5.
        fast_norm: timm's own layer norms stay in 16 bits under autocast (its ``set_fast_norm``).
    """

    architecture: str
    batch: int
    size: int
    channels_last: bool = False
    training: bool = False
    narrow_math: bool = False
    fast_norm: bool = False


def families() -> Mapping[str, Mapping[str, str]]:
    """Half -> family -> the architecture that stands for it."""
    families: Mapping[str, Mapping[str, str]] = read_toml(
        Path(__file__).with_name("image_models.toml")
    )
    return families


def program_of(run: ImageRun) -> Graph:
    """The program under automatic mixed precision in fp16.

    Raises:
        SilicastError: PyTorch or timm is missing, or the module cannot be exported.
    """
    result = kept(run.architecture, repr(run), lambda: _traced(run), ("timm",))
    return with_update(result, UPDATE) if run.training else result


def _traced(run: ImageRun) -> Graph:
    torch = require("torch", "PyTorch")
    timm = require("timm")
    require("timm.layers", "timm").set_fused_attn(not run.training)
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(run.narrow_math)
    module = made_without_data(lambda: timm.create_model(run.architecture))
    for part in module.modules():  # hybrids cannot be made with it: they run as they are made
        if hasattr(part, "_fast_norm"):
            part._fast_norm = run.fast_norm  # noqa: SLF001
    images = torch.empty(run.batch, 3, run.size, run.size, device="meta")
    if run.channels_last:
        module = module.to(memory_format=torch.channels_last)
        images = images.to(memory_format=torch.channels_last)
    if run.training:
        module.train()
    return graph_of(
        module, (images,), training=run.training, autocast="fp16", name=run.architecture
    )
