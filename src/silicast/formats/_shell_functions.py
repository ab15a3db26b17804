"""Functions of a shell script: their commands are held, to be carried out by each call; and what
bare words are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import final

from silicast.core.errors import SilicastError
from silicast.formats._shell_lexer import Assignment, Command, Token, Word, WordPiece

BLANKS = " \t\n"
_READ_TAKES = frozenset("adinNptu")
"""Flags of ``read`` that have values."""
_DIVIDES = frozenset(("do", "then", "else", "elif", "if", "fi", "!"))
_SETS = frozenset(("[", "[[", "test", "((", "let", "export", "declare", "local", "echo", ":"))
"""Heads of commands that a loop may hold which only sets variables."""
_Body = list[tuple[Command, bool]]


def plain(token: Token) -> str:
    """A bare word, "" for anything else."""
    if isinstance(token, Assignment) or len(token) != 1 or token[0].quote:
        return ""
    return token[0].text


def as_written(token: Token) -> str:
    """The text of a token without its quotes."""
    if not isinstance(token, Assignment):
        return "".join(part.text for part in token)
    return f"{token.name}{'+' * token.adds}={''.join(map(as_written, token.words))}"


def lost(what: str) -> SilicastError:
    """Refuses what changes arguments in a way that only running would say."""
    return SilicastError(
        f"{what} cannot be followed without running it",
        field="shift",
        hint="write the options of the run where it starts, instead of arguments",
    )


def echoed(tokens: Sequence[Token]) -> Word | None:
    """The line that ``echo`` prints, or ``printf`` a text without formats; None = only running it
    would say.
    """
    words = [token for token in tokens[1:] if isinstance(token, tuple)]
    if plain(tokens[0]) == "printf" and len(words) == 1 == len(tokens) - 1:
        if any("%" in part.text for part in words[0]):
            return None
        return tuple(WordPiece(p.text.replace("\\n", "\n"), p.quote) for p in words[0])
    isplain = len(words) == len(tokens) - 1 and not (words and plain(words[0]).startswith("-"))
    if plain(tokens[0]) != "echo" or not isplain:
        return None
    parts = [part for word in words for part in (WordPiece(" ", "'"), *word)]
    return (*parts[1:], WordPiece("\n", "'"))


def read_values(
    words: Sequence[str], text: str, separators: str = BLANKS
) -> dict[str, str | list[str] | None]:
    r"""Variables that ``read`` gives values to; None = only running it would say which.

    Args:
        words: of the command, without quotes; separators: letters of ``IFS``.

    >>> read_values(["read", "-r", "A", "B"], "1 2  3\n4")
    {'A': '1', 'B': '2  3'}
    >>> read_values(["read", "-ra", "P"], "x,y", ","), read_values(["read", "-n", "1", "P"], "xy")
    ({'P': ['x', 'y']}, {'P': None})
    """
    flags, names = _read_flags(words[1:])
    whole = flags.get("d", "\n") == ""
    line = text if whole else text.partition("\n")[0]
    escapes = "r" not in flags and "\\" in line
    if escapes or set("nNu") & set(flags) or not (whole or "d" not in flags):
        return dict.fromkeys(names)
    if "$" in separators or "`" in separators:
        return dict.fromkeys(names)
    cut, blanks = _cut_at(separators)
    line = line.strip(blanks) if blanks else line
    if "a" in flags:
        return {name: split_at(line, separators) for name in names}
    values: dict[str, str | list[str] | None] = {}
    at = 0
    for name in names[:-1]:
        match = cut.search(line, at)
        values[name] = line[at : match.start() if match else len(line)]
        at = match.end() if match else len(line)
    for name in names[-1:]:
        match = cut.search(line, at)
        is_last = match is not None and match.end() == len(line)
        values[name] = line[at : match.start() if match and is_last else len(line)]
    return values


def split_at(text: str, separators: str) -> list[str]:
    """Words of a text, parted by letters of ``IFS``.

    >>> split_at(" a, b,,c,", ", ")
    ['a', 'b', '', 'c']
    """
    cut, blanks = _cut_at(separators)
    parts = cut.split(text.strip(blanks) if blanks else text)
    return parts if parts[-1] else parts[:-1]


def _cut_at(separators: str) -> tuple[re.Pattern[str], str]:
    """What parts words, and blanks that fall away around a text."""
    blank = "".join(letter for letter in separators if letter in BLANKS)
    blanks = re.escape(blank)
    others = re.escape("".join(letter for letter in separators if letter not in BLANKS))
    around = f"[{blanks}]*" if blanks else ""
    one = [f"{around}[{others}]{around}"] * bool(others) + [f"[{blanks}]+"] * bool(blanks)
    return re.compile("|".join(one) or r"(?!)"), blank


def _read_flags(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Flags of ``read`` with their values, and the names that it sets."""
    flags: dict[str, str] = {}
    queue = list(words)
    array: list[str] = []
    while queue and queue[0].startswith("-") and queue[0] != "-":
        flag = queue.pop(0)[1:]
        if flag == "-":
            break
        for at, letter in enumerate(flag, 1):
            flags[letter] = ""
            if letter in _READ_TAKES:
                flags[letter] = flag[at:] or (queue.pop(0) if queue else "")
                array = [flags[letter]] if letter == "a" else array
                break
    return flags, [name for name in (array or queue or ["REPLY"]) if name.isidentifier()]


