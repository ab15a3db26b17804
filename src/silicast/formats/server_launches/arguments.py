"""Arguments of a server by the names that its engine has, whatever form they are given in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from silicast.core.errors import SilicastError
from silicast.core.plain_data import check_tree, value_of_word
from silicast.formats.server_launches.launcher import Launcher
from silicast.formats.shell_options import options, unresolved

_SHORT = re.compile(r"-([A-Za-z]{1,5})(?:([=.])(.*)|(\d+))?", re.DOTALL)
_COUNT = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])(?:i?B)?")
_SIZES = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_ALONE = re.compile(r"(?:no|enable|disable|trust|enforce|skip|use|log|async|fully|headless)\b")
_WORDS = {"true": True, "false": False, "none": None, "null": None}
_NUMBERS = re.compile(r"-?\d+(?: -?\d+)+")
MOST_LEVELS = 6
Opener = Callable[[str], "Mapping[str, Any] | None"]


@final
@dataclass(frozen=True)
class ServerArguments:
    """What a command says.

    Attributes:
        values: name with hyphens, of a table's fields with dots -> value.
        abbreviated: names as they were written, in short -> the flag that they begin.
    """

    values: Mapping[str, Any]
    abbreviated: Mapping[str, str]


def arguments_of(
    launcher: Launcher, words: Sequence[str], opened: Opener, file: str
) -> ServerArguments:
    """Arguments of a command and of the files of options that it names.

    Args:
        opened: the table of a file that a flag names; None = it is not there.

    Raises:
        SilicastError: a table that is no JSON.
    """
    reads = launcher.reads
    named, positional = _named(launcher, words)
    values: dict[str, Any] = {"model-path": positional} if positional else {}
    abbreviated: dict[str, str] = {}
    for name, value in named:
        flag = _flag(launcher, name)
        head = name.partition(".")[0].replace("_", "-")
        whole = _turns_off(head, flag) or head in (*reads.aliases, *known_flags(launcher))
        if not whole and flag != name.replace("_", "-"):
            abbreviated[name] = flag.partition(".")[0]
        values |= _stated(launcher, name, _typed(value, flag, file))
    for flag in reads.config:
        if not isinstance(path := values.get(flag), str) or unresolved(path):
            continue
        table = opened(path)
        if table is None:
            continue
        del values[flag]
        inner: dict[str, Any] = {}
        for name, value in table.items():
            is_text = isinstance(value, str) and value.strip()
            typed = _typed(value, str(name), file) if is_text else value
            inner |= _stated(launcher, str(name), typed)
        values = {**values, **inner} if reads.config_wins else {**inner, **values}
    for name in ("model", "model-tag"):
        if isinstance(model := values.pop(name, None), str):
            values.setdefault("model-path", model)
    return ServerArguments(values, abbreviated)


def _named(launcher: Launcher, words: Sequence[str]) -> tuple[list[tuple[str, str]], str]:
    """Flags with their values, and the argument that stands alone."""
    positional = ""
    tail: list[str] = []
    for word in words:
        match = _SHORT.fullmatch(word)
        if match and (name := launcher.reads.aliases.get(match[1])):
            inner = f".{match[3]}" if match[2] == "." else ""
            value = match[3] if match[2] == "=" else match[4]
            tail += [f"--{name}{inner}", *([value] if value else [])]
        else:
            tail.append(word)
    remaining: list[str] = []
    for at, word in enumerate(tail):
        before = tail[at - 1] if at else ""
        is_free = not before.startswith("--") or "=" in before or _stands_alone(before, word)
        if not positional and is_free and not word.startswith("-") and not _continues(tail, at):
            positional = word
        else:
            remaining.append(word)
    return list(options(remaining).items()), positional


def _stated(launcher: Launcher, name: str, value: Any) -> dict[str, Any]:
    """A flag with its value; fields of a table by names with dots."""
    flag = _flag(launcher, name)
    if _turns_off(name.replace("_", "-"), flag) and isinstance(value, bool):
        return {flag: not value}
    head, dot, tail = flag.partition(".")
    if dot or isinstance(value, dict):
        flag = f"{launcher.reads.tables.get(head, head)}{dot}{tail}"
    return _leaves(flag, value, 0)


def _turns_off(name: str, flag: str) -> bool:
    """Whether a name is the negative form of a flag."""
    return name.startswith("no-") and not flag.startswith("no-")


def _stands_alone(flag: str, word: str) -> bool:
    """Whether a word is no value of the flag before it."""
    return bool(_ALONE.match(flag[2:])) and word.casefold() not in _WORDS


def _continues(words: Sequence[str], at: int) -> bool:
    """Whether a word is a further value of a flag that takes several."""
    return at > 1 and not words[at - 1].startswith("-") and any(w[:2] == "--" for w in words[:at])


def _flag(launcher: Launcher, name: str) -> str:
    """The flag that a name stands for: itself, an alias, its positive form, or one that it begins.

    Its own name is returned where no flag is meant.
    """
    head, dot, tail = name.replace("_", "-").partition(".")
    flags = known_flags(launcher)
    head = launcher.reads.aliases.get(head, head)
    if head not in flags and head.startswith("no-"):
        head = head.removeprefix("no-")
    if head not in flags and len(head) > 3:
        begun = sorted({launcher.reads.aliases.get(e, e) for e in flags if e.startswith(head)})
        head = begun[0] if len(begun) == 1 else head
    return f"{head}{dot}{tail}"


def known_flags(launcher: Launcher) -> frozenset[str]:
    """Every flag of the engine, with hyphens."""
    reads = launcher.reads
    worker = launcher.dynamo.known if launcher.dynamo else ()
    flags = [flag[2:].replace("_", "-") for flag in (*launcher.known.flags, *worker)]
    tables = [option.partition(".")[0] for option in (*reads.options, *reads.renamed)]
    return frozenset((*flags, *reads.earlier, *tables, *reads.negated, "model", "model-path"))


def _typed(text: str, flag: str, file: str) -> Any:
    """A value of its text: a number, true or false, a table or a list of JSON, else the text.

    >>> _typed("8K", "x", ""), _typed("", "x", ""), _typed("1 2 4", "x", ""), _typed("0.9", "x", "")
    (8192, True, [1, 2, 4], 0.9)
    """
    plain = text.strip()
    if not plain:
        return True
    if plain[0] in "{[":
        try:
            value = json.loads(plain)
        except (ValueError, RecursionError) as error:
            raise SilicastError(
                f"expected JSON, found {plain[:60]!r}: {error}",
                file=file,
                field=f"--{flag}",
                hint="are its quotes still there after the shell took them?",
            ) from None
        check_tree(value)
        return value
    if plain.casefold() in _WORDS:
        return _WORDS[plain.casefold()]
    if _NUMBERS.fullmatch(plain):
        return [int(word) for word in plain.split()]
    if match := _COUNT.fullmatch(plain):
        return int(float(match[1]) * _SIZES[match[2]])
    return value_of_word(plain)


def _leaves(name: str, value: Any, level: int) -> dict[str, Any]:
    """A value by its name; fields of a table by names with dots."""
    if not isinstance(value, dict) or not value or level > MOST_LEVELS:
        return {name: value}
    return dict(_below(name, value, level))


def _below(name: str, table: Mapping[str, Any], level: int) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        yield from _leaves(f"{name}.{str(key).replace('_', '-')}", value, level + 1).items()
