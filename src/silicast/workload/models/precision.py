"""In which number formats a model runs: matrix products, the KV cache and everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from silicast.core.dtypes import BITS, CACHE_BLOCKS, MIXED_CACHES, RECIPES, Recipe, recipe_for
from silicast.core.errors import SilicastError, errors_located

_BY_FORMATS: dict[tuple[str, str], str] = {
    ("fp64", "fp64"): "fp64", ("fp32", "fp32"): "fp32", ("bf16", "bf16"): "bf16",
    ("fp16", "fp16"): "fp16", ("fp8", "fp8"): "fp8", ("mxfp8", "mxfp8"): "mxfp8",
    ("int8", "int8"): "int8", ("int8", "bf16"): "int8_wo", ("int8", "fp16"): "int8_wo",
    ("int4", "bf16"): "int4_wo", ("int4", "fp16"): "int4_wo", ("int4", "fp8"): "w4afp8",
    ("nvfp4", "nvfp4"): "nvfp4", ("nvfp4", "bf16"): "nvfp4_wo", ("nvfp4", "fp8"): "fp8_fp4",
    ("mxfp4", "mxfp4"): "mxfp4", ("mxfp4", "bf16"): "w4a16_mxfp4",
    ("mxfp4", "mxfp8"): "w4a8_mxfp4_mxfp8", ("mxfp4", "fp8"): "w4a8_mxfp4_mxfp8",
    ("fp8", "bf16"): "fp8_wo", ("fp8", "fp16"): "fp8_wo", ("nvfp4", "fp16"): "nvfp4_wo",
    ("mxfp4", "fp16"): "w4a16_mxfp4",
}  # fmt: skip
"""(weights, activations) -> the recipe that the pair means."""

_USUAL_ACTIVATIONS = {"int4": "bf16", "int8": "int8"}
"""Activations that are multiplied with weights of a format by default; else the same format."""

KV_FORMATS = (
    *("bf16", "fp16", "fp32", "fp8", "int8", "nvfp4"),
    *("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"),
)
"""Formats of cached keys and values; those of :data:`~silicast.core.dtypes.MIXED_CACHES` too."""
CACHE_HALVES = 2
HIDDEN_FORMATS = ("bf16", "fp16", "fp32", "fp64")


@final
@dataclass(frozen=True, slots=True)
class Precision:
    """Number formats of one deployment.

    Attributes:
        recipe: canonical recipe of the linear layers (``core.dtypes.RECIPES``).
        kv_cache: storage format of cached keys and values.
        hidden: format of everything else: embeddings, norms, head, the tensors between kernels.
        group_size: weights that share one scale; 0 = as the recipe says.
        experts, attention: recipes of the routed experts and of attention's projections, where
            they differ; "" = as the other linear layers.
        by_module: single modules have formats of their own (``ModelConfig.formats``).
        embedding, head: recipes of the embedding table and of the head; "" = as between kernels.
        mix: the publisher's name of the whole ("Q4_K_M"), for people; "" = none.

    >>> Precision.from_formats(weights="fp8").recipe
    'fp8'
    >>> Precision.from_formats(weights="int4", group_size=128).activations
    'bf16'
    """

    recipe: str = "bf16"
    kv_cache: str = "bf16"
    hidden: str = "bf16"
    group_size: int = 0
    experts: str = ""
    attention: str = ""
    by_module: bool = False
    embedding: str = ""
    head: str = ""
    mix: str = ""

    @property
    def linear(self) -> Recipe:
        return RECIPES[self.recipe]

    @property
    def expert(self) -> Recipe:
        """The recipe of the routed experts."""
        return RECIPES[self.experts or self.recipe]

    @property
    def projection(self) -> Recipe:
        """The recipe of attention's projections."""
        return RECIPES[self.attention or self.recipe]

    @property
    def label(self) -> str:
        """The recipes in words.

        >>> Precision.from_formats(experts="w4a16_mxfp4").label
        'bf16, experts w4a16_mxfp4'
        """
        if self.mix:
            return self.mix
        part_recipes = (("experts", self.experts), ("attention", self.attention))
        parts = [f"{part} {name}" for part, name in part_recipes if name]
        parts += ["single modules others"] if self.by_module else []
        return ", ".join([self.recipe, *parts])

    def of_module(self, formats: Sequence[tuple[str, str]], name: str) -> Recipe | None:
        """The recipe of a module by the formats of its layer; None = as others of its kind."""
        if not self.by_module:
            return None
        recipe = dict(formats).get(name)
        return None if recipe is None else RECIPES[recipe or self.hidden]

    def table_recipe(self, name: str) -> str:
        """The recipe of the embedding table or of the head; "" = as between kernels."""
        return self.head if name == "head" else self.embedding

    @property
    def weights(self) -> str:
        """Storage format of the linear layers' weights."""
        return self.linear.weights

    @property
    def activations(self) -> str:
        """Format in which activations enter the linear layers' products."""
        return self.linear.activations

    @property
    def hidden_bytes(self) -> int:
        """Bytes of one element between kernels."""
        return int(BITS[self.hidden]) // 8

    @staticmethod
    def from_formats(
        *,
        weights: str | None = None,
        activations: str | None = None,
        kv_cache: str | None = None,
        recipe: str | None = None,
        group_size: int | None = None,
        experts: str | None = None,
        attention: str | None = None,
        default: Precision | None = None,
    ) -> Precision:
        """A precision from the fields of a scenario; what is left out stays as ``default`` has it.

        A ``recipe`` stands for both ``weights`` and ``activations``. Experts and attention keep a
        recipe of their own unless another format is asked for; asking for the very format of the
        default's experts means the checkpoint as it is. The KV cache follows the format between
        kernels unless the default quantises it or ``kv_cache`` is given.

        Raises:
            SilicastError: unknown format, a pair of formats that no recipe multiplies, or a recipe
                of other formats than those stated beside it.
        """
        require_agreeing(recipe, weights, activations)
        base = default or Precision()
        if base.experts and _asks_for(base.expert, weights, activations, recipe):
            weights = activations = recipe = None
        name = _recipe_name(weights, activations, recipe, base)
        hidden = _hidden_format(RECIPES[name], base.hidden)
        if kv_cache is not None:
            cache = _cache_format(kv_cache)
        else:
            cache = base.kv_cache if base.kv_cache != base.hidden else hidden
        if group_size is not None and not 0 <= group_size <= 1 << 20:
            raise SilicastError(
                f"expected 0 to 1048576 weights per scale, found {group_size}", field="group_size"
            )
        group = base.group_size if group_size is None and name == base.recipe else group_size or 0
        same_recipe = name == base.recipe
        return Precision(
            name,
            cache,
            hidden,
            group,
            _own(experts, base.experts if same_recipe else "", name, "experts"),
            _own(attention, base.attention if same_recipe else "", name, "attention"),
            base.by_module and same_recipe,
            base.embedding if same_recipe else "",
            base.head if same_recipe else "",
            base.mix if same_recipe else "",
        )


