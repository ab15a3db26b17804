"""Named mixtures of weight formats: which format each tensor of a model's file gets ("Q4_K_M").

A scheme is one file of ``catalog/weight_mixes``: its mixes, and rules that give single tensors of
single layers another format than the mix's usual one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal, final

from silicast.core.catalog import CATALOG
from silicast.core.decode import Strict, read_table
from silicast.core.dtypes import BLOCKS
from silicast.core.errors import unknown_name
from silicast.core.naming import near
from silicast.workload.models.model import LayerKind, ModelConfig
from silicast.workload.models.model_weights import input_weights, layer_weights
from silicast.workload.models.module_names import parts_of
from silicast.workload.models.precision import Precision
from silicast.workload.models.weight_tensor import PRODUCTS, Weight

PAGE = "docs/reference/dtypes.md"
FOLDER = "weight_mixes"

Blocks = Literal[
    "",
    "more_bits",
    "not_more_bits",
    "first_eighth",
    "first_sixteenth",
    "not_edges",
    "first_4",
    "first_2",
]
TENSORS: Mapping[str, str] = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "kv": "attn_k",
    "o": "attn_output",
    "qk": "attn_qkv",
    "vz": "attn_qkv",
    "z": "attn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "shared_up": "ffn_up",
    "shared_down": "ffn_down",
    "expert_up": "ffn_up_exps",
    "expert_down": "ffn_down_exps",
    "embedding": "token_embd",
    "head": "output",
}
"""Weight of a layer -> the kind of tensor that rules name; others are "other"."""
VALUES = frozenset({"attn_v", "attn_qkv"})
"""Kinds of which a layer has one; their layers are counted together."""
APART: Mapping[str, tuple[str, str]] = {"kv": ("k", "v"), "vz": ("vz", "z")}
"""A weight of two tensors -> their names, by which files hold them."""
OWN_MIX = "UD-"
"""What names of mixes begin with that differ from model to model."""
WHOLE_WORDS = ("expert_down", "v")
"""Weights whose format the graph's nodes ask for by their own name."""


@final
class MixRule(Strict, frozen=True):
    """The format of some tensors.

    Attributes:
        tensors: kinds of tensors that it is about; mixes: [] = all.
        blocks: which of the layers that have the tensor; "" = all.
        gqa_from: query heads per cached head from which on it holds; experts_from: routed experts.
        experts, layers: of the model, exactly; 0 = any.
        type: "" = the mix's usual one.
    """

    tensors: list[str]
    mixes: list[str] = []
    blocks: Blocks = ""
    gqa_from: int = 0
    experts_from: int = 0
    experts: int = 0
    layers: int = 0
    type: str = ""


