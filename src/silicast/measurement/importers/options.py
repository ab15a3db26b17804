"""What a user states of a file beside its content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.scenario.schema import RawScenario
from silicast.scenario.strict import near

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

    Raises:
        SilicastError: a field starts with the name of no table.

    >>> Options(fields={"kernel.cache": "cold", "model": "x"}).own("kernel")
    {'cache': 'cold'}
    """

    device: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    session: str = "import"

    def __post_init__(self) -> None:
        """Rejects fields that no file has."""
        for name in self.fields:
            table = name.partition(".")[0]
            if table not in TABLES:
                raise SilicastError(
                    f"no field {name!r}", kind="unknown_name", field="--set",
                    hint=near(table, TABLES),
                )  # fmt: skip

    def own(self, prefix: str) -> dict[str, Any]:
        """Fields below a prefix, without it."""
        start = f"{prefix}."
        return {k.removeprefix(start): v for k, v in self.fields.items() if k.startswith(start)}
