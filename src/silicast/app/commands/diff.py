"""`silicast diff`."""

from __future__ import annotations

import json as plain_json
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from silicast.app import status
from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Calibrations, Json, key_values
from silicast.app.predict import Tree, predicted, read_scenario, refused, with_calibrations
from silicast.core.errors import SilicastError
from silicast.core.files import read_bounded
from silicast.core.plain_data import leaves

MAX_ANSWER_BYTES = 64 << 20
Sets = Annotated[list[str] | None, Parameter(name="--set", negative="")]


@described()
def diff(
    a: Path,
    b: Path | None = None,
    /,
    *,
    set_: Sets = None,
    of: str = "",
    calibration: Calibrations = None,
    markdown: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    json: Json = False,
) -> int:
    """Explain why one scenario takes longer than another: by part, and by cause.

    As in `silicast diff a.toml --set device=h200`, or `silicast diff a.toml b.toml`.

    Args:
        a: a scenario file, or an answer that `--json` printed.
        b: another one; left out, A with the fields of --set.
        set_: a field of B's scenario, such as device=h200 or parallel.tp=2; give it once for each.
        of: the part of the answers to take apart, such as prefill or decode_step; left out, all.
        markdown: print Markdown instead of tables.
        json: print the difference as JSON instead of tables.
    """
    if markdown and json:
        raise SilicastError("--markdown and --json are both given", hint="keep one of them")
    if b is None and not set_:
        raise SilicastError(
            "is missing", field="B", hint="give a second file, or --set field=value"
        )
    first, asked_a = _answer(a, {}, calibration)
    changes = key_values(set_ or [], "--set", "--set device=h200 --set parallel.tp=2")
    second, asked_b = _answer(b or a, changes, calibration)

    from silicast.report.reasons.difference import difference
    from silicast.report.reasons.difference_text import (
        difference_markdown,
        difference_report,
        difference_tables,
    )

    result = difference(first, second, of=of)
    changed = _changed(asked_a, asked_b)
    if json:
        write_json(difference_tables(result, changed))
    elif markdown:
        print(difference_markdown(result, changed), end="")  # noqa: T201
    else:
        show(difference_report(result, changed))
    return status.ANSWERED


def _answer(file: Path, fields: Tree, calibration: list[Path] | None) -> tuple[Tree, Tree]:
    """The answer that a file holds or whose scenario it holds, and what was asked."""
    stored = _stored(file)
    if stored is not None:
        if fields:
            raise SilicastError(
                "an answer cannot be changed",
                field="--set",
                file=str(file),
                hint="give the scenario's file",
            )
        return stored, _setup(stored)
    from silicast.scenario.set_fields import with_fields

    scenario = with_calibrations(with_fields(read_scenario(file), fields), calibration)
    reply = predicted({**scenario, "why": "full"}, file)
    if not reply["ok"]:
        raise refused(reply, file)
    return reply, scenario


def _stored(file: Path) -> Tree | None:
    """The answer in a file, None where it holds a scenario."""
    if file.suffix != ".json":
        return None
    try:
        tree = plain_json.loads(read_bounded(file, MAX_ANSWER_BYTES, "an answer"))
    except (ValueError, RecursionError):
        return None  # whoever reads it as a scenario says what is wrong
    if not isinstance(tree, dict) or "ok" not in tree:
        return None
    if not tree["ok"]:
        raise SilicastError("holds no answer but a refusal", file=str(file))
    if not (isinstance(tree.get("metrics"), dict) and isinstance(tree.get("why"), dict)):
        raise SilicastError("is no answer of silicast", file=str(file), hint="see `run --json`")
    return tree


def _setup(answer: Tree) -> Tree:
    """What an answer says of its scenario."""
    setup = answer["why"].get("deployment")
    return dict(setup) if isinstance(setup, dict) else {}


def _changed(a: Tree, b: Tree) -> dict[str, tuple[Any, Any]]:
    """Fields whose values differ, by their dotted names."""
    fields_a, fields_b = dict(leaves(a)), dict(leaves(b))
    names = [name for name in {**fields_a, **fields_b} if name not in ("id", "why")]
    return {
        n: (fields_a.get(n), fields_b.get(n)) for n in names if fields_a.get(n) != fields_b.get(n)
    }