def require_agreeing(recipe: str | None, weights: str | None, activations: str | None) -> None:
    """Refuses formats of weights or activations that are not those of the recipe beside them.

    Raises:
        SilicastError: unknown format, or a contradiction; names the field.

    >>> require_agreeing("fp8_block", "fp8", None)
    """
    if recipe is None:
        return
    named_recipe = _recipe(recipe, "recipe")
    for field, stated, meant in (
        ("weights", weights, named_recipe.weights),
        ("activations", activations, named_recipe.activations),
    ):
        if stated is None:
            continue
        plain = _plain(stated)
        pair = (
            (named_recipe.weights, plain)
            if field == "activations"
            else (plain, named_recipe.activations)
        )
        agrees = plain == meant or _BY_FORMATS.get(pair) == named_recipe.name
        if not (agrees if plain in BITS else _recipe(stated, field) is named_recipe):
            raise SilicastError(
                f"{stated} contradicts recipe = {recipe}, whose {field} are {meant}",
                field=field,
                hint="keep one of the two",
            )


def _asks_for(
    recipe: Recipe, weights: str | None, activations: str | None, name: str | None
) -> bool:
    """Whether the fields of a scenario name just ``recipe``."""
    if name is not None:
        return _recipe(name, "recipe") is recipe
    if weights is None or recipe.weights == recipe.output:
        return False
    plain = _plain(weights)
    same = plain == recipe.weights if plain in BITS else _recipe(weights, "weights") is recipe
    return same and activations in (None, recipe.activations)


