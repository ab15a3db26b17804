"""Layers of a configuration that differ: windows, experts, token mixers, sizes.

Most families describe them by rules of their table. :data:`READERS` holds functions for the few
configurations that describe their layers in another form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from silicast.core.errors import SilicastError, unmodelled
from silicast.formats.fields import Fields
from silicast.workload.families.family import DenseLayers, Mixers, Value, Windows
from silicast.workload.models.model import LayerSizes

if TYPE_CHECKING:
    from silicast.workload.families.reader import Reader

T = TypeVar("T")
_SIZES = {
    "head_dim": "head_dim",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "intermediate_size": "intermediate",
}
"""Fields of single layers -> ours."""
_EXPERTS = {"1": True, "0": False, "sparse": True, "dense": False}
_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_WORDS = {"linear_attention": "mamba", "full_attention": "attention"}
_MIXERS = {"mamba": "mamba2", "attention": "heads"}
_FEEDS = {"mlp": "mlp", "moe": "experts"}


def window_size(read: Reader, rule: Windows) -> int:
    """Keys that a query sees in layers with a window; 0 = there are no windows."""
    size: int = read.value(rule.size)
    return size if rule.below is None or size < read.value(rule.below) else 0


def have_window(read: Reader, rule: Windows) -> list[bool]:
    """Whether each layer has a window."""
    if windows := _per_layer(read, rule.per_layer, rule.kinds) or _lettered(read):
        return windows
    first, without = read.value(rule.first), _every(read, rule.every)
    return [layer >= first and not nth for layer, nth in enumerate(without)]


def _lettered(read: Reader) -> list[bool] | None:
    """Windows by a pattern of letters that repeats, L with a window and G without ("LLLG")."""
    pattern = read.fields.values.get("sliding_window_pattern")
    if not isinstance(pattern, str) or not pattern or set(pattern) - set("LG"):
        return None
    return [pattern[layer % len(pattern)] == "L" for layer in range(read["layers"])]


def dense_layers(read: Reader, rule: DenseLayers) -> tuple[int, ...]:
    """Numbers of the layers that have an MLP instead of experts."""
    first, every = read.value(rule.first), _period(read, rule.every)
    offset, last = read.value(rule.offset), read.value(rule.last)
    named = read.fields.integers(rule.named) if rule.named else ()
    experts = _per_layer(read, rule.per_layer, _EXPERTS) or [
        first <= layer <= last and (layer - offset) % every == 0 and layer not in named
        for layer in range(read["layers"])
    ]
    return tuple(layer for layer, routed in enumerate(experts) if not routed)


def mixers(read: Reader, rule: Mixers) -> tuple[str, ...]:
    """The token mixer of each layer."""
    named = read.fields.integers(rule.named) if rule.named else ()
    marked = _every(read, rule.every, read.value(rule.offset))
    usual = [rule.nth if nth or layer in named else rule.usual for layer, nth in enumerate(marked)]
    kinds = _per_layer(read, rule.per_layer, rule.kinds, longer=rule.longer)
    if not kinds and not rule.usual:
        raise SilicastError("missing", field=rule.per_layer, hint="expected one entry a layer")
    return tuple(kinds or (rule.kinds[entry] for entry in usual))


def _period(read: Reader, every: Value) -> int:
    """A number of layers after which something comes again."""
    period: int = read.value(every)
    if period < 1:
        raise SilicastError(
            f"expected a whole number from 1, found {period}", field=_key_of(every) or "layers"
        )
    return period


def _key_of(value: Value) -> str:
    """The field of the file that a value is read from; "" = none."""
    key = getattr(value, "key", "")
    return key if isinstance(key, str) else key[0]


def _every(read: Reader, every: Value | None, offset: int = -1) -> list[bool]:
    """Of each layer, whether it is one of every so many; none is where ``every`` is None."""
    layers = range(read["layers"])
    if every is None:
        return [False] * len(layers)
    number = _period(read, every)
    return [(layer - offset) % number == 0 for layer in layers]


def _per_layer(
    read: Reader, name: str, kinds: Mapping[str, T], *, longer: bool = False
) -> list[T] | None:
    """The kind of each layer by a list of the configuration; None where there is no list.

    Raises:
        SilicastError: not one entry a layer, or an entry that is none of ``kinds`` ("not_yet").
    """
    entries = read.fields.entries(name, read["layers"], longer=longer) if name else None
    if entries is None:
        return None
    for entry in entries:
        if str(entry) not in kinds:
            raise not_modelled(name, str(entry), kinds)
    return [kinds[str(entry)] for entry in entries][: read["layers"]]


def stated_sizes(read: Reader) -> tuple[LayerSizes, ...]:
    """Sizes that ``per_layer_config`` gives single layers by their number; () = it gives none."""
    table, sizes = read.fields.table("per_layer_config"), [LayerSizes()] * read["layers"]
    for name in table.names():
        if not name.isdigit() or int(name) >= len(sizes):
            raise table.error("expected numbers of layers", name)
        layer = table.table(name)
        for field in layer.names():
            if field not in _SIZES:
                raise not_modelled(f"per_layer_config.{name}", field, _SIZES)
        values: dict[str, Any] = {_SIZES[field]: layer.count(field) for field in layer.names()}
        sizes[int(name)] = LayerSizes(**values)
    return tuple(sizes) if table.names() else ()


def reusing(read: Reader, sizes: list[LayerSizes]) -> tuple[LayerSizes, ...]:
    """Sizes where the last ``reused_layers`` read the cache of earlier ones, with MLPs of width
    ``reused_intermediate``, if the family has these numbers.
    """
    last = read["reused_layers"] if read.has("reused_layers") else 0
    if not last:
        return tuple(sizes)
    width, first = read["reused_intermediate"], len(sizes) - last
    if first < 1 or last < 0:
        raise SilicastError(
            f"{last} of {len(sizes)} layers reuse a cache", field="num_kv_shared_layers"
        )
    wide = [replace(size, reuses=True, intermediate=width) for size in sizes[first:]]
    return (*sizes[:first], *wide)


def not_modelled(field: str, value: str, known: Iterable[str]) -> SilicastError:
    """The error of a value of a configuration that stands for a structure not modelled."""
    return unmodelled(f"{value[:40]!r} is not modelled yet", field, f"modelled: {', '.join(known)}")


def _block_configs(read: Reader) -> dict[str, Any]:
    """Llama-Nemotron: ``block_configs`` gives each layer's attention and MLP, or leaves one out."""
    hidden, heads, name = read["hidden"], read["heads"], "block_configs"
    mixing, feeds, sizes = [], [], []
    blocks = read.fields.entries(name, read["layers"])
    if blocks is None or not all(isinstance(block, dict) for block in blocks):
        raise SilicastError("expected one object a layer", field=name)
    for layer, block in enumerate(blocks):
        fields = Fields(block, f"{name}.{layer}")
        attention, feed = fields.table("attention"), fields.table("ffn")
        for part in (attention, feed):
            part.refuse("replace_with_linear", "one product instead of attention or MLP")
            part.refuse("sparsify", "sparse weights")
        attention.refuse("window_length", "windows in this family")
        none = attention.flag("no_op", default=False)
        group = 1 if none else attention.integer("n_heads_in_group", default=1)
        mixing.append("" if none else "heads")
        feeds.append("" if feed.flag("no_op", default=False) else "mlp")
        width = ffn_width(feed.number("ffn_mult", default=1.0, most=1 << 40), hidden)
        sizes.append(LayerSizes(kv_heads=0 if none else heads // group, intermediate=width))
    return {
        "mixers": tuple(mixing),
        "feeds": tuple(feeds),
        "sizes": tuple(sizes),
        "kv_heads": max(size.kv_heads for size in sizes) or heads,
        "intermediate": max(size.intermediate for size in sizes),
    }


def ffn_width(multiple: float, hidden: int) -> int:
    """Width of an MLP of two thirds of ``multiple`` times the hidden size, in whole 256.

    >>> ffn_width(5.25, 8192), ffn_width(1.0, 8192)
    (28672, 5632)
    """
    width = int(2 * multiple * hidden / 3)
    return -(-width // 256) * 256


def _one_part_a_layer(read: Reader) -> dict[str, Any]:
    """Nemotron-H: each layer is one part; a pattern of letters, or a list of words, names it."""
    pattern = read.fields.text("hybrid_override_pattern", default="")
    field = "hybrid_override_pattern" if pattern else "layers_block_type"
    parts = [_LETTERS.get(letter, letter) for letter in pattern]
    parts = parts or [_WORDS.get(word, word) for word in read.fields.words(field)]
    layers = read.fields.integer("num_hidden_layers", default=len(parts))
    if len(parts) != layers or not parts:
        raise SilicastError(f"{len(parts)} parts for {layers} layers", field=field)
    for part in parts:
        if part not in _LETTERS.values():
            raise not_modelled(field, part, _LETTERS.values())
    return {
        "layers": layers,
        "mixers": tuple(_MIXERS.get(part, "") for part in parts),
        "feeds": tuple(_FEEDS.get(part, "") for part in parts),
    }


def _shared_blocks(read: Reader) -> dict[str, Any]:
    """Zamba 2: Mamba 2 in all layers, in some behind one of a few blocks that take turns."""
    fields, layers = read.fields, read["layers"]
    words = fields.entries("layers_block_type", layers)
    named = fields.integers("hybrid_layer_ids")
    if len(set(named)) < len(named) or not all(0 <= i < layers for i in named):
        raise SilicastError(
            f"expected different layers from 0 to {layers - 1}", field="hybrid_layer_ids"
        )
    if read["blocks"] < 1:
        raise SilicastError("expected a whole number from 1", field="num_mem_blocks")
    words = words or [""] * layers
    marks = [str(word) == "hybrid" or i in named for i, word in enumerate(words)]
    if not any(marks):
        raise SilicastError("no layer is hybrid", field="layers_block_type")
    before = [sum(marks[:layer]) for layer in range(layers)]
    return {
        "mixers": tuple("shared_mamba2" if mark else "mamba2" for mark in marks),
        "feeds": ("",) * layers,
        "sizes": tuple(
            LayerSizes(reuses=mark and n >= read["blocks"])
            for mark, n in zip(marks, before, strict=True)
        ),
    }


def _linear_attn_config(read: Reader) -> dict[str, Any]:
    """Kimi Linear: two lists name the layers of each mixer, counted from 1."""
    table, layers = read.fields.table("linear_attn_config"), read["layers"]
    full = set(table.integers("full_attn_layers"))
    if full | set(table.integers("kda_layers")) != set(range(1, layers + 1)):
        raise SilicastError(
            f"kda_layers and full_attn_layers do not name each of {layers} layers",
            field="linear_attn_config",
            hint="they count from 1",
        )
    return {"mixers": tuple("latent" if i + 1 in full else "kda" for i in range(layers))}


READERS: Mapping[str, Callable[[Reader], dict[str, Any]]] = {
    "block_configs": _block_configs,
    "one_part_a_layer": _one_part_a_layer,
    "linear_attn_config": _linear_attn_config,
    "shared_blocks": _shared_blocks,
}
"""``Family.layers`` -> the function that gives the fields of a model that describe its layers."""
