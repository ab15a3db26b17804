"""Models of transformers: by type, class or checkpoint, or by a configuration in a file.

Nothing is loaded from the network. A checkpoint's name is taken where the package itself says that
a configuration's defaults are that checkpoint's; any other needs its ``config.json``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, final

from silicast.core.errors import unsupported
from silicast.workload.front_ends.packages import (
    FACTORY,
    Input,
    ModelPackage,
    PackagedModel,
    nearest,
)

SEQ_LEN = 512
"""Tokens, where the model takes as many (the length that encoders are compared at)."""
DECODED = 1
"""Tokens of a decoder behind an encoder."""
SECONDS = 10
SAMPLES_PER_S = 16_000
"""Of a recording for models that hear waves."""
_LIKE = re.compile(r"huggingface\.co/([\w./-]+)")
_DOCUMENTED = 1500
"""Characters of a configuration's description in which its checkpoint stands."""


@final
class Transformers(ModelPackage):
    """``AutoModel`` of a type, or a class of a model by its name."""

    package: ClassVar[str] = "transformers"

    def names(self) -> Sequence[str]:
        """See :class:`ModelPackage`; types, which stand for the plain model of each."""
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

        return list(CONFIG_MAPPING_NAMES)

    def model(self, name: str) -> PackagedModel | None:
        import transformers

        kind: Any = None
        if Path(name).exists():
            config, message = (
                transformers.AutoConfig.from_pretrained(name, local_files_only=True),
                "",
            )
        elif _is_class(name):
            kind = getattr(transformers, name)
            config, message = kind.config_class(), "sizes are the defaults of its configuration"
        else:
            result = self._named(name)
            if result is None:
                return None
            config, message = result
        if hasattr(config, "use_cache"):
            config.use_cache = False
        module = kind(config) if kind is not None else transformers.AutoModel.from_config(config)
        args, sizes = _inputs(module, config, name)
        return PackagedModel(module, (), args, sizes, message)

    def _named(self, name: str) -> tuple[Any, str] | None:
        """The configuration of a type, or of the checkpoint that its defaults are of."""
        from transformers import CONFIG_MAPPING

        types = self.names()
        if name in types:
            message = f"sizes are the defaults of {CONFIG_MAPPING[name].__name__}"
            return CONFIG_MAPPING[name](), message
        short = _plain(name.rpartition("/")[2])
        likely = sorted((x for x in types if _plain(x) in short), key=len, reverse=True)
        defaults = {}
        for model_type in likely:
            kind = CONFIG_MAPPING[model_type]
            like = _LIKE.search((kind.__doc__ or "")[:_DOCUMENTED])
            checkpoint = like[1].rstrip("./") if like else ""
            if checkpoint and _plain(checkpoint.rpartition("/")[2]) == short:
                return kind(), f"sizes are the defaults of {kind.__name__}, as of {checkpoint}"
            defaults[model_type] = checkpoint
        if not likely or not short.startswith(tuple(map(_plain, likely))):
            return None
        known = next((x for x in defaults.values() if x), "")
        if held := _held(name):
            return held, ""
        raise unsupported(
            f"its sizes are known from its config.json only, which is not loaded from the network;"
            f" {nearest(name, types)}",
            f"transformers:{name}",
            "give transformers:FOLDER with its config.json"
            + (f", or transformers:{known}" if known else ""),
        )


def _held(name: str) -> Any:
    """A checkpoint's configuration if this machine has loaded it before; else None."""
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        return None


def _is_class(name: str) -> bool:
    """Whether it is the name of a model's class in the package."""
    import transformers

    value = getattr(transformers, name, None) if name.isidentifier() else None
    return isinstance(value, type) and getattr(value, "config_class", None) is not None


def _plain(name: str) -> str:
    """As names are compared: without case, hyphens and underscores.

    >>> _plain("BERT-base_uncased")
    'bertbaseuncased'
    """
    return re.sub(r"[-_.]", "", name.casefold())


def _inputs(module: Any, config: Any, name: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Arguments of a forward pass by name, and usual sizes."""
    main = module.main_input_name
    text = getattr(config, "text_config", None) or config
    longest = getattr(text, "max_position_embeddings", None)
    seq_len = min(SEQ_LEN, longest) if isinstance(longest, int) and longest > 0 else SEQ_LEN
    tokens = Input(("batch", "seq_len"), "int64")
    sizes = {"batch": 1}
    args: dict[str, Any] = {}
    if main == "input_ids":
        args, sizes = {"input_ids": tokens}, {**sizes, "seq_len": seq_len}
    elif main == "pixel_values":
        args, sizes = {"pixel_values": _image(config)}, {**sizes, "image": _side(config)}
    elif main == "input_features" and hasattr(config, "num_mel_bins"):
        args["input_features"] = Input(("batch", config.num_mel_bins, "frames"))
        sizes["frames"] = 2 * getattr(config, "max_source_positions", 1500)
    elif main == "input_values":
        args["input_values"] = Input(("batch", "samples"))
        sizes["samples"] = SECONDS * SAMPLES_PER_S
    else:
        raise unsupported(f"no example of its input {main!r} is known", name, FACTORY)
    if main == "input_ids" and getattr(config, "vision_config", None) is not None:
        args["pixel_values"] = _image(config.vision_config)
        sizes["image"] = _side(config.vision_config)
    if getattr(config, "is_encoder_decoder", False) and main != "pixel_values":
        args["decoder_input_ids"] = Input(("batch", "decoded"), "int64")
        sizes["decoded"] = DECODED
    return args, sizes


def _image(config: Any) -> Input:
    return Input(("batch", getattr(config, "num_channels", 3), "image", "image"))


def _side(config: Any) -> int:
    """Side of an image in pixels, as the configuration states it."""
    side = getattr(config, "image_size", None) or 224
    return int(side[0] if isinstance(side, list | tuple) else side)