def body_that_sets(
    following: Iterable[tuple[Command, bool]],
) -> tuple[list[tuple[Command, bool]], bool]:
    """Commands of the loop that opens here, where they do nothing but set variables, ask for them
    and print; none where they do more, or hold a loop. And whether a subshell carries them out.

    >>> from silicast.formats._shell_lexer import commands
    >>> def length(text): return len(body_that_sets(with_names(commands(text)))[0])
    >>> length("do A+=1; done; x"), length("do A=1; x $A; done"), length("do A=1")
    (1, 0, 0)
    >>> body_that_sets(with_names(commands("do A=1; done | x")))[1]
    True
    """
    body: list[tuple[Command, bool]] = []
    after = iter(following)
    for command, names in after:
        words = [*map(plain, command.tokens)]
        while words and words[0] in _DIVIDES:
            words = words[1:]
        if words[:1] == ["done"]:
            behind = next((command.joined for command, _ in after), "")
            is_apart = behind.startswith(("|", "&")) and behind not in ("||", "&&")
            return (body if command.joined.strip(";") == "" else []), is_apart
        assigns = all(isinstance(token, Assignment) for token in command.tokens[-len(words) :])
        if command.target or not (assigns or not words or words[0] in _SETS):
            break
        body.append((command, names))
    return [], False


def with_names(commands: Iterable[Command]) -> Iterator[tuple[Command, bool]]:
    """Commands, and whether each is only the name of a function that follows."""
    before: Command | None = None
    for command in commands:
        if before is not None:
            yield before, command.joined.endswith("()")
        before = command
    if before is not None:
        yield before, False


@final
class Functions:
    """Finds the functions of a script, command by command.

    Attributes:
        bodies: commands by the function's name; the last definition counts.
    """

    def __init__(self) -> None:
        self.bodies: dict[str, _Body] = {}
        self._before = self._named = self._open = ""
        self._depth = 0
        self._body: _Body = []
        self._counts = True

    def holds(self, command: Command, *, names: bool, runs: bool) -> bool:
        """Whether a command is part of a function.

        Args:
            names: as :func:`with_names`; runs: whether a definition here is carried out.
        """
        if not self._open and not self._begins(command):
            return False
        if not self._open:
            tokens = command.tokens[2 * (plain(command.tokens[0]) == "function") :]
            if not tokens:
                return True
            self._open, self._named, self._counts = self._named, "", runs
            self._depth = 1
            command = replace(command, tokens=tokens[1:], joined="")
            if not command.tokens:
                return True
        first, last = plain(command.tokens[0]), plain(command.tokens[-1])
        if first == "}":
            self._depth -= 1
            if not self._depth:
                self.end()
                return True
        elif "{" in (first, last):
            self._depth += 1
        self._body.append((command, names))
        return True

    def end(self) -> None:
        """The function that is open ends here."""
        if self._open and self._counts:
            self.bodies[self._open] = self._body
        self._open, self._body, self._depth = "", [], 0

    def _begins(self, command: Command) -> bool:
        """Whether a function begins here, or is named by the word for it."""
        tokens = command.tokens
        before, self._before = self._before, plain(tokens[-1])
        if command.joined.endswith("()"):
            self._named = before
        elif plain(tokens[0]) == "function" and len(tokens) > 1:
            self._named = plain(tokens[1])
            return len(tokens) == 2 or plain(tokens[2]) == "{"
        begins = bool(self._named) and plain(tokens[0]) == "{"
        if not begins:
            self._named = ""
        return begins
