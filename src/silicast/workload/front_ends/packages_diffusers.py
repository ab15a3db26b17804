"""Models of diffusers: by class, with the defaults of its configuration, or by a folder's config.

Sizes of a latent image are called ``latent``, those of an image ``image``, each in its own pixels.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import SilicastError, unsupported
from silicast.core.plain_data import json_object
from silicast.workload.front_ends.packages import FACTORY, Input, ModelPackage, PackagedModel

TEXT = 77
"""Tokens of a prompt as CLIP's text encoder gives them."""
LATENT = 64
"""Side of a latent image, where a model states none: that of 512 pixels."""
IMAGE = 512
FRAMES = 13
"""Latent images of a film of 49 (CogVideoX)."""
TIME_IDS = 6
"""Sizes and crops that condition Stable Diffusion XL."""

Config = Mapping[str, Any]
Inputs = tuple[dict[str, Any], dict[str, int]]

_TIME = Input(("batch",), "int64")


@final
class Diffusers(ModelPackage):
    """Classes of models in ``diffusers``."""

    package: ClassVar[str] = "diffusers"

    def names(self) -> Sequence[str]:
        """See :class:`ModelPackage`; those whose inputs are known."""
        return list(INPUTS)

    def model(self, name: str) -> PackagedModel | None:
        config = _config_in(Path(name)) if Path(name).exists() else {}
        kind = _class(config.get("_class_name", name))
        if kind is None:
            return None
        inputs = INPUTS.get(kind.__name__)
        if inputs is None:
            takes = ", ".join(inspect.signature(kind.forward).parameters)
            raise unsupported(
                f"no example of its inputs is known ({takes})", f"diffusers:{name}", FACTORY
            )
        module = kind.from_config(config) if config else kind()
        args, sizes = inputs(dict(module.config))
        remark = "" if config else f"sizes are the defaults of {kind.__name__}"
        return PackagedModel(module, (), {**args, "return_dict": False}, sizes, remark)


def _class(name: str) -> Any:
    """A class of models of the package; None = it has none of that name."""
    import diffusers

    kind = getattr(diffusers, name, None)
    return kind if isinstance(kind, type) and issubclass(kind, diffusers.ModelMixin) else None


def _config_in(path: Path) -> dict[str, Any]:
    file = path / "config.json" if path.is_dir() else path
    config = json_object(file)
    if "_class_name" not in config:
        raise SilicastError(
            "is no configuration of a model",
            field="_class_name",
            file=str(file),
            hint="a pipeline is several models: give the folder of one (unet, transformer, vae)",
        )
    return config


def _latent(config: Config) -> tuple[Input, dict[str, int]]:
    side = config.get("sample_size") or LATENT
    side = side[0] if isinstance(side, list | tuple) else side
    image = Input(("batch", config.get("in_channels") or 4, "latent", "latent"))
    return image, {"batch": 1, "latent": int(side)}


def _text(width: Any) -> Input:
    return Input(("batch", "text", int(width)))


def _unet(config: Config) -> Inputs:
    image, sizes = _latent(config)
    args: dict[str, Any] = {"sample": image, "timestep": _TIME}
    if config.get("class_embed_type") is None and config.get("num_class_embeds") is not None:
        args["class_labels"] = _TIME
    return args, sizes


def _conditioned(config: Config) -> Inputs:
    args, sizes = _unet(config)
    width = config["cross_attention_dim"]
    args["encoder_hidden_states"] = _text(width[0] if isinstance(width, list | tuple) else width)
    if config.get("addition_embed_type") == "text_time":
        input_width = config["projection_class_embeddings_input_dim"]
        pooled = input_width - TIME_IDS * config["addition_time_embed_dim"]
        args["added_cond_kwargs"] = {
            "text_embeds": Input(("batch", pooled)),
            "time_ids": Input(("batch", TIME_IDS)),
        }
    return args, {**sizes, "text": TEXT}


def _autoencoder(config: Config) -> Inputs:
    image = Input(("batch", config.get("in_channels", 3), "image", "image"))
    return {"sample": image}, {"batch": 1, "image": int(config.get("sample_size") or IMAGE)}


def _dit(config: Config) -> Inputs:
    image, sizes = _latent(config)
    return {"hidden_states": image, "timestep": _TIME, "class_labels": _TIME}, sizes


def _pixart(config: Config) -> Inputs:
    image, sizes = _latent(config)
    args: dict[str, Any] = {
        "hidden_states": image,
        "timestep": _TIME,
        "encoder_hidden_states": _text(config["caption_channels"] or config["cross_attention_dim"]),
    }
    if config.get("use_additional_conditions") or sizes["latent"] == 128:
        args["added_cond_kwargs"] = {
            "resolution": Input(("batch", 2)),
            "aspect_ratio": Input(("batch", 1)),
        }
    else:
        args["added_cond_kwargs"] = {"resolution": None, "aspect_ratio": None}
    return args, {**sizes, "text": 120}


def _sd3(config: Config) -> Inputs:
    image, sizes = _latent(config)
    args = {
        "hidden_states": image,
        "timestep": _TIME,
        "encoder_hidden_states": _text(config["joint_attention_dim"]),
        "pooled_projections": Input(("batch", config["pooled_projection_dim"])),
    }
    return args, {**sizes, "text": 333}


def _flux(config: Config) -> Inputs:
    args: dict[str, Any] = {
        "hidden_states": Input(("batch", "image_tokens", config["in_channels"])),
        "encoder_hidden_states": _text(config["joint_attention_dim"]),
        "pooled_projections": Input(("batch", config["pooled_projection_dim"])),
        "timestep": Input(("batch",)),
        "img_ids": Input(("image_tokens", 3)),
        "txt_ids": Input(("text", 3)),
    }
    if config.get("guidance_embeds"):
        args["guidance"] = Input(("batch",))
    return args, {"batch": 1, "image_tokens": 4096, "text": 512}


def _sana(config: Config) -> Inputs:
    image, sizes = _latent(config)
    text = _text(config["caption_channels"])
    args = {"hidden_states": image, "encoder_hidden_states": text, "timestep": _TIME}
    return args, {**sizes, "text": 300}


def _film(width: str) -> Callable[[Config], Inputs]:
    """Inputs of a model of films: (batch, channels, frames, latent, latent)."""

    def inputs(config: Config) -> Inputs:
        film = Input(("batch", config["in_channels"], "frames", "latent", "latent"))
        args = {
            "hidden_states": film,
            "encoder_hidden_states": _text(config[width]),
            "timestep": _TIME,
        }
        return args, {"batch": 1, "frames": FRAMES, "latent": LATENT, "text": 512}

    return inputs


INPUTS: Mapping[str, Callable[[Config], Inputs]] = {
    "UNet2DModel": _unet, "UNet2DConditionModel": _conditioned,
    "AutoencoderKL": _autoencoder, "AutoencoderTiny": _autoencoder, "AutoencoderDC": _autoencoder,
    "VQModel": _autoencoder, "DiTTransformer2DModel": _dit, "PixArtTransformer2DModel": _pixart,
    "SD3Transformer2DModel": _sd3, "FluxTransformer2DModel": _flux,
    "SanaTransformer2DModel": _sana, "WanTransformer3DModel": _film("text_dim"),
}  # fmt: skip
"""Class -> arguments and usual sizes for a configuration."""
