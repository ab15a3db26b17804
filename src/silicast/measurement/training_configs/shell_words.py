"""The arguments of a program in a shell script: variables are put in, nothing is executed.

What is understood: assignments, arrays, ``+=``, ``$NAME``, ``${NAME}``, ``${NAME[@]}``,
``${NAME:-default}``, sums and products in ``$(( ))``, quotes, comments and continued lines. The
last assignment of a name counts, whatever branch of the script it stands in.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

from silicast.core.errors import over_limit

MAX_EXPANDED = 1 << 20
MAX_INTEGER = 1 << 63
_ASSIGNED = re.compile(
    r"^\s*(?:(?:export|declare|local|readonly|typeset)\s+(?:-\w+\s+)*)?"
    r"(?P<name>[A-Za-z_]\w*)(?P<adds>\+?)=(?P<value>.*)$",
    re.DOTALL,
)
_USED = re.compile(
    r"\$\(\((?P<sum>[^()]*(?:\([^()]*\)[^()]*)*)\)\)"
    r"|\$\{(?P<braced>[A-Za-z_]\w*)(?:\[[@*]\])?(?::?-(?P<default>[^{}]*))?\}"
    r"|\$(?P<bare>[A-Za-z_]\w*)"
)
_NUMBERS = re.compile(r"\s*(?:(\d+)|([-+*/%()]))")
_CUT = ("|", "||", "&", "&&", ";", ">", ">>", "2>&1")


@final
@dataclass(frozen=True)
class Script:
    """A script's variables, and its lines.

    Attributes:
        branched: variables that are set where a condition holds.
    """

    lines: tuple[str, ...]
    variables: Mapping[str, str]
    branched: tuple[str, ...] = ()

    @staticmethod
    def of(text: str) -> Script:
        r"""A script of its text.

        Raises:
            SilicastError: kind "limit": variables grow beyond 1 MiB.

        >>> script = Script.of('TP=2\nARGS=(--tp $TP --bf16)\npython x.py ${ARGS[@]}')
        >>> script.command()
        ['python', 'x.py', '--tp', '2', '--bf16']
        """
        lines = tuple(_logical_lines(text))
        known: dict[str, str] = {}
        branched: dict[str, None] = {}
        depth = 0
        for line in lines:
            word = line.split(maxsplit=1)[0]
            depth += (word in ("if", "case")) - (word in ("fi", "esac"))
            match = _ASSIGNED.match(line)
            if match is None:
                continue
            value = match["value"].strip()
            value = value[1:-1] if value[:1] == "(" and value[-1:] == ")" else _bare(value)
            before = known.get(match["name"], "") if match["adds"] else ""
            known[match["name"]] = _expanded(f"{before} {value}".strip(), known)
            if depth > 0:
                branched[match["name"]] = None
        return Script(lines, known, tuple(branched))

    def command(self) -> list[str]:
        """Words of the line that runs a Python program, without one all words that are no
        assignment.
        """
        plain = [line for line in self.lines if not _ASSIGNED.match(line)]
        run = [line for line in plain if re.search(r"\.py\b|\s-m\s", line)]
        named = [line for line in run if re.search(r"pretrain|train|finetune", line)]
        words: list[str] = []
        for line in (named or run)[-1:] or plain:
            for word in _words(_expanded(line, self.variables)):
                if word in _CUT:
                    break
                words.append(word)
        return words


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """A text with its variables put in; one that has no value stays as it stands.

    Raises:
        SilicastError: kind "limit": it grows too long.
    """
    parts, place, size = [], 0, 0
    for match in _USED.finditer(text):
        parts += [text[place : match.start()], _value(match, known)]
        size += len(parts[-1]) + len(parts[-2])
        if size > MAX_EXPANDED:
            raise over_limit("variables hold too much text")
        place = match.end()
    return "".join((*parts, text[place:]))


def _value(match: re.Match[str], known: Mapping[str, str]) -> str:
    if match["sum"] is not None:
        text = re.sub(
            r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda name: known.get(name[1], name[0]), match["sum"]
        )
        value = integer_of(text)
        return match[0] if value is None else str(value)
    found = known.get(match["braced"] or match["bare"])
    if found is not None:
        return found
    return match[0] if match["default"] is None else _bare(str(match["default"]))


def integer_of(text: str) -> int | None:
    """The value of whole numbers with + - * / % and brackets; None of anything else.

    >>> integer_of("8 * (2 + 1)"), integer_of("8 / 0"), integer_of("x")
    (24, None, None)
    """
    tokens, place = [], 0
    text = text.strip()
    if len(text) > 200:
        return None
    while place < len(text):
        match = _NUMBERS.match(text, place)
        if match is None:
            return None
        tokens.append(match[1] or match[2])
        place = match.end()
    try:
        value = _sum(tokens)
    except (IndexError, ValueError, ZeroDivisionError, RecursionError):
        return None
    return None if tokens or abs(value) > MAX_INTEGER else value


def _sum(tokens: list[str]) -> int:
    value = _product(tokens)
    while tokens and tokens[0] in "+-":
        sign = 1 if tokens.pop(0) == "+" else -1
        value += sign * _product(tokens)
    return value


def _product(tokens: list[str]) -> int:
    value = _factor(tokens)
    while tokens and tokens[0] in "*/%":
        operator, other = tokens.pop(0), _factor(tokens)
        if operator == "*":
            value *= other
        else:
            value = value // other if operator == "/" else value % other
        if abs(value) > MAX_INTEGER:
            raise ValueError
    return value


def _factor(tokens: list[str]) -> int:
    first = tokens.pop(0)
    if first == "-":
        return -_factor(tokens)
    if first == "(":
        value = _sum(tokens)
        if tokens.pop(0) != ")":
            raise ValueError
        return value
    return int(first) if len(first) < 20 else int("x")


def options(words: list[str]) -> Mapping[str, str]:
    """``--name value`` and ``--name=value`` by name with hyphens; "" for a flag alone.

    >>> dict(options(["run.py", "--num_layers", "4", "--bf16", "--lr=1e-4", "-q"]))
    {'num-layers': '4', 'bf16': '', 'lr': '1e-4'}
    """
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--") and len(word) > 2:
            name, _, value = word[2:].partition("=")
            name = name.replace("_", "-")
            found[name] = value
        elif word.endswith(".py") or (word.startswith("-") and not re.match(r"-\d", word)):
            name = ""
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments; continued ones, and those within quotes or brackets, as one."""
    held = ""
    for raw in text.splitlines():
        line = raw.rstrip()
        start = f"{held} {line}" if held else line
        bare = _without_comment(start) if not held else f"{held} {_without_comment(line)}"
        if bare.endswith("\\"):
            held = bare[:-1].rstrip()
            continue
        if _open(bare):
            held = bare
            continue
        held = ""
        yield from _commands(bare)
    yield from _commands(held)


