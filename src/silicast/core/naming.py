"""How names of devices, models and engines are matched: case, spaces, hyphens, underscores and
the organisation before a slash do not count (DESIGN section 4).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar, final

from silicast.core.errors import SilicastError, unknown_name

T = TypeVar("T")

_IGNORED = str.maketrans("", "", " -_\t")


def normalise(name: str) -> str:
    """The form in which two names are compared.

    >>> normalise("meta-llama/Llama-3.1 8B") == normalise("LLAMA_3.1_8b")
    True
    """
    return name.rsplit("/", 1)[-1].translate(_IGNORED).casefold()


@final
class NameIndex(Generic[T]):
    """Names and aliases of one kind of thing, with the nearest names for one that is unknown.

    Args:
        kind: what the names name, as it stands in error messages ("device").
        entries: canonical name -> (value, aliases).
        listed: where all are listed, if not by a command of its own.

    Raises:
        SilicastError: two entries claim the same name or alias.
    """

    def __init__(
        self, kind: str, entries: Mapping[str, tuple[T, Iterable[str]]], *, listed: str = ""
    ) -> None:
        self._kind = kind
        self._listed = listed or f"`silicast {kind}s`"
        self._names = tuple(entries)
        self._values = {name: value for name, (value, _) in entries.items()}
        self._index: dict[str, str] = {}
        for name, (_, aliases) in entries.items():
            for alias in (name, *aliases):
                key = normalise(alias)
                other = self._index.setdefault(key, name)
                if other != name:
                    raise SilicastError(
                        f"the {kind}s {other!r} and {name!r} both claim the name {alias!r}",
                        field="aliases",
                        hint="give each alias to one of them",
                    )

    def __contains__(self, name: object) -> bool:
        """Whether ``name`` is the name or an alias of an entry."""
        return isinstance(name, str) and normalise(name) in self._index

    @property
    def names(self) -> tuple[str, ...]:
        """All canonical names, in the order of the catalog."""
        return self._names

    def canonical(self, name: str, *, also: Iterable[str] = ()) -> str:
        """The canonical name for ``name``.

        Args:
            also: words that stand in a name's stead where it is asked for; they are offered, too.

        Raises:
            SilicastError: unknown name; the nearest known ones are offered.
        """
        canonical = self._index.get(normalise(name))
        if canonical is not None:
            return canonical
        near = self.nearest(name, also=also)
        hint = f"did you mean {' or '.join(near)}?" if near else f"see {self._listed}"
        raise unknown_name(f"unknown {self._kind} {name!r}", self._kind, hint)

    def get(self, name: str, *, also: Iterable[str] = ()) -> T:
        """The value for ``name`` or one of its aliases; raises as :meth:`canonical`."""
        return self._values[self.canonical(name, also=also)]

    def containing(self, text: str) -> list[str]:
        """Canonical names of all entries whose name or alias contains ``text``, in order."""
        wanted = normalise(text)
        distinct = {name for alias, name in self._index.items() if wanted in alias}
        return [name for name in self._values if name in distinct]

    def nearest(self, name: str, count: int = 3, *, also: Iterable[str] = ()) -> list[str]:
        """Up to ``count`` canonical names, or words of ``also``, that look like ``name``, best
        first.
        """
        index = {**self._index, **{word: word for word in also}}
        matches = _close(normalise(name), index, 8)
        fromkeys = dict.fromkeys(index[match] for match in matches)
        return list(fromkeys)[:count]


SHOWN = 64
"""Names that a hint lists at most."""


def near(name: object, known: Iterable[str], count: int = 3, *, aliases: Iterable[str] = ()) -> str:
    """A hint that offers the nearest of ``known`` and ``aliases``; where none is near, all known.

    >>> near("devise", ["device", "model"])
    'did you mean device?'
    """
    names = [other for other in known if other]
    folded = {other.casefold(): other for other in (*names, *aliases)}
    if matches := _close(str(name).casefold(), folded, count):
        return f"did you mean {' or '.join(folded[match] for match in matches)}?"
    return (
        f"known: {', '.join(names[:SHOWN])}{', …' if len(names) > SHOWN else ''}" if names else ""
    )


def _close(name: str, known: Iterable[str], count: int) -> list[str]:
    import difflib  # only a wrong name needs it

    return difflib.get_close_matches(name[:80], list(known), n=count, cutoff=0.5)
