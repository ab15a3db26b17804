"""The words of a shell script, with their quotes; nothing is expanded or executed here."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

_ASSIGNED = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n=]{1,200})\])?(\+?)=")
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"]?)(\w+)\1")
_COUNTER = re.compile(
    r"\s*\(\(\s*(?P<name>[A-Za-z_]\w{0,99})\s*=\s*(?P<start>\d{1,9}|\$\w{1,99})\s*;"
    r"\s*(?P=name)\s*(?P<less><=?|!=)\s*(?P<end>[\w${}]{1,99})\s*;"
    r"\s*(?:(?P=name)\+\+|\+\+(?P=name)|(?P=name)\s*\+=\s*(?P<step>\d{1,9}))\s*\)\)"
)
SUM = "(("
"""The head of a command that is a sum; its second word is the sum."""
_SUM = re.compile(r"\(\(((?:[^()\n]|\([^()\n]{0,200}\)){1,200}?)\)\)")
_PLACEHOLDER = re.compile(
    r"<(?:[A-Z][A-Z0-9_./-]*|[A-Za-z][\w./-]*(?: [\w./-]+)+)>(?=[\s\"'`;|&)]|$)"
)
"""``<PATH TO DATA>``, which whoever runs a template is to fill in; ``<in >out`` is none."""
_ENDS_WORD = frozenset(" \t\r\n;&|()<>")
_LONGEST_OPERATOR = 8
_APPENDS = ">>"
_WRITES = frozenset((">", ">|", _APPENDS))
_ESCAPED = re.compile(r"\$'((?:[^'\\]|\\.){0,999})'", re.DOTALL)
"""``$'...'``, where backslashes name letters."""
_LETTER = re.compile(r"\\([abefnrtv\\'\"?])")
_LETTERS = dict(zip("abefnrtv", "\a\b\x1b\f\n\r\t\v", strict=True))
_ESCAPED_IN_DOCUMENTS = "\\$`"
_ESCAPED_IN_QUOTES = '"' + _ESCAPED_IN_DOCUMENTS


@final
@dataclass(frozen=True, slots=True)
class WordPiece:
    """A piece of a word.

    Attributes:
        quote: "" where it stands bare, else its quote; nothing is expanded in single quotes.
    """

    text: str
    quote: str = ""


Word = tuple[WordPiece, ...]


@final
@dataclass(frozen=True, slots=True)
class Assignment:
    """``NAME=value``, ``NAME+=value`` or ``NAME=(words)``.

    Attributes:
        subscript: of ``NAME[subscript]=value``, "" = none.
    """

    name: str
    adds: bool
    words: tuple[Word, ...]
    is_array: bool
    subscript: str = ""


Token = Word | Assignment
_FOR: Word = (WordPiece("for"),)


@final
@dataclass(frozen=True, slots=True)
class Command:
    """A simple command.

    Attributes:
        joined: what stands between it and the one before it, without newlines: "&&", "||", "|",
            ";;", brackets.
        document: its here-document or here-string; None = it has none.
        source: the file that its input comes from; None = none.
        target: the file that its output goes to; None = none.
        appends: the output goes behind what the file holds.
    """

    tokens: list[Token]
    joined: str = ""
    document: Word | None = None
    source: Word | None = None
    target: Word | None = None
    appends: bool = False


def commands(text: str) -> Iterator[Command]:
    """Simple commands of a script: what newlines, ``;``, ``&``, ``|`` and brackets divide.

    Comments are left out; a quote or bracket that does not end takes all
    that follows, so that any text takes linear time.
    """
    return _Lexer(text).commands()


@final
class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line_end = self.behind_documents = 0
        self.document: Word | None = None
        self.source: Word | None = None
        self.target: Word | None = None
        self.appends = False

    def commands(self) -> Iterator[Command]:
        tokens: list[Token] = []
        joined = ""
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "(" and (match := _SUM.match(self.text, self.at)):
                if tokens:
                    yield self.command(tokens, joined)
                    joined = ""
                self.at = match.end()
                tokens = [(WordPiece(SUM),), (WordPiece(match[1], '"'),)]
            elif letter in "\n;&|()":
                if tokens:
                    yield self.command(tokens, joined)
                    joined = ""
                self.document = self.source = self.target = None
                tokens = []
                if letter != "\n" and len(joined) < _LONGEST_OPERATOR:
                    joined += letter
                self.at += 1
                if letter == "\n":
                    self.at = max(self.at, self.behind_documents)
            elif letter in "<>" and not self.is_placeholder():
                self.redirection(tokens)
            elif not self.skip_blank():
                tokens.append(self.token())
                if tokens == [_FOR]:
                    tokens += self.counter()
        if tokens:
            yield self.command(tokens, joined)

    def counter(self) -> list[Token]:
        """``for ((i = 0; i < N; i++))`` as the words of ``for i in $(seq 0 1 $((N-1)))``, and a
        mark behind them.
        """
        match = _COUNTER.match(self.text, self.at)
        if match is None:
            return []
        self.at = match.end()
        last = match["end"] + ("" if match["less"] == "<=" else "-1")
        text = f"$(seq {match['start']} {match['step'] or 1} $(({last})))"
        words = (match["name"], "in", text, SUM)
        return [(WordPiece(word),) for word in words]

    def command(self, tokens: list[Token], joined: str) -> Command:
        """A command that ends here, with its redirections."""
        return Command(tokens, joined, self.document, self.source, self.target, self.appends)

    def skip_blank(self, also: str = "") -> bool:
        """Whether something was left out here: blanks, a continued line, a comment, ``also``."""
        letter = self.text[self.at]
        if letter == "#":
            end = self.text.find("\n", self.at)
            self.at = end if end >= 0 else len(self.text)
            return True
        width = 2 if self.text.startswith("\\\n", self.at) else int(letter in " \t\r" + also)
        self.at += width
        return width > 0

    def here_document(self, match: re.Match[str]) -> None:
        """The text behind this line, or behind the documents that this line began before."""
        self.at = match.end()
        if self.line_end < self.at:
            newline = self.text.find("\n", self.at)
            self.line_end = newline + 1 if newline >= 0 else len(self.text)
        start = max(self.line_end, self.behind_documents)
        end = re.compile(rf"^[ \t]*{match[2]}[ \t\r]*$", re.MULTILINE).search(self.text, start)
        self.behind_documents = end.end() + 1 if end else len(self.text)
        text = self.text[start : end.start() if end else len(self.text)]
        if match[0].startswith("<<-"):
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        if match[1]:
            self.document = (WordPiece(text, "'"),)
        else:
            self.document = tuple(_Lexer(text).expandable("", _ESCAPED_IN_DOCUMENTS))

    def redirection(self, tokens: list[Token]) -> None:
        """``> file``, ``2>&1`` and the like."""
        handle = ""
        if tokens and self.text[self.at - 1].isdigit() and _is_number(tokens[-1]):
            handle = _text_of(tokens.pop())
        if match := _HERE_DOCUMENT.match(self.text, self.at):
            self.here_document(match)
            return
        start = self.at
        while self.at < len(self.text) and self.text[self.at] in "<>&|":
            self.at += 1
        operator = self.text[start : self.at]
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1
        target = self.word()
        if operator in _WRITES and handle in ("", "1"):
            self.target, self.appends = target, operator == _APPENDS
        elif operator == "<<<":
            self.document = (*target, WordPiece("\n", "'"))
        elif operator == "<" and target and handle in ("", "0"):
            self.source = target

    def token(self) -> Token:
        match = _ASSIGNED.match(self.text, self.at)
        if match is None:
            return self.word()
        self.at = match.end()
        name, subscript, adds = match[1], match[2] or "", bool(match[3])
        if self.text[self.at : self.at + 1] == "(":
            self.at += 1
            return Assignment(name, adds, tuple(self.array()), is_array=True)
        return Assignment(name, adds, (self.word(),), is_array=False, subscript=subscript)

    def array(self) -> Iterator[Word]:
        while self.at < len(self.text) and self.text[self.at] != ")":
            if self.is_placeholder() or not self.skip_blank("\n;&|(<>"):
                yield self.word()
        self.at += 1

    def word(self) -> Word:
        parts: list[WordPiece] = []
        bare: list[str] = []
        while self.at < len(self.text):
            letter = self.text[self.at]
            quoted: list[WordPiece] = []
            if letter == "<" and (match := _PLACEHOLDER.match(self.text, self.at)):
                quoted = [WordPiece(match[0], "'")]
                self.at = match.end()
            elif letter in _ENDS_WORD:
                break
            elif letter == "\\":
                if self.text[self.at + 1 : self.at + 2] != "\n":
                    quoted = [WordPiece(self.text[self.at + 1 : self.at + 2], "'")]
                self.at += 2
            elif letter == "'":
                quoted = [WordPiece(self.until("'"), "'")]
            elif letter == "$" and (match := _ESCAPED.match(self.text, self.at)):
                named = not _LETTER.sub("", match[1]).count("\\")  # else it stays as it is written
                quoted = [WordPiece(_LETTER.sub(_letter, match[1]) if named else match[0], "'")]
                self.at = match.end()
            elif letter == '"':
                quoted = self.double_quoted()
            else:
                bare.append(self.bare(letter))
            if quoted:
                parts += [*([WordPiece("".join(bare))] if bare else ()), *quoted]
                bare = []
        return (*parts, *([WordPiece("".join(bare))] if bare else ()))

    def is_placeholder(self) -> bool:
        """Whether a word in angle brackets stands here."""
        return _PLACEHOLDER.match(self.text, self.at) is not None

    def bare(self, letter: str) -> str:
        """One letter, or all of what is substituted here."""
        start = self.at
        if letter == "`":
            self.until("`")
        elif letter == "$" and self.text[start + 1 : start + 2] in {"(", "{"}:
            self.at = closing_bracket(self.text, start + 1)
        else:
            self.at += 1
        return self.text[start : self.at]

    def until(self, quote: str) -> str:
        """The text up to the quote that ends it."""
        start = self.at + 1
        end = self.text.find(quote, start)
        self.at = end + 1 if end >= 0 else len(self.text)
        return self.text[start : end if end >= 0 else len(self.text)]

    def double_quoted(self) -> list[WordPiece]:
        self.at += 1
        parts = self.expandable('"', _ESCAPED_IN_QUOTES)
        self.at += 1
        return parts

    def expandable(self, end: str, escaped: str) -> list[WordPiece]:
        """Text in which variables are put in, up to a letter ("" = all that is left).

        Args:
            escaped: letters that a backslash takes the meaning from; before others it stays.
        """
        parts: list[WordPiece] = []
        held: list[str] = []
        while self.at < len(self.text) and (letter := self.text[self.at]) != end:
            if letter != "\\":
                held.append(self.bare(letter))
                continue
            following = self.text[self.at + 1 : self.at + 2]
            self.at += 2
            if following and following in escaped:
                parts += [WordPiece("".join(held), '"'), WordPiece(following, "'")]
                held = []
            elif following != "\n":
                held.append(f"\\{following}")
        return [*parts, WordPiece("".join(held), '"')]


def closing_bracket(text: str, start: int) -> int:
    """The position behind the bracket that closes the one at ``start``."""
    opened, closes = text[start], {"(": ")", "{": "}"}[text[start]]
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == opened) - (text[position] == closes)
        if depth == 0:
            return position + 1
    return len(text)


def _letter(match: re.Match[str]) -> str:
    return _LETTERS.get(match[1], match[1])


def _is_number(token: Token) -> bool:
    return _text_of(token).isdigit()


def _text_of(token: Token) -> str:
    return token[0].text if isinstance(token, tuple) and len(token) == 1 else ""
