"""What words of a shell script mean with its variables put in."""

from __future__ import annotations

import abc
import re
from collections.abc import Iterator, Mapping, Sequence

from silicast.core.errors import over_limit
from silicast.formats._shell_functions import BLANKS, as_written, split_at
from silicast.formats._shell_lexer import Assignment, Token, Word, WordPiece, closing_bracket
from silicast.formats._shell_parameters import PARAMETER, changed, element_name, hashed, parts_of
from silicast.formats._shell_sums import braced, integer_of, names_set
from silicast.formats.shell_options import unresolved

MAX_EXPANDED = 1 << 20
MOST_NESTED = 8
"""Defaults in defaults, and scripts in scripts."""
_USED = re.compile(r"\$(?:[({@*]|[A-Za-z_]\w*|\d)")
_ARGUMENTS = frozenset("0123456789@*")
_LONGEST_NUMBER = 9
_OF_PRINTS = frozenset(("-n", "-e", "%s", "%s\\n", "%s "))
_NAME_OF_SUM = re.compile(r"(?<![\w#${])([A-Za-z_]\w*)(?:\[([^\[\]]{1,100})\])?")
"""A bare name: those behind ``$`` are put in before, and letters behind a base are digits."""
_LONGEST_SUM = 200
ELEMENT_NAMED = re.compile(r"([A-Za-z_]\w*)\[(.{1,200})\]", re.DOTALL)
_ELEMENT = re.compile(r"\[([^\]]{1,200})\]=(.*)", re.DOTALL)


