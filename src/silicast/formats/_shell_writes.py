"""Files that a shell script writes, as far as their texts are known; none is written here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from silicast.formats._shell_functions import plain
from silicast.formats._shell_lexer import Command, Word


@final
@dataclass(frozen=True, slots=True)
class _ScriptWrite:
    """What a command writes to a file; None = not known."""

    name: Word
    text: Word | None
    appends: bool


@final
class WrittenFiles:
    """What commands wrote so far."""

    def __init__(self) -> None:
        self._writes: list[_ScriptWrite] = []
        self._texts: tuple[int, dict[str, str]] = (0, {})

    def add(self, name: Word, text: Word | None, *, appends: bool) -> None:
        """A command writes a text; None = it is not known."""
        self._writes.append(_ScriptWrite(name, text, appends))

    def written_by(self, words: Sequence[Word], command: Command) -> Word | None:
        """``cat`` and ``tee`` of a here-document write into files.

        Returns:
            What they hand on to the next command; None = nothing that is known.
        """
        named = [word for word in words[1:] if not plain(word).startswith("-")]
        flags = [plain(word) for word in words[1:] if word not in named]
        document = command.document
        if plain(words[0]) == "tee":
            appends = "-a" in flags or "--append" in flags
            self._writes += [_ScriptWrite(word, document, appends) for word in named]
        elif named:
            document = None  # cat takes the files that it names
        if command.target is None:
            return document
        self.add(command.target, document, appends=command.appends)
        return None

    def texts(
        self, fields: Callable[[Word], list[str]], text_of: Callable[[Word], str]
    ) -> dict[str, str]:
        """Texts of files by name, without those that are not known.

        Args:
            fields: what a word of the script means now; text_of: likewise of a here-document.
        """
        if self._texts[0] == len(self._writes):
            return self._texts[1]
        texts: dict[str, str | None] = {}
        for write in self._writes:
            name = "".join(fields(write.name))
            before = texts.get(name, "") if write.appends else ""
            text = None if write.text is None else text_of(write.text)
            texts[name] = None if before is None or text is None else before + text
        known = {name: text for name, text in texts.items() if text is not None}
        self._texts = len(self._writes), known
        return known