@final
class MixScheme(Strict, frozen=True, dict=True):
    """A file of mixes.

    Attributes:
        plain: the format between kernels, and of the KV cache.
        mixes: name -> usual format, the widest first.
        aliases: other name -> name.
        heads: name of a mix with another head -> the mix that the layers have, and the format of
            its head and embedding.
        experts: recipe of a checkpoint's routed experts -> the mix that keeps it.
        indivisible: format -> what replaces it where a row holds no whole number of its blocks.
        spread: least and most size of other makers' files of a mix over that by the rules;
            uniform: mixes that all makers write alike.
        rule: the first that holds counts.
    """

    plain: str
    mixes: dict[str, str]
    aliases: dict[str, str] = {}
    heads: dict[str, tuple[str, str]] = {}
    experts: dict[str, str] = {}
    indivisible: dict[str, str] = {}
    spread: tuple[float, float] = (1.0, 1.0)
    uniform: list[str] = []
    rule: list[MixRule] = []

    def mix_name(self, name: str) -> str:
        """The canonical name of a mix; case does not count.

        Raises:
            SilicastError: there is none; offers the nearest.

        >>> scheme_named("gguf").mix_name("q4_k_m")
        'Q4_K_M'
        """
        canonical = {mix.upper(): mix for mix in (*self.mixes, *self.heads)}
        canonical |= {alias.upper(): mix for alias, mix in self.aliases.items()}
        upper = name.strip().upper()
        if upper not in canonical:
            raise unknown_name(
                f"no weight format {name[:40]!r}", "precision.weights", self.nearest(name)
            )
        return canonical[upper]

    def size_spread(self, mix: str) -> tuple[float, float]:
        """Least and most size of a file that has a mix's name, over that by the rules; (1, 1) of a
        file that was read itself.

        >>> scheme_named("gguf").size_spread("Q8_0"), scheme_named("gguf").size_spread("a-file")
        ((1.0, 1.0), (1.0, 1.0))
        """
        named = mix in self.mixes or mix in self.heads
        return self.spread if named and mix not in self.uniform else (1.0, 1.0)

    def nearest(self, name: str) -> str:
        """A hint that offers the nearest mixes: of a mean rate those below and above it.

        >>> scheme_named("exl3").nearest("4.25bpw")
        'files of 4.25 bits mix formats by measured errors: take 5.0bpw or 4.0bpw'
        """
        if name.strip().upper().startswith(OWN_MIX):
            return "publishers mix each of these anew: name the file (--model FILE.gguf)"
        bits = rate_of(name)
        rates = {mix: rate for mix in self.mixes if (rate := rate_of(mix)) is not None}
        if bits is None or not rates:
            return near(name, (*self.mixes, *self.heads), aliases=self.aliases)
        above = [mix for mix, rate in rates.items() if rate > bits][-1:]
        below = [mix for mix, rate in rates.items() if rate < bits][:1]
        bounds = " or ".join([*above, *below])
        return f"files of {bits:g} bits mix formats by measured errors: take {bounds}"

    def recipe(self, mix: str, tensor: str, inputs: int, facts: _LayerFacts) -> str:
        """The format of one tensor with rows of ``inputs`` weights."""
        rules = (rule for rule in self._rules(mix, tensor) if facts.meets(rule))
        rule = next(rules, None)
        name = (rule.type if rule is not None else "") or self.mixes[mix]
        while name in BLOCKS and inputs % BLOCKS[name][0]:
            name = self.indivisible.get(name, self.plain)
        return name

    def _rules(self, mix: str, tensor: str) -> list[MixRule]:
        """Those about a tensor in a mix, in order."""
        rules: list[MixRule] | None = self._of_tensors.get((mix, tensor))
        if rules is None:
            rules = [
                rule
                for rule in self.rule
                if tensor in rule.tensors and (not rule.mixes or mix in rule.mixes)
            ]
            self._of_tensors[mix, tensor] = rules
        return rules

    @cached_property
    def _of_tensors(self) -> dict[tuple[str, str], list[MixRule]]:
        return {}


@final
class _LayerFacts:
    """What rules ask of a model and one of its layers.

    Args:
        index: of the layer among the ``count`` that a rule's share is of: of values those that have
            some, of others all.
    """

    def __init__(self, model: ModelConfig, index: int = 0, count: int = 1) -> None:
        self.model = model
        self.index = index
        self.count = count
        self.experts: int = model.moe.experts if model.moe is not None else 0
        self.gqa: int = model.heads // model.kv_heads

    def meets(self, rule: MixRule) -> bool:
        """Whether a rule about its tensor holds in the layer."""
        return (
            self.gqa >= rule.gqa_from
            and self.experts >= rule.experts_from
            and rule.experts in (0, self.experts)
            and rule.layers in (0, self.model.layers)
            and self._in(rule.blocks)
        )

    def _in(self, blocks: Blocks) -> bool:
        index, count = self.index, self.count
        eighth = count // 8
        first, last = index < eighth, index >= 7 * count // 8
        more = first or last or (index - eighth) % 3 == 2
        return {
            "": True,
            "more_bits": more,
            "not_more_bits": not more,
            "first_eighth": first,
            "first_sixteenth": index < count // 16,
            "not_edges": not first and not last,
            "first_4": index < 4,
            "first_2": index < 2,
        }[blocks]


@lru_cache(maxsize=16)
def scheme_named(name: str) -> MixScheme:
    """The scheme of that name: the stem of its file."""
    return read_table(Path(CATALOG / FOLDER / f"{name}.toml"), MixScheme, PAGE)