class Expansion(abc.ABC):
    """Variables and arguments of a script; what all expansions together hold is bounded.

    Elements of a keyed array are variables of their own beside the list of all its values. An array
    with gaps is kept so too.

    Attributes:
        keyed: names of such arrays; sparse: those whose keys are numbers.
        copy: the variables as a run holds them; None = they changed since.
        apart: words are those of a command in a subshell of its own, which sets nothing outside.
    """

    def __init__(self, variables: Mapping[str, str | list[str]]) -> None:
        self.variables: dict[str, str | list[str]] = dict(variables)
        self.arguments: list[str] | None = None
        self.size = 0
        self.keyed: set[str] = set()
        self.sparse: set[str] = set()
        self.copy: Mapping[str, str | list[str]] | None = None
        self.apart = False

    @abc.abstractmethod
    def output(self, inner: str) -> str | None:
        """What a substituted command prints; None = only running it would say."""

    @abc.abstractmethod
    def keep(self, name: str, value: str | list[str]) -> None:
        """Gives a variable a value from here on."""

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
                parts = [part for text in parts for part in split_at(text, self.separators)]
            for position, part in enumerate(parts):
                if position and open_field is not None:
                    fields.append(open_field)
                    open_field = None
                open_field = part if open_field is None else open_field + part
        return fields if open_field is None else [*fields, open_field]

    def words_of(self, tokens: Sequence[Token]) -> str:
        """What ``echo`` and ``printf`` print, without their options and formats."""
        words = [f for token in tokens[1:] if isinstance(token, tuple) for f in self.fields(token)]
        return " ".join(word for word in words if word not in _OF_PRINTS)

    def words_and_variables(self, tokens: Sequence[Token]) -> tuple[list[str], dict[str, str]]:
        """Words of a command, and variables that stand before its program's name."""
        words, assigned = list[str](), dict[str, str]()
        for token in tokens:
            if not isinstance(token, Assignment):
                words += self.fields(token)
                continue
            value = "".join(joined(self.pieces_of(word)) for word in token.words)
            if words:  # behind the program's name it is an argument
                words.append(f"{token.name}={value}")
            else:
                assigned[token.name] = value
        return words, assigned

    def text(self, document: Word) -> str:
        """A here-document with its variables put in."""
        return joined(self.pieces_of(document))

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
            sum_ = self.sum_of(joined(self.pieces(used[3:-2], nested + 1)))
            return None if sum_ is None else str(sum_)
        if used.startswith("$("):
            return self.output(used[2:-1])
        match = PARAMETER.fullmatch(used[2:-1] if used[1] == "{" else used[1:])
        if match is None:
            return None
        value = self.picked(match, nested)
        is_unset = value is None or (value in ("", []) and match["empty"] == ":")
        if "$'" in (match["instead"] or match["default"] or ""):
            return None
        if match["instead"] is not None and nested < MOST_NESTED:
            if value is None or (value in ("", []) and match["unless"] == ":"):
                return ""
            return joined(self.pieces(match["instead"].strip("'\""), nested + 1))
        if is_unset and match["default"] is not None and nested < MOST_NESTED:
            default = joined(self.pieces(match["default"].strip("'\""), nested + 1))
            sets = match["sets"] == "=" and not match["subscript"]
            if sets and not self.apart and match["name"].isidentifier():
                self.keep(match["name"], default)
            return default
        # one that a call does not give is empty; whoever starts the script may give it one
        if value is None:
            return "" if self.gives(match["name"]) else None
        value = self.changed(value, match, nested)
        if isinstance(value, list) and "*" in (match["subscript"], match["name"]):
            return self.separators[:1].join(value)
        return value

    @property
    def separators(self) -> str:
        """Letters that part words; the usual ones where nobody knows them."""
        letters = self.variables.get("IFS")
        return letters if isinstance(letters, str) and not unresolved(letters) else BLANKS

    def picked(self, match: re.Match[str], nested: int) -> str | list[str] | None:
        """The value that ``${...}`` names, before it is changed; None = it has none here."""
        name, subscript = match["name"], match["subscript"]
        if name[0] in _ARGUMENTS:
            words = self.argument(match)
            return str(len(words)) if match["before"] == "#" and words is not None else words
        value = self.variables.get(name, BLANKS if name == "IFS" else None)
        if subscript is None and isinstance(value, list) and match["before"] != "!":
            value = self.element(name, "0") or ""  # a bare name is that of the first element
        if subscript is not None and subscript not in "@*":
            if nested >= MOST_NESTED:
                return None
            key = joined(self.pieces(subscript, nested + 1)).strip("'\"")
            value = self.element(name, key)
            for set_by_key in names_set(key) if name not in self.keyed else ():
                self.forget(set_by_key)
        elif match["before"] == "!" and subscript:
            return self.keys(name)
        elif match["before"] == "!":
            value = self.variables.get(value) if isinstance(value, str) else None
        if match["before"] == "#" and value is not None:
            return None if isinstance(value, str) and unresolved(value) else str(len(value))
        return value

    def element(self, name: str, key: str) -> str | None:
        """One element of an array; None = it has no value here."""
        whole = self.variables.get(name)
        by_key = self.variables.get(element_name(name, key))
        if whole is None or isinstance(by_key, str):
            return by_key if isinstance(by_key, str) else None
        at = integer_of(self.with_numbers(key))
        if name in self.sparse:
            by_key = self.variables.get(element_name(name, str(at)))
            return by_key if isinstance(by_key, str) else None
        words = [whole] if isinstance(whole, str) else whole
        if name in self.keyed or at is None or not -len(words) <= at < len(words):
            return None
        return None if words == [unknown_array(name)] else words[at]

    def elements_in(self, words: Sequence[Word]) -> list[tuple[str, str]]:
        """Keys and values of ``([key]=value ...)``; none where one word has no key."""
        texts = [joined(self.pieces_of(word)) for word in words if word and word[0].text[:1] == "["]
        matches = [_ELEMENT.fullmatch(text) for text in texts]
        pairs = [(match[1], match[2]) for match in matches if match is not None]
        return pairs if len(pairs) == len(words) else []

    def keys(self, name: str) -> list[str]:
        """Keys of an array, as ``${!NAME[@]}`` gives them."""
        whole = self.variables.get(name, [])
        named = [key[len(name) + 1 : -1] for key in self.elements_of(name)]
        return named or [str(at) for at in range(1 if isinstance(whole, str) else len(whole))]

    def elements_of(self, name: str) -> dict[str, str]:
        """Elements of a keyed array in its order, under the names that they are kept by."""
        if name not in self.keyed:
            return {}
        start = element_name(name, "")[:-1]
        elements = {
            key: value
            for key, value in self.variables.items()
            if key.startswith(start) and isinstance(value, str)
        }
        return self.in_order(name, elements)

    def in_order(self, name: str, elements: Mapping[str, str]) -> dict[str, str]:
        """Elements by their numbers, or by where bash keeps their keys, a place's last first."""
        position = int if name in self.sparse else hashed
        order = list(elements)[::-1]
        order.sort(key=lambda key: position(key[len(name) + 1 : -1]))
        return {key: elements[key] for key in order}

    def put(self, values: Mapping[str, str | list[str]]) -> None:
        """Gives variables values that were counted before; an array loses the elements it had."""
        if arrays := self.keyed & values.keys():
            named = [key for key in self.variables if key.partition("[")[0] in arrays]
            for key in [key for key in named if key not in values]:
                del self.variables[key]
            dense = (arrays & self.sparse).difference(
                key.partition("[")[0] for key in values if "[" in key
            )
            self.keyed -= dense
            self.sparse -= dense
        self.variables |= values
        self.copy = None

    def restore(self, outer: Mapping[str, str | list[str] | None]) -> None:
        """Variables as they were; None = they had no value."""
        gone = [name for name, value in outer.items() if value is None]
        for name in gone:
            for key in (name, *self.elements_of(name)):
                self.variables.pop(key, None)
        self.keyed.difference_update(gone)
        self.sparse.difference_update(gone)
        self.put({name: value for name, value in outer.items() if value is not None})

    def with_elements(self, name: str, elements: Mapping[str, str]) -> None:
        """A keyed array with these elements, by the names that they are kept by."""
        self.put({name: [*self.in_order(name, elements).values()], **elements})

    def set_element(self, name: str, key: str, value: str) -> None:
        """Gives an element of an array a value; a key that nobody knows leaves none known."""
        whole = self.variables.get(name, [])
        words = [whole] if isinstance(whole, str) else list(whole)
        at = self.number_of(name, key)
        if at is not None and at < 0 and name not in self.keyed:
            at += len(words)
        if words == [unknown_array(name)] or (at or 0) < 0 or unresolved(key):
            self.put({name: [unknown_array(name)]})
        elif at is not None and at <= len(words) and name not in self.keyed:
            self.put({name: [*words[:at], value, *words[at + 1 :]]})
        else:
            elements = self.gaps(name)
            if at is None:
                self.sparse.discard(name)
            elements[element_name(name, key if at is None else str(at))] = value
            self.with_elements(name, elements)

    def unset(self, words: Sequence[Word]) -> None:
        """``unset``: variables, or elements of arrays, have no value from here on."""
        for written in map(as_written, words):
            match = ELEMENT_NAMED.fullmatch(written)
            if match is None:
                self.restore({written: None})
            else:
                self.unset_element(match[1], joined(self.pieces(match[2])).strip("'\""))

    def unset_element(self, name: str, key: str) -> None:
        """Takes an element of an array away."""
        at = self.number_of(name, key)
        if name not in self.variables:
            return
        if unresolved(key) or (at is None and name not in self.keyed) or (at or 0) < 0:
            self.put({name: [unknown_array(name)]})
            return
        elements = self.gaps(name)
        self.count(list(elements))
        elements.pop(element_name(name, key if at is None else str(at)), None)
        self.with_elements(name, elements)

    def number_of(self, name: str, key: str) -> int | None:
        """The number that a key is; None = it is a text."""
        has_texts = name in self.keyed and name not in self.sparse
        return None if has_texts else integer_of(self.with_numbers(key))

    def gaps(self, name: str) -> dict[str, str]:
        """Elements of an array that is to have gaps, or keys, from here on."""
        if name in self.keyed:
            return self.elements_of(name)
        whole = self.variables.get(name, [])
        words = [whole] if isinstance(whole, str) else whole
        self.keyed.add(name)
        self.sparse.add(name)
        return {element_name(name, str(at)): word for at, word in enumerate(words)}

    def changed(
        self, value: str | list[str], match: re.Match[str], nested: int
    ) -> str | list[str] | None:
        """A value with what ``${NAME:start:most}`` or a pattern leaves of it; None = not known."""
        is_sliced = match["start"] is not None and match["name"][0] not in _ARGUMENTS
        if match["change"] is None and not is_sliced:
            return value
        words = [value] if isinstance(value, str) else value
        if nested >= MOST_NESTED or any(map(unresolved, words)):
            return None
        if is_sliced:
            start, most = int(match["start"]), match["most"]
            if isinstance(value, list) and match["name"] in self.sparse:
                return None  # it counts by keys
            if start < -len(value):
                return value[:0]
            start += len(value) * (start < 0)
            return value[start : None if most is None else start + int(most)]
        written = parts_of(match["change"], match["pattern"])
        if written is None:
            return None
        change, *texts = written
        pattern, instead = (joined(self.pieces(text, nested + 1)) for text in texts)
        self.count(pattern)
        made = [changed(word, change, pattern, instead) for word in words]
        if None in made:
            return None
        texts = [word for word in made if word is not None]
        return texts if isinstance(value, list) else texts[0]

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
        """A sum with the values of its variables, each a sum of its own."""

        def number(match: re.Match[str]) -> str:
            value = self.variables.get(match[1])
            if match[2]:
                value = self.element(match[1], match[2])
            if not isinstance(value, str) or unresolved(value):
                return match[0]
            return value if value.isdecimal() else f"({value})"

        return _NAME_OF_SUM.sub(number, text) if len(text) <= _LONGEST_SUM else text

    def sum_of(self, text: str) -> int | None:
        """The value of a sum whose ``$...`` are put in; names that it sets are not known after."""
        numbers = self.with_numbers(text)
        names = [*names_set(text), *names_set(numbers)]
        for name in names:
            self.forget(name)
        return None if names else integer_of(numbers)

    def forget(self, name: str) -> None:
        """Nobody knows what a variable is from here on."""
        is_array = name in self.keyed or isinstance(self.variables.get(name), list)
        self.keep(name, [unknown_array(name)] if is_array else f"$(({name}))")


def joined(pieces: Iterator[tuple[str | list[str], bool]]) -> str:
    """Pieces as one text."""
    return "".join(" ".join(text) if isinstance(text, list) else text for text, _ in pieces)


def unknown_array(name: str) -> str:
    """The value of an array of which nobody knows the elements."""
    return f"${{{name}[@]}}"
