"""What a dense decoder model is made of: sizes and structure, no weights, no devices."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, final

from silicast.core.errors import SilicastError
from silicast.workload.precision import Precision

__all__ = [
    "LIMITS",
    "ModelConfig",
    "Norm",
    "Position",
    "Precision",
    "Residual",
    "check_size",
    "divided",
]

Norm = Literal["rmsnorm", "layernorm"]
Position = Literal["rope", "learned", "alibi", "none"]
Residual = Literal["sequential", "parallel", "parallel_two_norms"]

LIMITS: dict[str, tuple[int, int]] = {
    "layers": (1, 1024),
    "hidden": (1, 1 << 20),
    "heads": (1, 1 << 14),
    "kv_heads": (1, 1 << 14),
    "head_dim": (1, 1 << 14),
    "intermediate": (1, 1 << 22),
    "vocab": (1, 1 << 24),
    "max_positions": (0, 1 << 28),
    "position_rows": (0, 1 << 28),
    "mtp_layers": (0, 64),
}
"""Smallest and largest sensible sizes; outside them the input is a mistake."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "norm": ("rmsnorm", "layernorm"),
    "position": ("rope", "learned", "alibi", "none"),
    "residual": ("sequential", "parallel", "parallel_two_norms"),
    "activation": ("silu", "gelu", "relu", "relu2"),
}


@final
@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A dense decoder-only transformer.

    Attributes:
        name: catalog name or what the user calls it.
        family: the architecture it was read from ("llama", "qwen3", "gpt2", ...).
        layers: decoder layers; hidden: width of the residual stream.
        heads, kv_heads, head_dim: attention; ``heads * head_dim`` need not equal ``hidden``.
        intermediate: width of the MLP after its activation.
        vocab: rows of the embedding table.
        norm, norm_bias: kind of the norms and whether they have a bias.
        gated: the MLP has a gate projection beside the up projection.
        activation: of the MLP.
        qkv_bias, o_bias, mlp_bias, head_bias: which projections have a bias.
        qk_norm: each head's queries and keys are normalised over ``head_dim``.
        position: rope, a learned table of ``position_rows`` rows, alibi or none.
        embedding_norm: a norm right after the embedding.
        residual: attention then MLP, or both side by side on one norm or on two.
        tied: the head shares the embedding's weights.
        windows: per layer, how many last keys a query sees; 0 = all; () = all in every layer.
        max_positions: longest context the model was made for; 0 = not stated.
        mtp_layers: extra layers that only speculation runs; counted apart.
        default_precision: formats of the published checkpoint, bf16 where it does not say.
        published_parameters: exact count its publisher states, 0 = none.
        source: where the numbers come from.

    Raises:
        SilicastError: sizes that contradict each other, or outside :data:`LIMITS`.

    >>> ModelConfig("toy", "llama", 2, 64, 4, 3, 16, 128, 100)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    silicast.core.errors.SilicastError: kv_heads: 3 key-value heads do not divide 4 heads (...)
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    norm: Norm = "rmsnorm"
    norm_bias: bool = False
    gated: bool = True
    activation: str = "silu"
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: bool = False
    position: Position = "rope"
    position_rows: int = 0
    embedding_norm: bool = False
    residual: Residual = "sequential"
    tied: bool = False
    windows: tuple[int, ...] = ()
    max_positions: int = 0
    mtp_layers: int = 0
    default_precision: Precision = Precision()
    published_parameters: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        for field in LIMITS:
            check_size(field, getattr(self, field))
        for field, allowed in _CHOICES.items():
            if getattr(self, field) not in allowed:
                raise SilicastError(
                    f"expected one of {', '.join(allowed)}, found {getattr(self, field)!r}",
                    field=field,
                )
        if self.heads % self.kv_heads:
            raise SilicastError(
                f"{self.kv_heads} key-value heads do not divide {self.heads} heads",
                field="kv_heads",
                hint=f"use a divisor of {self.heads}",
            )
        if (self.position == "learned") != (self.position_rows > 0):
            raise SilicastError(
                f"{self.position} positions with a table of {self.position_rows} rows",
                field="position_rows",
                hint="give the rows of a learned table, and only then",
            )
        if self.windows and len(self.windows) != self.layers:
            raise SilicastError(
                f"{len(self.windows)} windows for {self.layers} layers",
                field="windows",
                hint="give one window per layer, 0 where a layer sees everything",
            )
        for window in self.windows:
            _check_int("windows", window, 0, 1 << 28)

    @property
    def q_width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads (and of all value heads)."""
        return self.kv_heads * self.head_dim

    def window(self, layer: int) -> int:
        """Keys that a query of ``layer`` sees, 0 = all."""
        return self.windows[layer] if self.windows else 0

    def changed(self, changes: dict[str, Any]) -> ModelConfig:
        """The same model with some fields changed, as ``{base: name, ...}`` asks.

        Two relations follow along unless given: ``head_dim`` stays hidden / heads, and
        ``kv_heads`` stays equal to heads, where the base has them so. One window for all layers
        stays so for another number of layers. The published count does not carry over.

        Raises:
            SilicastError: unknown field, or the result contradicts itself.
        """
        known = {field.name for field in fields(self)}
        for name in changes:
            if name not in known:
                raise SilicastError(
                    f"unknown model field {name!r}", field=name, hint=_near(name, known)
                )
        for name in LIMITS:
            if name in changes:
                check_size(name, changes[name])
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values |= {"published_parameters": 0, **changes}
        if "kv_heads" not in changes and self.kv_heads == self.heads:
            values["kv_heads"] = values["heads"]
        if "head_dim" not in changes and self.head_dim * self.heads == self.hidden:
            values["head_dim"] = divided(values["hidden"], values["heads"])
        if "windows" not in changes and len(set(self.windows)) == 1:
            values["windows"] = self.windows[:1] * values["layers"]
        return ModelConfig(**values)


def divided(hidden: int, heads: int) -> int:
    """``head_dim`` of a model that does not state it.

    Raises:
        SilicastError: ``hidden`` is not a multiple of ``heads``.
    """
    if heads < 1 or hidden % heads:
        raise SilicastError(
            f"hidden size {hidden} is not a multiple of {heads} heads",
            field="heads",
            hint="change one of them or state head_dim",
        )
    return hidden // heads


def check_size(field: str, value: object) -> None:
    """Refuses what is not a whole number within :data:`LIMITS`.

    Raises:
        SilicastError: names the field.
    """
    _check_int(field, value, *LIMITS[field])


def _check_int(field: str, value: object, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        huge = isinstance(value, int) and abs(value) >= 1 << 128
        shown = "a far larger one" if huge else repr(value)[:40]
        raise SilicastError(
            f"expected a whole number from {low} to {high}, found {shown}", field=field
        )


def _near(name: str, known: set[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, sorted(known), n=3)
    return f"did you mean {' or '.join(near)}?" if near else ""