def rate_of(name: str) -> float | None:
    """The mean bits of a weight that a name states; None = it states none.

    >>> rate_of("4.25bpw"), rate_of("Q4_K_M")
    (4.25, None)
    """
    match = _RATE.fullmatch(name.strip())
    return float(match[1]) if match else None


def resembles_mix(name: str) -> bool:
    """Whether a name is written as those of files of weights are, known or not.

    >>> [each for each in ("UD-Q4_K_XL", "Q9_K", "iq4_ks", "qint8", "fp8") if resembles_mix(each)]
    ['UD-Q4_K_XL', 'Q9_K', 'iq4_ks']
    """
    return _STYLE.fullmatch(name.strip()) is not None


_STYLE = re.compile(r"(UD-)?(I?Q|TQ)\d{1,2}_\w{1,8}", re.IGNORECASE)
_RATE = re.compile(r"(\d{1,2}(?:\.\d{1,3})?)\s*bpw", re.IGNORECASE)


def is_mix(name: str) -> bool:
    """Whether some scheme has a mix of that name, or it is a mean rate, which no single format has
    too: whether an engine runs it is found when the engine is known.
    """
    if rate_of(name) is not None:
        return True
    upper = name.strip().upper()
    schemes = (scheme_named(path.stem) for path in sorted((CATALOG / FOLDER).glob("*.toml")))
    return any(
        upper in map(str.upper, (*scheme.mixes, *scheme.aliases, *scheme.heads))
        for scheme in schemes
    )


@lru_cache(maxsize=4096)
def with_mix(model: ModelConfig, scheme: str, name: str, kv_cache: str = "") -> ModelConfig:
    """The model as a file of weights in a mix holds it: the formats of each layer's tensors, of the
    embedding and of the head become its ``default_precision``. Encoders and layers for speculation
    are files of their own.

    Args:
        scheme: a file of ``catalog/weight_mixes``; name: one of its mixes.
        kv_cache: format of the cache; "" = that between kernels.

    Raises:
        SilicastError: no such mix.

    >>> from silicast.workload.models.lookup import find_model
    >>> with_mix(find_model("Llama-3.1-8B"), "gguf", "Q4_K_M").default_precision.head
    'q6_k'
    """
    mixes = scheme_named(scheme)
    named = mixes.mix_name(name)
    mix, wide = mixes.heads.get(named, (named, ""))
    layers = [tensors for _, tensors in _layers(model)]
    valued = [any(TENSORS.get(tensor.name) in VALUES for tensor in tensors) for tensors in layers]
    before, formats = 0, []
    for layer, tensors in enumerate(layers):
        table: dict[str, str] = {}
        for weight in tensors:
            tensor = TENSORS.get(weight.name, "other")
            at = (before, sum(valued)) if tensor in VALUES else (layer, len(layers))
            facts = _LayerFacts(model, *at)
            table[weight.name] = mixes.recipe(mix, tensor, weight.inputs, facts)
        before += valued[layer]
        formats.append(table)
    width = input_weights(model)[0].inputs
    facts = _LayerFacts(model)
    head = wide or mixes.recipe(mix, "output", width, facts)
    table_format = wide or mixes.recipe(mix, "token_embd", width, facts)
    precision = Precision(
        recipe=mixes.mixes[mix],
        kv_cache=kv_cache or mixes.plain,
        hidden=mixes.plain,
        embedding=head if model.tied else table_format,
        head=head,
        mix=named,
    )
    return _of_file(model, formats, precision)


