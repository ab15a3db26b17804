"""What words of a shell script mean with its variables put in."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping

from silicast.core.errors import over_limit
from silicast.formats._shell_lexer import Word, WordPiece, closing_bracket
from silicast.formats._shell_sums import braced, integer_of

MAX_EXPANDED = 1 << 20
MOST_NESTED = 8
"""Defaults in defaults, and scripts in scripts."""
_USED = re.compile(r"\$(?:[({@*]|[A-Za-z_]\w*|\d)")
_BRACED = re.compile(
    r"([A-Za-z_]\w*|\d+|[@*])(?:\[[@*]\])?"
    r"(?:(?<=[@*]):(?P<start>\d{1,9})(?::(?P<most>\d{1,9}))?"
    r"|(?P<empty>:?)[-=](?P<default>.*)|(?P<unless>:?)\+(?P<instead>.*)|:?\?.*)?",
    re.DOTALL,
)
_ARGUMENTS = frozenset("0123456789@*")
_LONGEST_NUMBER = 9


class Expansion(abc.ABC):
    """Variables and arguments of a script; what all expansions together hold is bounded."""

    def __init__(self, variables: Mapping[str, str | list[str]]) -> None:
        self.variables: dict[str, str | list[str]] = dict(variables)
        self.arguments: list[str] | None = None
        self.size = 0

    @abc.abstractmethod
    def output(self, inner: str) -> str | None:
        """What a substituted command prints; None = only running it would say."""

    def count(self, value: str | list[str]) -> None:
        """Raises SilicastError of kind "limit" where variables hold too much together."""
        self.size += len(value) if isinstance(value, str) else sum(len(item) + 1 for item in value)
        if self.size > MAX_EXPANDED:
            raise over_limit("variables hold too much text")

    def fields(self, word: Word) -> list[str]:
        """What the shell makes of a word: none, one or several."""
        if len(word) == 1 and not word[0].quote and (spread := braced(word[0].text)):
            return [field for text in spread for field in self.fields((WordPiece(text),))]
        fields: list[str] = []
        open_field: str | None = None
        for text, splits in self.pieces_of(word):
            parts = text if isinstance(text, list) else [text]
            if splits:
                parts = " ".join(parts).split()
            for position, part in enumerate(parts):
                if position and open_field is not None:
                    fields.append(open_field)
                    open_field = None
                open_field = part if open_field is None else open_field + part
        return fields if open_field is None else [*fields, open_field]

    def pieces_of(self, word: Word) -> Iterator[tuple[str | list[str], bool]]:
        """Texts of a word, or the words of an array in it; whether the shell splits them."""
        for part in word:
            if part.quote == "'":
                yield part.text, False
                continue
            for text, is_value in self.pieces(part.text):
                yield text, is_value and not part.quote

    def pieces(self, text: str, nested: int = 0) -> Iterator[tuple[str | list[str], bool]]:
        """A text with its variables put in; one that has no value stays as it stands."""
        position = 0
        while match := _USED.search(text, position):
            if match.start() > position:
                yield text[position : match.start()], False
            position = match.end()
            if text[position - 1] in "({":
                position = closing_bracket(text, position - 1)
            used = text[match.start() : position]
            value = self.value(used, nested)
            yield (used, False) if value is None else (value, True)
            if value is not None:
                self.count(value)
        if position < len(text):
            yield text[position:], False

    def value(self, used: str, nested: int) -> str | list[str] | None:
        """The value of ``$...``; None = it has none here."""
        if used.startswith("$(("):
            sum_ = integer_of(self.with_numbers(used[3:-2]))
            return None if sum_ is None else str(sum_)
        if used.startswith("$("):
            return self.output(used[2:-1])
        match = _BRACED.fullmatch(used[2:-1] if used[1] == "{" else used[1:])
        if match is None:
            return None
        value = self.argument(match) if match[1][0] in _ARGUMENTS else self.variables.get(match[1])
        if isinstance(value, list) and ("[*]" in used or match[1] == "*"):
            value = " ".join(value)
        is_unset = value is None or (value in ("", []) and match["empty"] == ":")
        if match["instead"] is not None and nested < MOST_NESTED:
            if value is None or (value in ("", []) and match["unless"] == ":"):
                return ""
            return joined(self.pieces(match["instead"].strip("'\""), nested + 1))
        if is_unset and match["default"] is not None and nested < MOST_NESTED:
            default = match["default"].strip("'\"")
            return joined(self.pieces(default, nested + 1))
        # one that a call does not give is empty; whoever starts the script may give it one
        return "" if value is None and self.gives(match[1]) else value

    def gives(self, name: str) -> bool:
        """Whether a name is an argument, and all arguments are known."""
        return self.arguments is not None and name[0] in _ARGUMENTS

    def argument(self, match: re.Match[str]) -> str | list[str] | None:
        """Arguments of the script, which is started without any, or of the call that is read."""
        words = self.arguments or []
        if match[1] not in ("@", "*"):
            at = int(match[1]) - 1 if len(match[1]) < _LONGEST_NUMBER else -1
            return words[at] if 0 <= at < len(words) else None
        start, most = match["start"], match["most"]
        if start is None or not words:
            return words
        first = max(int(start) - 1, 0)
        return words[first : None if most is None else first + int(most)]

    def with_numbers(self, text: str) -> str:
        """A sum with the values of its variables."""

        def number(name: re.Match[str]) -> str:
            value = self.variables.get(name[1], name[0])
            return value if isinstance(value, str) else name[0]

        return re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", number, text[:200])


def joined(pieces: Iterator[tuple[str | list[str], bool]]) -> str:
    """Pieces as one text."""
    return "".join(" ".join(text) if isinstance(text, list) else text for text, _ in pieces)
