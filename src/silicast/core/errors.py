"""The one error type that reaches a user: what is wrong, where, and what to do about it."""

from __future__ import annotations

import copy
from typing import Literal

ErrorKind = Literal[
    "invalid_input", "unknown_name", "not_yet", "unsupported", "limit", "io", "internal"
]


class SilicastError(Exception):
    """A problem that the user can act on; the command line prints it without a traceback.

    Args:
        message: what was found and what was expected, in one line.
        kind: the class of problem, as written to ``error.kind`` in an answer.
        field: dotted path of the offending field of the input, or "".
        hint: what to do about it, in one line, or "".
        file: the file that holds the field, or "".

    >>> str(SilicastError("unknown device 'h1000'", field="device", hint="did you mean h100?"))
    "device: unknown device 'h1000' (did you mean h100?)"
    """

    def __init__(
        self,
        message: str,
        *,
        kind: ErrorKind = "invalid_input",
        field: str = "",
        hint: str = "",
        file: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind: ErrorKind = kind
        self.field = field
        self.hint = hint
        self.file = file

    def at(self, field: str, file: str = "") -> SilicastError:
        """The same error, one level further out: ``field`` is put before the path."""
        return self.located(f"{field}.{self.field}" if self.field else field, file)

    def located(self, field: str = "", file: str = "") -> SilicastError:
        """The same error; ``field`` and ``file`` replace its own where they are given."""
        error = copy.copy(self)
        error.field, error.file = field or self.field, file or self.file
        return error

    def __str__(self) -> str:
        where = ": ".join(part for part in (self.file, self.field) if part)
        text = f"{where}: {self.message}" if where else self.message
        return f"{text} ({self.hint})" if self.hint else text


class errors_at:  # noqa: N801 - reads as a function, as contextlib's do
    """Within it, errors are :meth:`SilicastError.at` a field, and maybe of a file.

    >>> with errors_at("workload"):
    ...     raise SilicastError("expected a number", field="batch")
    Traceback (most recent call last):
    silicast.core.errors.SilicastError: workload.batch: expected a number
    """

    def __init__(self, field: str = "", file: str = "") -> None:
        self._where = field, file

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, SilicastError):
            raise self._changed(error, *self._where) from None

    @staticmethod
    def _changed(error: SilicastError, field: str, file: str) -> SilicastError:
        return error.at(field, file)


class errors_located(errors_at):  # noqa: N801
    """Within it, errors are :meth:`SilicastError.located`: a field and a file replace theirs."""

    @staticmethod
    def _changed(error: SilicastError, field: str, file: str) -> SilicastError:
        return error.located(field, file)


class UnknownFieldError(SilicastError):
    """A field that its table does not have."""


class NotJsonError(SilicastError):
    """A text that ends early or is no JSON."""


def unknown_name(message: str, field: str = "", hint: str = "", *, file: str = "") -> SilicastError:
    """A name that is none of those known."""
    return SilicastError(message, kind="unknown_name", field=field, hint=hint, file=file)


def unknown_field(message: str, field: str = "", hint: str = "") -> UnknownFieldError:
    """A field that its table does not have."""
    return UnknownFieldError(message, kind="unknown_name", field=field, hint=hint)


def unsupported(message: str, field: str = "", hint: str = "", *, file: str = "") -> SilicastError:
    """Something that cannot be answered: the device, the program or an installation forbids it."""
    return SilicastError(message, kind="unsupported", field=field, hint=hint, file=file)


def unmodelled(message: str, field: str = "", hint: str = "", *, file: str = "") -> SilicastError:
    """Something valid that no model answers so far."""
    return SilicastError(message, kind="not_yet", field=field, hint=hint, file=file)


def over_limit(message: str, field: str = "", hint: str = "", *, file: str = "") -> SilicastError:
    """More than is read or predicted at once."""
    return SilicastError(message, kind="limit", field=field, hint=hint, file=file)


def require(condition: bool, message: str, field: str, hint: str = "") -> None:
    """Raises SilicastError for ``field`` unless ``condition`` holds."""
    if not condition:
        raise SilicastError(message, field=field, hint=hint)
