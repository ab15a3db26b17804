"""From a scenario to what a command prints and its exit status, for all commands that predict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from silicast.app import status
from silicast.app.console import show, told_as_it_goes, warn, watched_from_first, write_json
from silicast.core.errors import SilicastError, unsupported

if TYPE_CHECKING:
    from rich.console import RenderableType

    from silicast.scenario.answerer import ProgressWatch

Tree = dict[str, Any]


def read_scenario(path: Path) -> Tree:
    """The plain content of a scenario file."""
    from silicast.core.plain_data import read_scenario_file

    try:
        return read_scenario_file(path)
    except SilicastError as error:
        if path.suffix != ".jsonl" or error.kind == "io":
            raise
        hint = f"silicast batch {path} answers files of one scenario a line"
        raise SilicastError(
            error.message, kind=error.kind, field=error.field, file=error.file, hint=hint
        ) from None


def with_calibrations(scenario: Tree, files: list[Path] | None) -> Tree:
    """A scenario that rests on the files of ``--calibration`` too."""
    from silicast.scenario.decode import with_calibrations as added

    return added(scenario, files) if files else scenario


def predicted(scenario: Tree, file: Path | None = None, watch: ProgressWatch | None = None) -> Tree:
    """The answer or refusal to a scenario, as plain tables.

    Args:
        file: where the scenario stands; relative paths in it start there.
        watch: what the command is told meanwhile.
    """
    import msgspec

    from silicast.scenario.run import reply_to

    with mapping_shown(scenario):
        reply = reply_to(scenario, folder=file.parent if file else None, watch=watch)
    builtins: Tree = msgspec.to_builtins(reply)
    return builtins


@contextmanager
def mapping_shown(scenario: Tree) -> Iterator[None]:
    """On a terminal: how many mappings of a design are searched meanwhile, and afterwards the
    command that stores them.
    """
    if not told_as_it_goes():
        yield
        return
    from silicast.scenario.designs.design_models import MappingSearches

    searches = MappingSearches()
    with watched_from_first("mappings searched", searches.count):
        yield
    advice = searches.advice(scenario.get("device"), scenario.get("model"))
    if advice:
        warn(advice)


def screen_of(scenario: Tree) -> Callable[[Tree], RenderableType]:
    """What shows an answer to a scenario; imported only where one is shown."""

    def shown(answer: Tree) -> RenderableType:
        from silicast.report.answers import answer_report

        return answer_report(scenario, answer)

    return shown


def print_reply(
    reply: Tree,
    render: Callable[[Tree], RenderableType],
    *,
    json: bool,
    strict: bool = False,
    file: Path | None = None,
) -> int:
    """Prints one answer and returns the exit status.

    Args:
        strict: an answer outside measured ground is an error.

    Raises:
        SilicastError: the scenario was refused and no JSON was asked for, or ``strict``.
    """
    if strict:
        require_measured(reply)
    if json:
        write_json(reply)
    elif reply["ok"]:
        show(render(reply))
    else:
        raise refused(reply, file)
    return status_of(reply)


def status_of(reply: Tree) -> int:
    """The exit status that says whether a scenario was answered."""
    return status.ANSWERED if reply["ok"] else status.of_error(reply["error"]["kind"])


def refused(reply: Tree, file: Path | None = None) -> SilicastError:
    """The error that a refusal describes."""
    problem = reply["error"]
    return SilicastError(
        problem["message"],
        kind=problem["kind"],
        field=problem["field"],
        hint=problem["hint"],
        file=str(file or ""),
    )


def require_measured(reply: Tree) -> None:
    """Refuses an answer outside measured ground, with what it lies outside of."""
    if reply["ok"] and reply["domain"] != "in":
        reasons = "; ".join(reply["warnings"]) or "no measurements near it"
        raise unsupported(
            f"outside measured ground: {reasons}",
            _cause(reply),
            "without --strict it is answered with wider intervals",
        )


def _cause(reply: Tree) -> str:
    """The field behind an answer outside measured ground: the model where it was not understood."""
    assumed = reply.get("why", {}).get("assumed_of_model", ())
    if any("architecture" in remark for remark in assumed):
        return "model.architectures"
    return "model" if assumed else "device"