def _commands(line: str) -> Iterator[str]:
    """What semicolons outside of quotes and brackets divide."""
    quote, depth, start = "", 0, 0
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "(){}":
            depth += 1 if letter in "({" else -1
        elif letter == ";" and depth <= 0:
            if line[start:place].strip():
                yield line[start:place].strip()
            start = place + 1
    if line[start:].strip():
        yield line[start:].strip()


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter == "#" and (not place or line[place - 1].isspace()):
            return line[:place].rstrip()
    return line


def _open(line: str) -> bool:
    """Whether a quote, or the bracket of an array, is open at its end."""
    quote, depth = "", 0
    match = _ASSIGNED.match(line)
    brackets = match is not None and match["value"].lstrip().startswith("(")
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote and line[place - 1] != "\\" else quote
        elif letter in "'\"":
            quote = letter
        elif brackets and letter in "()":
            depth += 1 if letter == "(" else -1
    return bool(quote) or depth > 0


def _bare(value: str) -> str:
    """A value without its quotes, and without what stands behind them."""
    if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
        return value[1:end]
    return value.split(";", maxsplit=1)[0].strip()


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return line.replace('"', " ").replace("'", " ").split()


def unresolved(value: str) -> bool:
    """Whether a value is left to the shell."""
    return "$" in value or "`" in value
