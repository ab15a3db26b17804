"""Programs of pipelines that make images from text by diffusion; for the suite "diffusion".

A pipeline is three programs: text encoders (once), a step of the denoiser with guidance and the
scheduler's update (many times), the decoder of latent images (once). Modules have no weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

from lab.scorecard.traces import kept
from silicast.core.decode import read_toml
from silicast.workload.front_ends.packages_diffusers import INPUTS
from silicast.workload.front_ends.programs import graph_of, require
from silicast.workload.graphs.graph import Graph

_TEXTS: Mapping[str, Mapping[str, int]] = {
    "clip-l": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
    },
    "openclip-h": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 23,
        "num_attention_heads": 16,
    },
    "openclip-bigg": {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_attention_heads": 20,
    },
    "t5-xxl": {"d_model": 4096, "d_kv": 64, "d_ff": 10240, "num_layers": 24, "num_heads": 64},
}
"""Sizes of text encoders, recalled: CLIP ViT-L/14, OpenCLIP ViT-H and ViT-bigG, T5 1.1 XXL."""


@final
@dataclass(frozen=True)
class Pipeline:
    """A pipeline, as ``diffusion_pipelines.toml`` states it."""

    name: str
    denoiser: str
    config: Mapping[str, Any]
    latent: int
    guided: bool
    texts: tuple[tuple[str, int, str], ...]
    decoder_dtype: str
    parameters_m: float
    source: str

    def programs(self, images: int, steps: int) -> Iterator[tuple[str, Graph, int]]:
        """Part, program and how often it runs, for one batch.

        Raises:
            SilicastError: PyTorch, diffusers or transformers is missing, or does not export.
        """
        prompts = images * (2 if self.guided else 1)
        for kind, tokens, size in self.texts:
            yield f"text {size}", _text(kind, tokens, size, prompts), 1
        yield "denoiser", self._step(images), steps
        channels = self.config.get("in_channels", 4)
        yield "decoder", _decoder(channels, self.latent, images, self.decoder_dtype), 1

    def module(self) -> Any:
        """The denoiser; its parameters hold no data."""
        torch, diffusers = require("torch", "PyTorch"), require("diffusers")
        # TOML has no null, and the fields that need one are names
        config = {key: None if value == "" else value for key, value in self.config.items()}
        with torch.device("meta"):
            return getattr(diffusers, self.denoiser)(**config)

    def _step(self, images: int) -> Graph:
        def trace() -> Graph:
            torch = require("torch", "PyTorch")
            module = self.module()
            inputs, sizes = INPUTS[self.denoiser](dict(module.config))
            times = 2 if self.guided else 1
            sizes = {**sizes, "latent": self.latent, "batch": images * times}
            arguments = _filled(inputs, sizes)
            sample = "sample" if "sample" in arguments else "hidden_states"
            arguments[sample] = arguments[sample][:images]
            step = _step_class()(module.half(), sample, times)
            with torch.device("meta"):
                return graph_of(step, (arguments,), dtype="fp16", name=self.name)

        return kept(f"denoiser-{self.name}", repr((self, images)), trace, ("diffusers",))


@cache
def pipelines() -> Mapping[str, Pipeline]:
    """By name."""
    tables = read_toml(Path(__file__).with_name("diffusion_pipelines.toml"))
    return {
        name: Pipeline(name=name, **{**table, "texts": tuple(map(tuple, table["texts"]))})
        for name, table in tables.items()
    }


def _filled(inputs: Any, sizes: Mapping[str, int]) -> Any:
    torch = require("torch", "PyTorch")
    if isinstance(inputs, Mapping):
        return {name: _filled(item, sizes) for name, item in inputs.items()}
    shape = [sizes.get(size, size) for size in inputs.shape]
    dtype = torch.int64 if inputs.dtype == "int64" else torch.float16
    return torch.empty(shape, dtype=dtype, device="meta")


@cache
def _step_class() -> Any:
    torch = require("torch", "PyTorch")

    class Step(torch.nn.Module):  # type: ignore[misc, name-defined]
        """A call of the denoiser, guidance (Ho and Salimans 2022) and Euler's update."""

        def __init__(self, module: Any, sample: str, times: int) -> None:
            super().__init__()
            self.module, self.sample, self.times = module, sample, times

        def forward(self, arguments: dict[str, Any]) -> Any:
            latent = arguments[self.sample]
            doubled = torch.cat([latent] * self.times)
            result = self.module(**{**arguments, self.sample: doubled}, return_dict=False)[0]
            if self.times > 1:
                plain, prompted = result.chunk(2)
                result = plain + 7.5 * (prompted - plain)
            return latent + 0.1 * result

    return Step


def _text(kind: str, tokens: int, size: str, prompts: int) -> Graph:
    def trace() -> Graph:
        torch, transformers = require("torch", "PyTorch"), require("transformers")
        config_class = {"CLIPTextModel": "CLIPTextConfig", "T5EncoderModel": "T5Config"}[kind]
        options = {"feed_forward_proj": "gated-gelu"} if kind.startswith("T5") else {}
        config = getattr(transformers, config_class)(**_TEXTS[size], **options)
        with torch.device("meta"):
            module = getattr(transformers, kind)(config)
            words = torch.empty(prompts, tokens, dtype=torch.int64)
        return graph_of(module.half(), (words,), {"return_dict": False}, dtype="fp16", name=size)

    return kept(
        f"text-{size}", repr((kind, tokens, _TEXTS[size], prompts)), trace, ("transformers",)
    )


def _decoder(channels: int, latent: int, images: int, dtype: str) -> Graph:
    """Of the autoencoder of Stable Diffusion (83.7 million parameters with its encoder)."""

    def trace() -> Graph:
        torch, diffusers = require("torch", "PyTorch"), require("diffusers")
        narrow = dtype == "fp16"
        with torch.device("meta"):
            module = diffusers.AutoencoderKL(
                down_block_types=("DownEncoderBlock2D",) * 4,
                up_block_types=("UpDecoderBlock2D",) * 4,
                block_out_channels=(128, 256, 512, 512),
                layers_per_block=2,
                latent_channels=channels,
                use_post_quant_conv=channels == 4,
            )
            image = torch.empty(images, channels, latent, latent)
        decoder = module.decoder.half() if narrow else module.decoder
        image = image.half() if narrow else image
        return graph_of(decoder, (image,), dtype=dtype, name="decoder")

    return kept("decoder", repr((channels, latent, images, dtype)), trace, ("diffusers",))