def _own(stated: str | None, base: str, linear: str, field: str) -> str:
    """The recipe of a part, "" where it is the linear layers' own."""
    name = base if stated is None else _recipe(stated, field).name
    return "" if name == linear else name


def _recipe_name(
    weights: str | None, activations: str | None, recipe: str | None, base: Precision
) -> str:
    if recipe is not None:
        return _recipe(recipe, "recipe").name
    if weights is None and activations is None:
        return base.recipe
    weight = base.weights
    if weights is not None:
        plain = _plain(weights)
        weight = plain if plain in BITS else ""
        if not weight:
            named = _recipe(weights, "weights")
            if named.name not in BITS and activations is None:
                return named.name  # the name of a whole recipe ("fp8_block", "int4_wo")
            weight = named.weights
    if activations is not None:
        activation = _storage(activations, "activations")
    elif weight == base.weights:
        activation = base.activations
    else:
        activation = _USUAL_ACTIVATIONS.get(weight, weight)
    if (weight, activation) == (base.weights, base.activations):
        return base.recipe
    recipe_name = _BY_FORMATS.get((weight, activation))
    if recipe_name is None:
        alternatives = sorted(a for w, a in _BY_FORMATS if w == weight)
        raise SilicastError(
            f"no recipe multiplies {weight} weights with {activation} activations",
            field="activations",
            hint=f"with {weight} weights: {', '.join(alternatives)}" if alternatives else "",
        )
    return recipe_name


def _hidden_format(recipe: Recipe, default: str) -> str:
    """16-bit tensors between kernels for quantised recipes, else the recipe's own format."""
    if recipe.weights == recipe.output and recipe.output in HIDDEN_FORMATS:
        return recipe.output
    return default if default in ("bf16", "fp16") else "bf16"


def _plain(name: str) -> str:
    return name.strip().casefold().removeprefix("torch.")


def _recipe(name: str, field: str) -> Recipe:
    with errors_located(field):
        return recipe_for(name)


def _storage(name: str, field: str) -> str:
    """The storage format that a name means."""
    plain = _plain(name)
    return plain if plain in BITS else _recipe(name, field).weights


def _cache_format(name: str) -> str:
    """The format of a cache, or of its keys and values as "q8_0/f16"."""
    parts = ["fp16" if _plain(part) == "f16" else part for part in name.split("/")]
    formats = [_format(part, KV_FORMATS, "kv_cache") for part in parts]
    if len(set(formats)) == 1 and len(formats) <= CACHE_HALVES:
        return formats[0]
    mixed = "/".join(formats)
    if mixed not in MIXED_CACHES:
        raise SilicastError(
            f"{name!r:.60} are no formats of keys and values that a cache holds beside each other",
            field="kv_cache",
            hint=f"as q8_0/fp16: of {', '.join(CACHE_BLOCKS)}",
        )
    return mixed


def _format(name: str, allowed: tuple[str, ...], field: str) -> str:
    plain = _storage(name, field)
    if plain not in allowed:
        raise SilicastError(
            f"{name!r} is not a format of this field",
            field=field,
            hint=f"one of {', '.join(allowed)}",
        )
    return plain
