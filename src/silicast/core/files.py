"""Files of users: read within limits, and written so that nothing half-written stays behind.

What is read must be a regular file of bounded size, which is checked before the first byte: a pipe
would wait and ``/dev/zero`` never end.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from silicast.core.errors import SilicastError, over_limit, unsupported

HINTS = {
    errno.ENOSPC: "make room, or name a file on another disk",
    errno.EDQUOT: "make room, or name a file on another disk",
    errno.EROFS: "name a file on another disk",
}
"""Error of the system -> what to do about it."""
_READING = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
PIECE_BYTES = 1 << 22
_MAX_LINKS = 40
"""Symbolic links followed one after the other, as Linux limits them."""


def read_bounded(path: Path, most_bytes: int, what: str, hint: str = "") -> bytes:
    """The content of a regular file.

    Args:
        what: the file is supposed to be ("a device file"), for the error of one too large.
        hint: what to do if it is none.

    Raises:
        SilicastError: missing, a folder, a pipe or a device, unreadable (kind "io"), or larger
            than ``most_bytes`` (kind "limit"); names the file.
    """
    with opened_file(path, most_bytes, what, hint) as stream, read_errors(path, hint):
        content = read_at_most(stream.read, most_bytes + 1)
    if content is None:  # a file of the system that would wait for something to happen
        raise _refused(path, "holds nothing now and would have to be waited for", hint)
    if len(content) > most_bytes:
        raise _too_large(path, most_bytes, what, hint)
    return content


def read_at_most(read: Callable[[int], bytes | None], most_bytes: int) -> bytes | None:
    """Up to so many bytes, in pieces: to ask for all at once takes memory for the limit. None = the
    stream has nothing yet.
    """
    pieces: list[bytes] = []
    left = most_bytes
    while left > 0:
        piece = read(min(left, PIECE_BYTES))
        if piece is None and not pieces:
            return None
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


@contextmanager
def opened_file(path: Path, most_bytes: int, what: str, hint: str = "") -> Iterator[BufferedReader]:
    """A regular file of bounded size, open for reading: the one way to a file that a user names.

    What it is is asked before it is opened and once more of what was opened, in case the path has
    come to mean something else meanwhile; reading never waits.

    Args:
        what: the file is supposed to be; hint: what to do if it is none.

    Raises:
        SilicastError: as :func:`read_bounded`.
    """
    regular_status(path, hint)
    with read_errors(path, hint):
        handle = os.open(path, _READING)
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _refused(path, "is no regular file", hint or "save it to a file first")
        if status.st_size > most_bytes:
            raise _too_large(path, most_bytes, what, hint)
        yield stream


def regular_status(path: Path, hint: str = "") -> os.stat_result:
    """What the system knows of a regular file.

    Raises:
        SilicastError: kind "io": there is none, or it is a folder, a pipe or a device.
    """
    with read_errors(path, hint):
        status = path.stat()
    if stat.S_ISDIR(status.st_mode):
        raise _refused(path, "is a folder, not a file", hint)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "is no regular file", hint or "save it to a file first")
    return status


def read_text(path: Path, most_bytes: int, what: str, hint: str = "") -> str:
    """The content of a regular file as UTF-8 text, without a byte-order mark.

    Raises:
        SilicastError: as :func:`read_bounded`, or it is not UTF-8.
    """
    content = read_bounded(path, most_bytes, what, hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        byte = f"byte {error.start} is {content[error.start]:#04x}"
        raise SilicastError(f"is no text in UTF-8: {byte}", file=str(path)) from None


def size_text(count: int) -> str:
    """A number of bytes for people.

    >>> size_text(256 << 10), size_text(1 << 30)
    ('256 KiB', '1 GiB')
    """
    power = min((count.bit_length() - 1) // 10, 3) if count else 0
    return f"{count / (1 << 10 * power):.3g} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


@contextmanager
def read_errors(path: Path, hint: str = "") -> Iterator[None]:
    """Errors of the system in reading ``path`` as errors that name it."""
    try:
        yield
    except OSError as error:
        raise _refused(path, f"cannot read: {error.strerror or error}", hint) from None
    except ValueError as error:
        if "\0" in str(path):
            raise _refused(Path(repr(path)), f"not a file name: {error}", "") from None
        raise


@contextmanager
def writing(path: Path, *, source: os.stat_result | None = None) -> Iterator[BinaryIO]:
    """A stream whose content becomes the file at ``path`` once the block ends without an error.

    A symbolic link is followed: the file that it names is written, the link stays. A file that
    exists keeps its mode. What is no regular file (a pipe, ``/dev/null``, ``/dev/stdout``) is
    written as it is, from the first byte on.

    Args:
        source: what the content is made from; writing onto it is refused.

    Raises:
        SilicastError: kind "io": it cannot be written, is a folder, a loop of links or ``source``
            itself. A regular file is then as it was.
        BrokenPipeError: nobody reads the pipe any longer.
    """
    with write_errors(path):
        status = checked_target(path, source)
        if status is not None and not is_plain(path, status):
            handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            with os.fdopen(handle, "wb") as stream:
                yield stream
            return
        with _replacing(Path(os.path.realpath(path)), status) as stream:
            yield stream


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Errors of the system in writing ``path`` as errors that name it; a broken pipe stays one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        hint = HINTS.get(error.errno or 0, "is its folder there and writable?")
        raise _refused(path, f"cannot write: {error.strerror or error}", hint) from None
    except ValueError as error:
        if "\0" in str(path):
            raise _refused(Path(repr(path)), f"not a file name: {error}", "") from None
        raise


def checked_target(path: Path, source: os.stat_result | None = None) -> os.stat_result | None:
    """What ``path`` leads to, None = nothing yet.

    Raises:
        SilicastError: it is a folder, or ``source`` itself.
        OSError: it cannot be looked at.
    """
    status = _status(path)
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise _refused(path, "is a folder, not a file", "name a file in it")
    if _same_file(status, source):
        raise _refused(path, "is the input itself", "write to another file")
    return status


def check_writable(path: Path) -> None:
    """Refuses what :func:`writing` would, before the work whose result is written.

    Raises:
        SilicastError: kind "io": the folder is not there or not writable, or it is a folder.
    """
    with write_errors(path):
        status = checked_target(path)
        if status is not None and not is_plain(path, status):
            return
        folder = Path(os.path.realpath(path)).parent
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def is_plain(path: Path, status: os.stat_result) -> bool:
    """Whether a path leads to a regular file, and not by the name of an open stream."""
    return stat.S_ISREG(status.st_mode) and not _is_open_stream(path)


def lock_file(handle: int, path: Path, busy: str) -> None:
    """Locks out other writers until the handle is closed or the process ends.

    Args:
        busy: what another process does that holds the lock.

    Raises:
        SilicastError: it is locked, or cannot be.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        raise unsupported("this system has no file locks", file=str(path)) from None
    except BlockingIOError:
        raise _refused(path, busy, "wait for it, or write to another file") from None
    except OSError as error:
        raise _refused(
            path, f"cannot be locked: {error.strerror}", "write to a local disk"
        ) from None


