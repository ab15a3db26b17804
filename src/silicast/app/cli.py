"""The command line. Commands are in :mod:`silicast.app.commands`, loaded when they are called.

Results go to stdout, everything else to stderr. Exit status: 0 answered, 2 bad input, 3 some
cases of a batch failed, 70 a defect of Silicast, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from silicast import _CORE, __version__
from silicast.app import status
from silicast.app.console import abandon_stdout, replace_closed_streams, warn, write_json
from silicast.core.errors import SilicastError

if TYPE_CHECKING:
    from cyclopts import App

HELP_FLAGS = ("--help", "-h")

HELP = (
    "How fast will it run, before anybody buys, rents or builds it?\n\n"
    "Predicts latency, throughput and memory of machine-learning work, with a 90 % interval and "
    "the reasons, without a GPU. A first answer:\n\n"
    "silicast infer --model Llama-3.1-8B --device h100 --batch 8\n\n"
    "`silicast examples` has ten questions with their commands, `silicast explain ttft_p99` says "
    "what a metric means."
)

PREDICT = (
    "infer", "serve", "train", "capacity", "recommend", "deploy", "fits", "collective", "graph",
    "compare", "explain", "diff", "whatif", "sensitivity", "kernel", "run", "batch", "sweep",
    "results", "reproduce", "traffic", "examples", "server", "mcp", "page",
)  # fmt: skip
CATALOG = (
    "devices", "models", "engines", "trace", "validate", "measure", "import", "calibrate",
    "drift", "check", "scorecard", "design", "tune", "diagnose", "nas", "runtime", "cache",
)  # fmt: skip
MODULES = {"import": "import_"}
"""Modules that cannot be called as their command is."""


def build_app() -> App:
    """The command tree; each command's module is imported on first use."""
    from cyclopts import App, Group, Parameter

    app = App(
        name="silicast",
        help=HELP,
        version=lambda: f"{__version__} ({_CORE.description})",
        help_format="plaintext",
        default_parameter=Parameter(converter=_converted),
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    groups = (Group.create_ordered("Predict"), Group.create_ordered("Look up and check"))
    for group, names in zip(groups, (PREDICT, CATALOG), strict=True):
        for position, name in enumerate(names):
            module = MODULES.get(name, name.replace("-", "_"))
            path = f"silicast.app.commands.{module}:{module}"
            app.command(path, name=name, group=group, sort_key=position)
    return app


def _converted(kind: Any, tokens: Any) -> Any:
    """The value of an option, as cyclopts makes it; but it rounds what is to be a whole number.

    Raises:
        CoercionError: a fraction stands where a whole number is expected.
    """
    from cyclopts import CoercionError, Token, convert

    if kind in (int, int | None, list[int], list[int] | None):
        for token in tokens:
            if isinstance(token, Token) and "." in token.value and not _is_whole(token.value):
                raise CoercionError(token=token, target_type=int)
    return convert(kind, tokens)


def _is_whole(text: str) -> bool:
    try:
        return float(text).is_integer()
    except ValueError:
        return True  # is no number: cyclopts says so


OFF = frozenset({"", "0", "false", "no", "off"})
"""Values of ``SILICAST_DEBUG`` that leave tracebacks out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status; no traceback reaches a user."""
    tokens = with_negatives(sys.argv[1:] if arguments is None else arguments)
    replace_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without µ still gets its table
    try:
        result = _answered(tokens)
        sys.stdout.flush()
    except OSError as error:
        abandon_stdout()
        if isinstance(error, BrokenPipeError):
            return 0  # the reader (`| head`) has what it wanted
        where = f"{error.filename}: " if error.filename else "cannot write the output: "
        return _fail(f"{where}{error.strerror or error}", status.BAD_INPUT)
    except KeyboardInterrupt:
        warn("interrupted")
        return status.INTERRUPTED
    except Exception as error:
        if os.environ.get("SILICAST_DEBUG", "").strip().lower() not in OFF:
            raise
        warn(
            f"internal error: {type(error).__name__}: {' '.join(str(error).split())[:300]} "
            "(please report; SILICAST_DEBUG=1 shows the traceback)"
        )
        return status.INTERNAL
    return result


def with_negatives(tokens: Sequence[str]) -> list[str]:
    """The words; a value that begins with a minus and a digit joins its option, whose command
    then says what it expects there.

    >>> with_negatives(["sweep", "--shard", "-1/2", "--rate", "3", "-o", "out"])
    ['sweep', '--shard=-1/2', '--rate', '3', '-o', 'out']
    """
    joined: list[str] = []
    for token in tokens:
        negative = len(token) > 1 and token[0] == "-" and (token[1].isdigit() or token[1] == ".")
        if negative and joined and joined[-1].startswith("--") and "=" not in joined[-1]:
            joined[-1] += f"={token}"
        else:
            joined.append(token)
    return joined


def _answered(tokens: list[str]) -> int:
    """Runs the command; what it refuses is an error on stderr, or a refusal where JSON is asked."""
    try:
        return _dispatch(tokens)
    except SilicastError as error:
        result = status.of_error(error.kind)
        if "--json" not in tokens:
            return _fail(str(error), result)

        from silicast.scenario.answer import refusal

        write_json(refusal(error))
        return result


def _dispatch(tokens: list[str]) -> int:
    from cyclopts import CycloptsError

    app = build_app()
    if not tokens or tokens[0] in HELP_FLAGS:
        for name in (*PREDICT, *CATALOG):
            app[name]  # imports the command, whose docstring the help shows
    try:
        result = app(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        from silicast.app.misspelt import said_of
        from silicast.scenario.road import refuse_coming

        refuse_coming({"task": tokens[0] if tokens else ""})
        command = " ".join(("silicast", *(error.command_chain or ())))
        raise SilicastError(said_of(error), hint=f"see `{command} --help`") from None
    return result if isinstance(result, int) else status.ANSWERED


def _fail(text: str, result: int) -> int:
    """Says in one line what is wrong: a file's name may hold ends of lines."""
    warn("error: " + text.replace("\n", "\\n"))
    return result
