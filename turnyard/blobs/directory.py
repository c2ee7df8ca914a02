"""Files in a directory that all roles share: of this machine, or one that is mounted on each.

Every file is opened from its folder's descriptor without following a link, so no path is ever put together from names and
nothing outside the directory can be reached through it, whatever somebody else leaves in there. The time at which a file
goes is its card's modification time, so that a folder is swept without a card being opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from turnyard.blobs.store import Place
from turnyard.errors import ConfigError, FilesUnavailable
from turnyard.ports import Clock

T = TypeVar("T")

log = logging.getLogger("turnyard.blobs")

_DATA, _CARDS = "data", "cards"
_LEFT_BEHIND_S = 3600.0  # content that no card came for
_NO_LINK = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _NO_LINK
_FRESH = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK


class DirectoryShelf:
    """Implements `Shelf`. `root` is made when it is not there.

    Raises:
        ConfigError: it cannot be made, or nothing can be written there.
    """

    def __init__(self, root: Path, clock: Clock) -> None:
        try:
            for part in (_DATA, _CARDS):
                (root / part).mkdir(parents=True, exist_ok=True, mode=0o700)
            self._root = root.resolve(strict=True)
        except OSError as error:
            raise ConfigError(
                f"files.url: {root} cannot be used ({error.strerror or error}); name a directory that can be written"
            ) from error
        if not os.access(self._root / _DATA, os.W_OK | os.X_OK):
            raise ConfigError(f"files.url: nothing can be written in {root}; give this process the right to, or name another directory")
        self._clock = clock

    @property
    def most_bytes(self) -> int | None:
        """Return how large a file may be here: any size."""
        return None

    async def write(self, place: Place, pieces: AsyncIterator[bytes], ttl_ms: int) -> None:
        """Write the content of a file."""
        del ttl_ms
        await self._written(_DATA, place, pieces)

    async def seal(self, place: Place, card: bytes, size: int, ttl_ms: int) -> None:
        """Write the card of a file."""
        del size

        async def whole() -> AsyncIterator[bytes]:
            yield card

        await self._written(_CARDS, place, whole(), until_s=(self._clock.now_ms() + ttl_ms) / 1000)

    async def _written(self, part: str, place: Place, pieces: AsyncIterator[bytes], *, until_s: float | None = None) -> None:
        """Write a file under another name, and give it its own once the disk has it."""
        folder = await _off_loop(lambda: self._folder(part, place.folder, make=True))
        try:
            draft = f".{place.file}"
            file = await _off_loop(lambda: os.open(draft, _FRESH, 0o600, dir_fd=folder))
            try:
                async for piece in pieces:
                    await _off_loop(lambda piece=piece: _write(file, piece))
                await _off_loop(lambda: _keep(folder, file, draft, place.file, until_s))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=folder)
                raise
            finally:
                os.close(file)
        finally:
            os.close(folder)

    async def card(self, place: Place) -> bytes | None:
        """Return a file's card, None when it is not there."""
        return await _off_loop(lambda: self._read(_CARDS, place, 0, None))

    async def read(self, place: Place, start: int, end: int) -> bytes | None:
        """Return a part of a file, None when it is not there."""
        return await _off_loop(lambda: self._read(_DATA, place, start, end))

    async def drop(self, place: Place) -> None:
        """Take a file away."""

        def drop() -> None:
            for part in (_CARDS, _DATA):
                with self._opened(part, place.folder) as folder:
                    if folder is not None:
                        _remove(folder, place.file)

        await _off_loop(drop)

    async def names(self, folder: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return ids of files in a folder in their order, after one of them."""

        def names() -> list[str]:
            with self._opened(_CARDS, folder) as opened:
                found = [] if opened is None else [name for name, _ in _listed(opened)]
            return sorted(name for name in found if not name.startswith(".") and name > (after or ""))[:limit]

        return await _off_loop(names)

    async def usage(self, folder: str) -> tuple[int, int]:
        """Return how many files there are in a folder, and their bytes together; what has expired is taken away first."""
        return await _off_loop(lambda: self._swept(folder))

    async def sweep(self) -> None:
        """Take away what has expired, of every tenant."""

        def sweep() -> None:
            for folder in (self._root / _DATA).iterdir():
                with contextlib.suppress(FilesUnavailable):  # no folder of ours
                    self._swept(folder.name)

        await _off_loop(sweep)

    async def aclose(self) -> None:
        """Let go of nothing."""

    def _swept(self, name: str) -> tuple[int, int]:
        now_s = self._clock.now_ms() / 1000
        with self._opened(_CARDS, name) as cards, self._opened(_DATA, name) as data:
            if data is None:
                return 0, 0
            until_s = {} if cards is None else {file: facts.st_mtime for file, facts in _listed(cards)}
            files, size = 0, 0
            for file, facts in _listed(data):
                known = until_s.pop(file, None)
                if known is None and facts.st_mtime > now_s - _LEFT_BEHIND_S:
                    continue  # it is being written
                if known is None or known <= now_s:
                    if cards is not None:
                        _remove(cards, file)
                    _remove(data, file)
                else:
                    files, size = files + 1, size + facts.st_size
            return files, size

    def _read(self, part: str, place: Place, start: int, end: int | None) -> bytes | None:
        with self._opened(part, place.folder) as folder:
            if folder is None:
                return None
            try:
                file = os.open(place.file, os.O_RDONLY | os.O_NONBLOCK | _NO_LINK, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                log.warning("a link was left among the files and is not followed", extra={"file": place.file, "folder": place.folder})
                return None
            with os.fdopen(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    return None
                opened.seek(start)
                return opened.read(-1 if end is None else end - start)

    @contextmanager
    def _opened(self, part: str, name: str) -> Generator[int | None]:
        """Give the descriptor of a folder, None when there is none."""
        try:
            folder = self._folder(part, name, make=False)
        except FileNotFoundError:
            yield None
            return
        try:
            yield folder
        finally:
            os.close(folder)

    def _folder(self, part: str, name: str, *, make: bool) -> int:
        """Open a tenant's folder."""
        above = os.open(self._root / part, _FOLDER)
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=above)
                    os.fsync(above)
            return os.open(name, _FOLDER, dir_fd=above)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                raise FilesUnavailable(f"{part}/{name} among the files is a link or no directory; remove it") from error
            raise
        finally:
            os.close(above)


async def _off_loop(work: Callable[[], T]) -> T:
    """Do blocking work in a thread; what the disk refuses is told as FilesUnavailable."""
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        raise FilesUnavailable(f"the directory of files: {error.strerror or error}; see whether it is there and has room") from error


def _write(file: int, piece: bytes) -> None:
    left = memoryview(piece)
    while left:
        left = left[os.write(file, left) :]


def _keep(folder: int, file: int, draft: str, name: str, until_s: float | None) -> None:
    if until_s is not None:
        os.utime(file, (until_s, until_s))
    os.fsync(file)
    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _listed(folder: int) -> Generator[tuple[str, os.stat_result]]:
    """Yield the regular files of a folder with what is known of them, drafts too."""
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if entry.is_file(follow_symlinks=False):
                    yield entry.name, entry.stat(follow_symlinks=False)
