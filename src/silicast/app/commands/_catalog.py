"""What `devices`, `models` and `engines` share: list, search, show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from cyclopts import App

from silicast.app.arguments import described
from silicast.app.console import show, write_json
from silicast.app.flags import Json
from silicast.core.errors import SilicastError
from silicast.core.naming import NameIndex, normalise
from silicast.scenario.reading.kinds_of_names import with_kind

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")


@final
@dataclass(frozen=True)
class CatalogKind(Generic[T]):
    """A kind of catalog entry and how it is shown.

    Attributes:
        name: in the plural, as typed; help: of the command.
        index: all names and aliases.
        names: those of the entries that are listed.
        find: an entry by name or alias.
        family: what it belongs to, by which it is searched too.
        summary: the fields of one line, for JSON.
        table: one line an entry; card: everything about one; data: the same for JSON.
        searched: names among which a search looks; None = those that are listed.
    """

    name: str
    help: str
    index: Callable[[], NameIndex[Any]]
    names: Callable[[], Iterable[str]]
    find: Callable[[str], T]
    family: Callable[[T], str]
    summary: Callable[[T], Any]
    table: Callable[[Iterable[T]], RenderableType]
    card: Callable[[T], RenderableType]
    data: Callable[[T], Any]
    searched: Callable[[], Iterable[str]] | None = None


def catalog_app(kind: CatalogKind[T]) -> App:
    """The command of one kind, with its subcommands."""
    app = App(name=kind.name, help=kind.help, help_format="plaintext")

    @app.default
    @described()
    def some(text: str | None = None, /, *, json: Json = False) -> None:
        """List all of them, or those whose name, alias or family contains a text.

        Args:
            text: case, spaces, hyphens and underscores do not count.
        """
        if text is None:
            _print_many(kind, kind.names(), json)
        else:
            search(text, json=json)

    @app.command(name="list")
    @described()
    def list_all(*, json: Json = False) -> None:
        """List all of them."""
        _print_many(kind, kind.names(), json)

    @app.command
    @described()
    def search(text: str, /, *, json: Json = False) -> None:
        """List those whose name, alias or family contains a text.

        Args:
            text: case, spaces, hyphens and underscores do not count.
        """
        index = kind.index()
        wanted, named = normalise(text), set(index.containing(text))
        names = [
            name
            for name in (kind.searched or kind.names)()
            if name in named or wanted in normalise(kind.family(kind.find(name)))
        ]
        if not names:
            try:
                kind.find(text)
            except SilicastError as error:
                raise with_kind(error, text) from None
            names = [text]
        _print_many(kind, names, json)

    @app.command(name="show")
    @described()
    def show_one(name: str, /, *, json: Json = False) -> None:
        """Show everything known of one, with the source of each number.

        Args:
            name: a name, an alias or the path of a file.
        """
        try:
            value = kind.find(name)
        except SilicastError as error:
            raise with_kind(error, name) from None
        if json:
            write_json(kind.data(value))
        else:
            show(kind.card(value))

    return app


def _print_many(kind: CatalogKind[T], names: Iterable[str], json: bool) -> None:
    values = [kind.find(name) for name in names]
    if json:
        write_json([kind.summary(value) for value in values])
    else:
        show(kind.table(values))