def with_tensor_formats(
    model: ModelConfig, formats: Mapping[tuple[int, str], str], plain: str, name: str
) -> ModelConfig:
    """The model as a file of weights holds it whose tensors are known one by one.

    Args:
        formats: (layer, the file's word for a tensor) -> format; of layer -1 the table of
            embeddings ("token_embd") and the head ("output").
        plain: the format between kernels, and of the KV cache; name: of the file.
    """
    words = {**TENSORS, "kv": "attn_qkv"}
    named = []
    counts: dict[str, int] = {}
    for layer, (_, tensors) in enumerate(_layers(model)):
        table = {}
        for weight in tensors:
            recipe = formats.get((layer, words.get(weight.name, "")))
            recipe = recipe or formats.get((layer, "attn_qkv")) or plain
            table[weight.name] = recipe
            counts[recipe] = counts.get(recipe, 0) + weight.parameters
        named.append(table)
    table_format = formats.get((-1, "token_embd"), plain)
    precision = Precision(
        recipe=max(counts, key=lambda recipe: counts[recipe]),
        kv_cache=plain,
        hidden=plain,
        embedding=table_format,
        head=formats.get((-1, "output"), table_format),
        mix=name,
    )
    return _of_file(model, named, precision)


def _of_file(
    model: ModelConfig, named: Sequence[Mapping[str, str]], precision: Precision
) -> ModelConfig:
    """The model with the formats of each layer's weights; encoders and layers for speculation are
    in files of their own.
    """
    made: dict[tuple[LayerKind, tuple[tuple[str, str], ...]], tuple[tuple[str, str], ...]] = {}
    formats = []
    for (kind, tensors), table in zip(_layers(model), named, strict=True):
        key = kind, tuple(table.items())
        if key not in made:
            made[key] = _with_nodes(model, kind, table, tensors, precision.recipe)
        formats.append(made[key])
    precision = replace(precision, by_module=any(formats))
    return replace(
        model,
        default_precision=precision,
        formats=tuple(formats) if any(formats) else (),
        encoder_parameters=0,
        encoder_heads=0,
        mtp_layers=0,
    )


def _layers(model: ModelConfig) -> list[tuple[LayerKind, list[Weight]]]:
    """The kind of each layer and its quantised tensors, made once a kind."""
    kinds = [model.kind(layer) for layer in range(model.layers)]
    tensors = {kind: _tensors(model, kind) for kind in dict.fromkeys(kinds)}
    return [(kind, tensors[kind]) for kind in kinds]


def _tensors(model: ModelConfig, kind: LayerKind) -> list[Weight]:
    """The layer's quantised tensors, those of two apart."""
    tensors = []
    for weight in layer_weights(model, replace(kind, formats=())):
        if weight.kind not in PRODUCTS or weight.kind == "router":
            continue
        if weight.name in APART and weight.count == 2:
            tensors += [replace(weight, name=name, count=1) for name in APART[weight.name]]
        else:
            tensors.append(weight)
    return tensors


def _with_nodes(
    model: ModelConfig, kind: LayerKind, named: Mapping[str, str], tensors: list[Weight], usual: str
) -> tuple[tuple[str, str], ...]:
    """(weight or node, recipe) of what differs from the usual format: a node that engines fuse of
    several tensors has the format of the largest.
    """
    sizes = {weight.name: weight.parameters for weight in tensors}
    formats = {name: recipe for name, recipe in named.items() if recipe != usual}
    for first, second in APART.values():
        if {first, second} <= named.keys() and named[second] != named[first]:
            formats[second] = named[second]
    if "k" in formats:
        formats["kv"] = formats["k"]
    for part in parts_of(kind.mixer, kind.feed, model.family):
        members = [name for name in part.weights if name in named]
        if not members:
            continue
        largest = max(members, key=lambda name: sizes[name])
        for node in part.nodes:
            if named[largest] != usual and node not in WHOLE_WORDS:
                formats[node] = named[largest]
    return tuple(sorted(formats.items()))


def plain_mix(scheme: str, published: Precision) -> tuple[str, bool]:
    """The mix that holds a checkpoint as it is published, and whether one does: else that of the
    format between its kernels.

    >>> from silicast.workload.models.precision import Precision
    >>> plain_mix("gguf", Precision()), plain_mix("gguf", Precision(recipe="fp8"))
    (('BF16', True), ('BF16', False))
    """
    mixes, experts = scheme_named(scheme).mixes, scheme_named(scheme).experts
    if published.experts in experts:
        return experts[published.experts], True
    by_type = {kind: name for name, kind in reversed(mixes.items())}
    if published.recipe in by_type and not published.experts:
        return by_type[published.recipe], True
    return by_type.get(published.hidden, next(iter(mixes))), False
