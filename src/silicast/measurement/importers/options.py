"""What a user states of a file beside its content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.scenario.schema import RawScenario
from silicast.scenario.strict import near

TEXTS = ("version", "name", "model", "engine", "device", "library", "library_version", "variant")
"""Last parts of fields that hold text, even if it looks like a number."""
TABLES = ("kernel", "collective", *RawScenario.__struct_fields__)
"""What fields may start with: tables of rows, and those of a scenario."""


@final
@dataclass(frozen=True)
class Options:
    """What the file does not hold.

    Attributes:
        device: catalog name or path of a device file; "" = as the file says.
        fields: dotted field of a scenario -> its value; they win over those of the file.
        session: name of the session.

    >>> Options(fields={"kernel.cache": "cold", "model": "x"}).own("kernel")
    {'cache': 'cold'}
    """

    device: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    session: str = "import"

    def own(self, prefix: str) -> dict[str, Any]:
        """Fields below a prefix, without it."""
        start = f"{prefix}."
        return {k.removeprefix(start): v for k, v in self.fields.items() if k.startswith(start)}


def stated(words: Sequence[str]) -> dict[str, Any]:
    """``field=value`` words: numbers, truth values and text.

    >>> stated(["parallel.tp=2", "engine.version=0.10", "model=Llama-3.1-8B"])
    {'parallel.tp': 2, 'engine.version': '0.10', 'model': 'Llama-3.1-8B'}

    Raises:
        SilicastError: a word without "=", a field that is given twice, or one of no table.
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name or not text:
            raise SilicastError(
                f"expected field=value, found {word[:60]!r}", field="--set",
                hint="for example --set parallel.tp=2",
            )  # fmt: skip
        if name.partition(".")[0] not in TABLES:
            raise SilicastError(
                f"no field {name!r}", kind="unknown_name", field="--set",
                hint=near(name.partition(".")[0], TABLES),
            )  # fmt: skip
        if name in found:
            raise SilicastError(f"{name!r} is given twice", field="--set", hint="give it once")
        found[name] = text if name.rpartition(".")[2] in TEXTS else _typed(text)
    return found


def _typed(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text