def write_atomically(path: Path, content: bytes) -> None:
    """Writes all of a file at once, see :func:`writing`.

    Raises:
        SilicastError: the folder does not exist or cannot be written; nothing stays behind.
    """
    with writing(path) as stream:
        stream.write(content)


@contextmanager
def _replacing(target: Path, status: os.stat_result | None) -> Iterator[BinaryIO]:
    """A new file beside ``target``, renamed over it in the end; removed after an error."""
    mode = 0o666 if status is None else stat.S_IMODE(status.st_mode)
    if status is not None and not os.access(target, os.W_OK):
        raise PermissionError(0, "the file is not writable")
    temporary = target.parent / f".silicast-{os.urandom(8).hex()}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    handle = os.open(temporary, flags, mode & 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            if status is not None:
                with suppress(OSError):  # only root may give a file to another user
                    os.chown(stream.fileno(), status.st_uid, status.st_gid)
                os.chmod(stream.fileno(), mode)  # noqa: PTH101 - the open file, not a path
            yield stream
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _status(path: Path) -> os.stat_result | None:
    """What ``path`` leads to, or None where there is nothing yet; a loop of links raises."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _same_file(status: os.stat_result | None, source: os.stat_result | None) -> bool:
    if status is None or source is None or not stat.S_ISREG(status.st_mode):
        return False
    return os.path.samestat(status, source)


def _is_open_stream(path: Path) -> bool:
    """Whether ``path`` is a name of an open stream, as /dev/stdout is, even if of a file."""
    step = Path(os.path.abspath(path))  # noqa: PTH100 - resolving would follow the links
    for _ in range(_MAX_LINKS):
        if not step.is_symlink():
            return False
        if step.parts[1] in {"dev", "proc"}:
            return True
        step = Path(os.path.abspath(step.parent / step.readlink()))  # noqa: PTH100
    return False


def _too_large(path: Path, most_bytes: int, what: str, hint: str) -> SilicastError:
    return over_limit(
        f"is larger than {size_text(most_bytes)}: not {what}",
        hint=hint or "shorten it: of a profile, record fewer steps",
        file=str(path),
    )


def _refused(path: Path, message: str, hint: str) -> SilicastError:
    return SilicastError(message, kind="io", file=str(path), hint=hint)
