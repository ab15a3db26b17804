"""What words of a shell script mean with its variables put in."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping, Sequence

from silicast.core.errors import over_limit
from silicast.formats._shell_lexer import Word, WordPiece, closing_bracket
from silicast.formats._shell_parameters import PARAMETER, changed, element_name
from silicast.formats._shell_sums import braced, integer_of

MAX_EXPANDED = 1 << 20
MOST_NESTED = 8
"""Defaults in defaults, and scripts in scripts."""
_USED = re.compile(r"\$(?:[({@*]|[A-Za-z_]\w*|\d)")
_ARGUMENTS = frozenset("0123456789@*")
_LONGEST_NUMBER = 9
_NAME_OF_SUM = re.compile(r"\$?\{?\b([A-Za-z_]\w*)\b(?:\[([^\[\]]{1,100})\])?\}?")
_ELEMENT = re.compile(r"\[([^\]]{1,200})\]=(.*)", re.DOTALL)


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
            if nested >= MOST_NESTED:
                return None
            sum_ = integer_of(self.with_numbers(joined(self.pieces(used[3:-2], nested + 1))))
            return None if sum_ is None else str(sum_)
        if used.startswith("$("):
            return self.output(used[2:-1])
        match = PARAMETER.fullmatch(used[2:-1] if used[1] == "{" else used[1:])
        if match is None:
            return None
        value = self.picked(match, nested)
        if isinstance(value, list) and (match["subscript"] == "*" or match["name"] == "*"):
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
        if value is None:
            return "" if self.gives(match["name"]) else None
        return self.changed(value, match, nested)

    def picked(self, match: re.Match[str], nested: int) -> str | list[str] | None:
        """The value that ``${...}`` names, before it is changed; None = it has none here."""
        name, subscript = match["name"], match["subscript"]
        if name[0] in _ARGUMENTS:
            return self.argument(match)
        value = self.variables.get(name)
        if subscript is not None and subscript not in "@*":
            if nested >= MOST_NESTED:
                return None
            value = self.element(name, joined(self.pieces(subscript, nested + 1)).strip("'\""))
        elif match["before"] == "!" and subscript:
            return self.keys(name)
        elif match["before"] == "!":
            value = self.variables.get(value) if isinstance(value, str) else None
        if match["before"] == "#" and value is not None:
            return str(len(value))
        return value

    def element(self, name: str, key: str) -> str | None:
        """One element of an array; None = it has no value here."""
        whole = self.variables.get(name)
        by_key = self.variables.get(element_name(name, key))
        if whole is None or isinstance(by_key, str):
            return by_key if isinstance(by_key, str) else None
        words, at = [whole] if isinstance(whole, str) else whole, integer_of(self.with_numbers(key))
        return words[at] if at is not None and -len(words) <= at < len(words) else None

    def elements_in(self, words: Sequence[Word]) -> list[tuple[str, str]]:
        """Keys and values of ``([key]=value ...)``; none where one word has no key."""
        texts = [joined(self.pieces_of(word)) for word in words if word and word[0].text[:1] == "["]
        matches = [_ELEMENT.fullmatch(text) for text in texts]
        pairs = [(match[1], match[2]) for match in matches if match is not None]
        return pairs if len(pairs) == len(words) else []

    def keys(self, name: str) -> list[str]:
        """Keys of an array, as ``${!NAME[@]}`` gives them."""
        start = element_name(name, "")[:-1]
        named = [key[len(start) : -1] for key in self.variables if key.startswith(start)]
        whole = self.variables.get(name, [])
        return named or [str(at) for at in range(1 if isinstance(whole, str) else len(whole))]

    def changed(
        self, value: str | list[str], match: re.Match[str], nested: int
    ) -> str | list[str] | None:
        """A value with what ``${NAME:start:most}`` or a pattern leaves of it; None = not known."""
        if match["start"] is not None and match["name"][0] not in _ARGUMENTS:
            start, most = int(match["start"]), match["most"]
            start = max(start + len(value), 0) if start < 0 else start
            return value[start : None if most is None else start + int(most)]
        if match["change"] is None:
            return value
        if nested >= MOST_NESTED:
            return None
        pattern = joined(self.pieces(match["pattern"], nested + 1)).replace('"', "")
        self.count(pattern)
        if isinstance(value, str):
            return changed(value, match["change"], pattern)
        words = [changed(word, match["change"], pattern) for word in value]
        return None if None in words else [word for word in words if word is not None]

    def gives(self, name: str) -> bool:
        """Whether a name is an argument, and all arguments are known."""
        return self.arguments is not None and name[0] in _ARGUMENTS

    def argument(self, match: re.Match[str]) -> str | list[str] | None:
        """Arguments of the script, which is started without any, or of the call that is read."""
        words = self.arguments or []
        if (name := match["name"]) not in ("@", "*"):
            at = int(name) - 1 if len(name) < _LONGEST_NUMBER else -1
            return words[at] if 0 <= at < len(words) else None
        start, most = match["start"], match["most"]
        if start is None or not words:
            return words
        first = max(int(start) - 1, 0)
        return words[first : None if most is None else first + int(most)]

    def with_numbers(self, text: str) -> str:
        """A sum with the values of its variables."""

        def number(match: re.Match[str]) -> str:
            value = self.variables.get(match[1])
            if match[2]:
                value = self.element(match[1], match[2])
            return value if isinstance(value, str) else match[0]

        return _NAME_OF_SUM.sub(number, text[:200])


def joined(pieces: Iterator[tuple[str | list[str], bool]]) -> str:
    """Pieces as one text."""
    return "".join(" ".join(text) if isinstance(text, list) else text for text, _ in pieces)
