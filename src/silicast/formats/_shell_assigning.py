"""What commands of a shell script give its variables."""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping, Sequence

from silicast.formats._shell_expansion import ELEMENT_NAMED, Expansion, joined, unknown_array
from silicast.formats._shell_functions import as_written, read_values
from silicast.formats._shell_lexer import SUM, Assignment, Token, Word
from silicast.formats._shell_sums import integer_of, names_set
from silicast.formats.shell_branches import Branches

_CHANGES = re.compile(
    r"(?:([-+])\1)?\s*([A-Za-z_]\w*(?:\[[^\[\]]{1,100}\])?)\s*"
    r"(?:([-+])\3|([-+*/%&|^]|<<|>>)?=(?!=)(.{1,200}))?",
    re.DOTALL,
)
_ONE_OUTPUT = re.compile(r"\$\([^(].*\)|`[^`]*`", re.DOTALL)
"""What one command prints, which only running it would say."""
_LOCALS = frozenset(("local", "declare", "typeset"))


class Assigning(Expansion):
    """Variables of a script, and the commands that set them.

    Args:
        fixed: names of variables that were stated for it.

    Attributes:
        branched: variables that are set where nobody knows whether the script comes.
        loops: of the loops around: variable -> how many values it takes, 0 = not known.
        local: variables as they were before the call that is read; None = none is read.
    """

    def __init__(self, variables: Mapping[str, str | list[str]], fixed: frozenset[str]) -> None:
        super().__init__(variables)
        self.exported, self.exports_all, self.fixed = set(variables), False, fixed
        self.local: dict[str, str | list[str] | None] | None = None
        self.branched: dict[str, None] = {}
        self.loops: dict[str, int] = {}
        self.branches = Branches(self.condition_words)

    @abc.abstractmethod
    def condition_words(self, tokens: Sequence[Token]) -> list[str]:
        """Words of a condition."""

    def keep(self, name: str, value: str | list[str]) -> None:
        """The value of a variable from here on."""
        self.put({name: value})
        self.note(name, value)

    def note(self, name: str, value: str | list[str]) -> None:
        """A variable has another value now, or an element of it."""
        self.count(value)
        if self.exports_all:
            self.exported.add(name)
        if self.branches.is_unsure:
            self.branched[name] = None

    def assign_all(self, assigned: Sequence[Assignment]) -> None:
        """Assignments of a command."""
        for item in assigned:
            self.assign(item)

    def assign(self, assignment: Assignment) -> None:
        value: str | list[str]
        if assignment.subscript:
            self.assign_element(assignment)
            return
        if assignment.is_array and (elements := self.elements_in(assignment.words)):
            if not assignment.adds:
                self.put({assignment.name: []})
            for key, value in elements:
                self.keep_element(assignment.name, key, value)
            return
        if assignment.is_array:
            value = [field for word in assignment.words for field in self.fields(word)]
        else:
            written = as_written(assignment.words[0])
            counts = re.search(rf"\$\(\(.*\b{assignment.name}\b", written, re.DOTALL)
            known = not (counts and (self.branches.in_loop or self.loops))
            value = joined(self.pieces_of(assignment.words[0])) if known else written
            if _ONE_OUTPUT.fullmatch(value):  # which may be stated under the variable's name
                value = f"${assignment.name}"
                if assignment.name in self.fixed:
                    return
        before = self.variables.get(assignment.name)
        if assignment.adds and before is not None:
            if assignment.name in self.keyed or before == [unknown_array(assignment.name)]:
                value = [unknown_array(assignment.name)]  # words behind gaps, or without keys
            elif isinstance(before, list):
                first = [before[0] + value] if before and isinstance(value, str) else before[:1]
                value = [*first, *before[1:], *(value if isinstance(value, list) else ())]
            else:
                value = [before, *value] if isinstance(value, list) else before + value
        self.keep(assignment.name, value)

    def assign_element(self, assignment: Assignment) -> None:
        """``NAME[key]=value``; nobody knows an array whose key sets names."""
        name, subscript = assignment.name, assignment.subscript
        names = names_set(subscript) if name not in self.keyed else []
        for set_by_key in names:
            self.forget(set_by_key)
        if names:
            self.keep(name, [unknown_array(name)])
            return
        key = joined(self.pieces(subscript)).strip("'\"")
        value = joined(self.pieces_of(assignment.words[0]))
        self.keep_element(name, key, value, adds=assignment.adds)

    def keep_element(self, name: str, key: str, value: str, *, adds: bool = False) -> None:
        """The value of one element of an array from here on."""
        value = (self.element(name, key) or "") + value if adds else value
        self.set_element(name, key, value)
        self.note(name, self.variables[name])

    def calculate(self, head: str, words: Sequence[Token]) -> None:
        """``let`` and ``(( ))``: what they set a variable to; in a loop nobody knows it."""
        for text in map(as_written, words):
            parts = text.split(",") if head == SUM and not set("(?[") & set(text) else [text]
            for part in parts:
                self.change(joined(self.pieces(part)).strip())

    def change(self, text: str) -> None:
        """One sum that may set a variable; what it sets in other ways nobody knows after it."""
        match = _CHANGES.fullmatch(text)
        names = names_set(text)
        if match is None or len(names) != 1:
            for name in names:
                self.forget(name)
            return
        name, by = match[2], match[5] or "1"
        sign = match[4] or match[1] or match[3]
        sum_ = f"{name} {sign} ({by})" if sign else f"({by})"
        in_loop = self.branches.in_loop or self.loops
        value = None if in_loop else integer_of(self.with_numbers(sum_))
        total = f"$(({sum_}))" if value is None else str(value)
        if element := ELEMENT_NAMED.fullmatch(name):
            key = joined(self.pieces(element[2])).strip("'\"")
            self.keep_element(element[1], key, total)
        else:
            self.keep(name, total)

    def read_input(self, words: Sequence[Word], assigned: Sequence[Assignment], text: str) -> None:
        """``read``: gives variables the words of a text."""
        letters = [joined(self.pieces_of(i.words[0])) for i in assigned if i.name == "IFS"]
        separators = letters[-1] if letters else self.separators
        read = [as_written(word) for word in words]
        for name, value in read_values(read, text, separators).items():
            self.keep(name, f"${name}" if value is None else value)

    def declared(self, head: str, words: Sequence[str], assigned: Sequence[Assignment]) -> None:
        """Which variables ``export`` and ``declare`` export, and which are arrays with keys."""
        flags = "".join(word for word in words if word[:1] == "-")
        bare = [word for word in words if word.isidentifier()]
        names = {item.name for item in assigned}.union(bare)
        if head in _LOCALS and "g" not in flags and self.local is not None:
            for name in names:
                self.hide(name)
            self.restore(dict.fromkeys(bare))
        if head == "export" or "x" in flags:
            self.exported |= names
        if "A" in flags:
            self.keyed |= names

    def hide(self, name: str) -> None:
        """A variable has another value until the call that is read ends."""
        if self.local is not None and name not in self.local:
            self.local |= {name: self.variables.get(name), **self.elements_of(name)}
