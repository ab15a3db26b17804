"""Which way a script goes: ``if``, ``case``, ``&&`` and ``||``, as far as its values say.

A condition is true, false, or unknown (a file that may be there, a command's status). Of an unknown
one the first branch is taken as if it held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import final

from silicast.formats._shell_lexer import SUM, Token
from silicast.formats._shell_sums import integer_of

CONDITIONS = frozenset(("[", "[[", "test", "while", "until", "case", "for"))
"""Heads of commands that are no work of a script."""
_ASKS = frozenset(
    ("grep", "egrep", "fgrep", "command", "which", "type", "hash", "pgrep", "cmp", "diff")
)
"""Programs that are started for what their status says."""
_SUCCEED = frozenset(("", ":", "true", "false", "echo", "printf", "export", "set", "}"))
"""Heads of commands whose status says nothing, beside assignments."""
_COMPARES = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
"""A number that ``[`` and ``[[`` read alike: with a zero before it, only one takes it as octal."""
_FILES = frozenset(("-f", "-d", "-e", "-s", "-r", "-w", "-x", "-L", "-h"))
_GIVEN = ("$@", "$*", "$#", "getopts")
"""Arguments of the script itself: there are none."""
_OPEN = frozenset(("$", "`"))
_LONGEST_WORD = 200
MOST_OPEN = 64
"""Branches that loops are looked for in."""
Truth = bool | None
"""None = unknown."""


@final
class _Frame:
    """An ``if``, a ``case`` or a loop that is open.

    Attributes:
        runs: whether the branch that is read is taken.
        chosen: a branch was taken; unsure: nobody knows whether the right one.
        asks: its condition is being read; value: what it was so far.
        word: of a ``case``; name: of a loop's variable, "" = it has none.
        around: whether the branches around it, which stay as they are while it is open, are taken;
            doubted: nobody knows whether rightly.
        skipped: it stands behind ``&&`` or ``||`` and is not carried out; last: the truth before.
        by_status: so since a program was taken to succeed; surely: it is a group, among groups,
            that is certainly carried out.
    """

    def __init__(self, kind: str, *, runs: bool = True, asks: bool = False, name: str = "") -> None:
        self.kind, self.runs, self.asks, self.name = kind, runs, asks, name
        self.chosen = self.unsure = False
        self.value: Truth = True
        self.word: str | None = None
        self.around, self.doubted = True, False
        self.skipped = self.by_status = self.surely = False
        self.last: Truth = True


@final
class Branches:
    """Follows the commands of a script.

    Args:
        words: words of a condition with their variables put in.
        unsure: nobody knows whether the script comes here.
    """

    def __init__(
        self, words: Callable[[Sequence[Token]], list[str]], *, unsure: bool = False
    ) -> None:
        self._words = words
        self._unsure = unsure
        self._frames: list[_Frame] = []
        self._last: Truth = True
        self._skips = self._guessed = False
        self._by_status = False
        self.ended: list[str] = []

    @property
    def runs(self) -> bool:
        """Whether the command that was entered last is carried out."""
        return not self._skips and self._taken

    @property
    def _taken(self) -> bool:
        """Whether all open branches are."""
        return not self._frames or (self._frames[-1].runs and self._frames[-1].around)

    def _open(self, frame: _Frame, joined: str = "") -> None:
        """Opens what stands so behind the command before it."""
        frame.around, frame.doubted, frame.last = self._taken, self.is_unsure, self._last
        outer = self._frames[-1] if self._frames else None
        chained = joined.endswith(("&&", "||")) and not self.asks
        frame.surely = frame.kind == "{" and not chained and (outer is None or outer.surely)
        frame.by_status = outer is not None and outer.by_status
        if chained:
            frame.skipped = self._last is (joined[-1] == "|")
            frame.by_status |= frame.skipped and joined[-1] == "|" and self._by_status
            frame.around = frame.around and not frame.skipped
            frame.doubted = frame.doubted or self._last is None
        self._frames.append(frame)

    def _close(self) -> None:
        frame = self._frames.pop()
        self.ended += [frame.name] if frame.kind == "loop" and frame.runs and frame.around else []
        if frame.skipped:
            self._last = frame.last

    @property
    def beyond(self) -> bool:
        """Whether the script does not come to the loop that was entered last."""
        return bool(self._frames) and not self._frames[-1].around

    @property
    def skips_by_status(self) -> bool:
        """Whether the command is skipped only since a program was taken to succeed."""
        by_frame = bool(self._frames) and self._frames[-1].by_status
        return by_frame or (self._skips and self._by_status and self._last is True)

    @property
    def asks(self) -> bool:
        """Whether the condition of an ``if`` is being read."""
        return bool(self._frames) and self._frames[-1].asks

    @property
    def is_unsure(self) -> bool:
        doubted = bool(self._frames) and (self._frames[-1].unsure or self._frames[-1].doubted)
        return self._unsure or doubted or self._guessed

    @property
    def in_loop(self) -> bool:
        return any(frame.kind == "loop" for frame in self._frames)

    def is_certain(self, joined: str) -> bool:
        """Whether the script certainly comes to a command that so stands behind the one before."""
        surely = not self._frames or self._frames[-1].surely
        return surely and not self._unsure and "&&" not in joined and "||" not in joined

    @property
    def loops(self) -> list[str]:
        """Variables of the innermost loops that are open, "" = one has none."""
        return [frame.name for frame in self._frames[-MOST_OPEN:] if frame.kind == "loop"]

    def without_patterns(self, joined: str) -> str:
        """What stands before a command, without the brackets of patterns of ``case``."""
        if not self._frames or self._frames[-1].kind != "case":
            return joined
        behind = joined.partition(")")[2] if self._frames[-1].asks else joined
        return behind.partition(";;")[0]

    @property
    def in_skipped_loop(self) -> bool:
        """Whether the script would come here but for a loop over arguments."""
        skipped = next((frame for frame in self._frames if not frame.runs), None)
        return skipped is not None and skipped.kind == "loop"

    def unsure(self) -> None:
        """The condition that is being read depends on what nobody states."""
        if self._frames:
            self._frames[-1].unsure = True

    def entered(
        self, joined: str, tokens: Sequence[Token], plain: Callable[[Token], str]
    ) -> list[Token]:
        """The command without the words that open, divide and close branches.

        Args:
            plain: a token's bare word, "" = it has none.
        """
        words, joined = self._divided(joined, tokens, plain)
        if not words:
            return []
        head = plain(words[0])
        if head == "case":
            self._case(words, plain, joined)
            return []
        if head in ("for", "while", "until"):
            texts = "".join(
                part.text for token in words if isinstance(token, tuple) for part in token
            )
            runs = not any(word in texts for word in _GIVEN)
            name = plain(words[1]) if head == "for" and len(words) > 1 else ""
            self._open(_Frame("loop", runs=runs, name=name), joined)
            return words if head == "for" else []
        return self._chained(joined, words, plain)

    def _divided(
        self, joined: str, tokens: Sequence[Token], plain: Callable[[Token], str]
    ) -> tuple[list[Token], str]:
        """The command behind words that divide and close branches, and what joins it."""
        words = list(tokens)
        self._skips = self._guessed = False
        self.ended = []
        if self._frames and self._frames[-1].kind == "case" and plain(words[0]) != "esac":
            words = self._of_case(joined, words)
        while words:
            head = plain(words[0])
            if head in ("fi", "esac", "done"):
                if self._frames:
                    self._close()
                words = words[1:]
            elif head == "{" and not self.asks:
                self._open(_Frame("{"), joined)
                words, joined = words[1:], ""
            elif head == "}" and self._frames and self._frames[-1].kind == "{":
                self._close()
                words = words[1:]
            elif head == "if":
                self._open(_Frame("if", runs=False, asks=True), joined)
                words, joined = words[1:], ""
            elif head in ("elif", "else", "then") and self._frames:
                self._divide(head)
                words, joined = words[1:], ""
            elif head == "do":
                words = words[1:]
            else:
                break
        return words, joined

    def _divide(self, head: str) -> None:
        frame = self._frames[-1]
        if head == "then":
            frame.asks = False
            frame.runs = not frame.chosen and frame.value is not False
            frame.unsure |= frame.value is None
            frame.chosen |= frame.runs
        elif head == "else":
            frame.runs = not frame.chosen
        else:
            frame.asks, frame.value, frame.runs = True, True, False

    def _chained(
        self, joined: str, tokens: list[Token], plain: Callable[[Token], str]
    ) -> list[Token]:
        """A condition is weighed; a command behind ``&&`` or ``||`` may not be carried out."""
        asks = bool(self._frames) and self._frames[-1].asks
        negated = plain(tokens[0]) == "!"
        inner = tokens[1:] if negated else tokens
        is_sum = bool(inner) and plain(inner[0]) == SUM
        is_test = is_sum or (bool(inner) and plain(inner[0]) in ("[", "[[", "test"))
        head = plain(inner[0]) if inner else ""
        value: Truth = None if asks or head in _ASKS else head != "false"
        if is_test:
            value = self._test(inner)
        if negated and value is not None:
            value = not value
        before = self._frames[-1].value if asks else self._last
        self._guessed = before is None and not asks and joined.endswith(("&&", "||"))
        if self._guessed and joined.endswith("&&"):
            before = True  # as the first branch of an ``if``
        if joined.endswith("&&"):
            self._skips = before is False
            value = False if False in (before, value) else None if None in (before, value) else True
        elif joined.endswith("||"):
            self._skips = before is True
            value = True if True in (before, value) else None if None in (before, value) else False
        if asks:
            self._frames[-1].value = value
            return []
        is_program = not is_test and head not in _SUCCEED and isinstance(inner[-1], tuple)
        self._by_status = is_program or (self._by_status and joined.endswith(("&&", "||")))
        self._last = value
        return [] if is_test and not is_sum else tokens  # a sum may change variables

    def _test(self, tokens: Sequence[Token]) -> Truth:
        words = self._words(tokens)
        head, words = words[0], words[1:]
        if head == SUM:
            value = integer_of(" ".join(words))
            return None if value is None else value != 0
        if head in ("[", "[["):
            words = words[:-1] if words and words[-1] in ("]", "]]") else words
        return truth_of(words)

    def _case(self, tokens: list[Token], plain: Callable[[Token], str], joined: str) -> None:
        frame = _Frame("case", runs=False, asks=True)
        self._open(frame, joined)
        words = self._words(tokens[1:2])
        frame.word = words[0] if words else ""
        if _OPEN & set(frame.word):
            frame.word = None
        if len(tokens) > 3 and plain(tokens[2]) == "in":
            self._pattern("".join(self._words(tokens[3:4])))

    def _of_case(self, joined: str, tokens: list[Token]) -> list[Token]:
        """Patterns of a ``case`` are no commands; a new one ends the branch before it."""
        frame = self._frames[-1]
        begins = joined.startswith(";;") or frame.asks
        if begins and not joined.endswith(")"):
            if joined.startswith(";;"):
                frame.runs, frame.asks = False, True
            self._pattern("".join(self._words(tokens[:1])))
            return []
        if joined.startswith(")"):
            frame.asks = False
        return tokens

    def _pattern(self, pattern: str) -> None:
        frame = self._frames[-1]
        frame.asks = True
        word = frame.word
        fits = word is None or fnmatchcase(word[:_LONGEST_WORD], pattern[:_LONGEST_WORD])
        if fits and not frame.chosen:
            frame.runs = frame.chosen = True
            frame.unsure |= frame.word is None


def truth_of(words: Sequence[str]) -> Truth:
    """The value of a test's words; None = unknown.

    >>> truth_of(["8", "-gt", "4"]), truth_of(["-z", ""]), truth_of(["-f", "x"])
    (True, True, None)
    """
    for name, settles in (("||", True), ("-o", True), ("&&", False), ("-a", False)):
        if name in words:
            at = list(words).index(name)
            sides = truth_of(words[:at]), truth_of(words[at + 1 :])
            if settles in sides:
                return settles
            return None if None in sides else not settles
    if words and words[0] == "!":
        value = truth_of(words[1:])
        return None if value is None else not value
    if any(_OPEN & set(word) for word in words) or (words and words[0] in _FILES):
        return None
    if len(words) == 1:
        return words[0] != ""
    if len(words) == 2 and words[0] in ("-z", "-n"):
        return (words[1] == "") == (words[0] == "-z")
    if len(words) != 3:
        return None
    left, name, right = (word[:_LONGEST_WORD] for word in words)
    if name in ("=", "=="):
        return fnmatchcase(left, right)
    if name == "!=":
        return not fnmatchcase(left, right)
    if name in _COMPARES and _WHOLE.fullmatch(left) and _WHOLE.fullmatch(right):
        return bool(_COMPARES[name](int(left), int(right)))
    return None


def doubts_of(
    branched: Sequence[str], missing: Sequence[str], sourced: Sequence[str] = ()
) -> list[str]:
    """What was assumed of conditions that only running a script would decide, for people.

    Args:
        branched: variables that they set; missing: variables that they ask for and nobody sets.
        sourced: files whose commands are not known.

    >>> doubts_of(["TP"], [])
    ['set where a condition holds, taken as if it held: TP']
    """
    doubts = []
    if branched:
        names = ", ".join(branched[:12])
        doubts.append(f"set where a condition holds, taken as if it held: {names}")
    if missing:
        doubts.append(
            "conditions ask for variables that nobody sets, taken as empty: "
            f"{', '.join(missing[:12])} (--env {missing[0]}=value)"
        )
    if sourced:
        doubts.append(f"files that the script sources are not read: {', '.join(sourced[:12])}")
    return doubts
