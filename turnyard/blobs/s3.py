"""Files in a bucket of S3, or of whatever speaks its language.

Two objects per file: `<prefix>/data/<tenant>/<id>` and, written last, `<prefix>/cards/<tenant>/<id>`. What has expired is
refused at once; that it is deleted is for a lifecycle rule of the bucket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from turnyard.blobs.store import Place
from turnyard.errors import ConfigError, FilesUnavailable

if TYPE_CHECKING:
    from obstore.store import S3Store

_AT_ONCE_BYTES = 5_242_880  # the least that a part may have; what is smaller is put in one request
_PAGE = 1_000
_TRIES = 3
_TRYING = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Which bucket, and how it is reached. What is None is found as AWS's own tools find it: environment, profile, role."""

    name: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = None

    @staticmethod
    def parse(url: str, *, access_key_id: str | None = None, secret_access_key: str | None = None) -> Bucket:
        """Read `s3://bucket/prefix?endpoint=...&region=...`.

        Raises:
            ConfigError: it names no bucket, holds credentials, or says something unknown.
        """
        parts = urlsplit(url)
        said = dict(parse_qsl(parts.query))
        endpoint, region = said.pop("endpoint", None), said.pop("region", None)
        if not parts.netloc or "@" in parts.netloc:
            raise ConfigError("files.url: an s3:// URL names a bucket, and no user; credentials are files.access_key_id and its kin")
        if said:
            raise ConfigError(f"files.url: an s3:// URL takes endpoint and region, not {', '.join(sorted(said))}")
        keys = {"access_key_id": access_key_id, "secret_access_key": secret_access_key}
        return Bucket(name=parts.netloc, prefix=parts.path.strip("/"), endpoint=endpoint, region=region, **keys)

    def open(self) -> S3Store:
        """Return the client; nothing is sent yet.

        Raises:
            ConfigError: the library is not installed, or cannot make sense of what it is given.
        """
        try:
            from obstore.exceptions import BaseError
            from obstore.store import S3Store
        except ImportError:
            raise ConfigError("files.url: s3:// needs the extra s3: pip install 'turnyard[s3]'") from None
        given = {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key_id": self.access_key_id,
            "secret_access_key": self.secret_access_key,
        }
        try:
            return S3Store(
                self.name,
                prefix=self.prefix or None,
                client_options={"allow_http": (self.endpoint or "").startswith("http://"), "timeout": "30s", "connect_timeout": "5s"},
                retry_config={"max_retries": _TRIES, "retry_timeout": _TRYING},
                **{name: value for name, value in given.items() if value is not None},  # pyright: ignore[reportArgumentType]
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"files.url: the bucket {self.name} cannot be reached so: {_brief(error)}") from error


class S3Shelf:
    """Implements `Shelf`."""

    def __init__(self, bucket: Bucket) -> None:
        self._store = bucket.open()
        self._name = bucket.name

    @property
    def most_bytes(self) -> int | None:
        """Return how large a file may be here: any size."""
        return None

    async def write(self, place: Place, pieces: AsyncIterator[bytes], ttl_ms: int) -> None:
        """Write the content of a file: in one request, or in parts that become the object when all are there."""
        del ttl_ms
        import obstore

        first = bytearray()
        async for piece in pieces:
            first += piece
            if len(first) >= _AT_ONCE_BYTES:
                break
        whole = _joined(first, pieces) if len(first) >= _AT_ONCE_BYTES else bytes(first)
        with self._using():
            await obstore.put_async(self._store, _data(place), whole, chunk_size=_AT_ONCE_BYTES)

    async def seal(self, place: Place, card: bytes, size: int, ttl_ms: int) -> None:
        """Write the card of a file."""
        del size, ttl_ms
        import obstore

        with self._using():
            await obstore.put_async(self._store, _card(place), card)

    async def card(self, place: Place) -> bytes | None:
        """Return a file's card, None when it is not there."""
        import obstore

        with self._using():
            try:
                found = await obstore.get_async(self._store, _card(place))
                return bytes(await found.bytes_async())
            except FileNotFoundError:
                return None

    async def read(self, place: Place, start: int, end: int) -> bytes | None:
        """Return a part of a file, None when it is not there."""
        import obstore

        with self._using():
            try:
                return bytes(await obstore.get_range_async(self._store, _data(place), start=start, end=end))
            except FileNotFoundError:
                return None

    async def drop(self, place: Place) -> None:
        """Take a file away."""
        import obstore

        for path in (_card(place), _data(place)):
            with self._using():
                try:
                    await obstore.delete_async(self._store, path)
                except FileNotFoundError:
                    continue

    async def names(self, folder: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return ids of files in a folder in their order, after one of them."""
        import obstore

        start = f"cards/{folder}/{after}" if after else None
        with self._using():
            async for page in obstore.list(self._store, prefix=f"cards/{folder}", offset=start, chunk_size=limit):
                return [entry["path"].rpartition("/")[2] for entry in page]
        return []

    async def usage(self, folder: str) -> tuple[int, int]:
        """Return how many files there are in a folder, and their bytes together."""
        import obstore

        files, size = 0, 0
        with self._using():
            async for page in obstore.list(self._store, prefix=f"data/{folder}", chunk_size=_PAGE):
                files, size = files + len(page), size + sum(entry["size"] for entry in page)
        return files, size

    async def sweep(self) -> None:
        """Do nothing: a lifecycle rule of the bucket takes away what has expired."""

    async def aclose(self) -> None:
        """Let go of nothing: connections end with the process."""

    @contextmanager
    def _using(self) -> Generator[None]:
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:  # what is not there is told by its caller; here it is the bucket itself
            raise FilesUnavailable(f"the bucket {self._name} is not there: create it, or correct files.url") from error
        except (BaseError, OSError) as error:
            raise FilesUnavailable(f"the bucket {self._name} did not do it: {_brief(error)}") from error


async def _joined(first: bytearray, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield bytes(first)
    async for piece in rest:
        yield piece


def _data(place: Place) -> str:
    return f"data/{place.folder}/{place.file}"


def _card(place: Place) -> str:
    return f"cards/{place.folder}/{place.file}"


def _brief(error: BaseException) -> str:
    """Return the first line of what the library says: further ones are for its makers."""
    return str(error).partition("\n")[0][:300]
