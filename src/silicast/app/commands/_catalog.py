"""What `devices`, `models` and `engines` share: list, search, show."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, final

from cyclopts import App, Parameter

from silicast.app.console import show, write_json
from silicast.core.naming import NameIndex, normalise

if TYPE_CHECKING:
    from rich.console import RenderableType

T = TypeVar("T")

Json = Annotated[bool, Parameter(name="--json", negative="")]


@final
@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of catalog entry and how it is shown.

    Attributes:
        name: in the plural, as typed.
        index: all entries by name.
        aliases: other names of an entry, which search looks through too.
        summary: the fields of one line, for JSON.
        table: one line an entry; card: everything about one; data: the same for JSON.
    """

    name: str
    help: str
    index: Callable[[], NameIndex[T]]
    aliases: Callable[[T], Iterable[str]]
    summary: Callable[[T], Any]
    table: Callable[[Iterable[T]], RenderableType]
    card: Callable[[T], RenderableType]
    data: Callable[[T], Any]


def catalog_app(kind: Kind[T]) -> App:
    """The command of one kind, with its subcommands."""
    app = App(name=kind.name, help=kind.help, help_format="plaintext")

    @app.default
    def list_all(*, json: Json = False) -> None:
        """List all of them.

        Args:
            json: print JSON instead of a table.
        """
        _print_many(kind, kind.index().names, json)

    app.command(list_all, name="list")

    @app.command
    def search(text: str, /, *, json: Json = False) -> None:
        """List those whose name or alias contains a text.

        Args:
            text: case, spaces, hyphens and underscores do not count.
            json: print JSON instead of a table.
        """
        index = kind.index()
        wanted = normalise(text)
        found = [
            name
            for name in index.names
            if any(wanted in normalise(n) for n in (name, *kind.aliases(index.get(name))))
        ]
        if not found:
            index.canonical(text)
        _print_many(kind, found, json)

    @app.command(name="show")
    def show_one(name: str, /, *, json: Json = False) -> None:
        """Show everything known of one, with the source of each number.

        Args:
            name: a name or alias.
            json: print JSON instead of a table.
        """
        value = kind.index().get(name)
        if json:
            write_json(kind.data(value))
        else:
            show(kind.card(value))

    return app


def _print_many(kind: Kind[T], names: Iterable[str], json: bool) -> None:
    index = kind.index()
    values = [index.get(name) for name in names]
    if json:
        write_json([kind.summary(value) for value in values])
    else:
        show(kind.table(values))
