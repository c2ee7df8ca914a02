"""The files that a call may reach: those of its tenant, and no others, whatever the model's arguments say."""

from __future__ import annotations

from collections.abc import AsyncIterable
from dataclasses import dataclass
from datetime import timedelta

from turnyard.errors import FilesUnavailable
from turnyard.ports import Blobs
from turnyard.records.blobs import BlobRef


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one tenant. `blobs` None: there is no store of files here, and each call says so."""

    blobs: Blobs | None = None
    tenant: str = ""

    async def put(
        self,
        data: bytes | str | AsyncIterable[bytes],
        *,
        name: str = "",
        media_type: str | None = None,
        expires_in: timedelta | float | None = None,
    ) -> BlobRef:
        """Keep a file; its `id` is what a model, a client or another call gets it by.

        Args:
            data: the whole, or its pieces as they come.
            name: what it is called; for showing alone.
            media_type: what a text or an archive is more precisely; what the content shows wins.
            expires_in: how long it is kept, a timedelta or seconds; None: as long as files are kept here.

        Raises:
            TooLarge: it is larger than a file may be.
            QuotaExceeded: the tenant has as much as it may have.
            FilesUnavailable: the store did not take it.
        """
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        ttl_s = expires_in.total_seconds() if isinstance(expires_in, timedelta) else expires_in
        return await self._store().put(self.tenant, raw, name=name, media_type=media_type, ttl_s=ttl_s)

    async def get(self, file: str | BlobRef, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file: `length` bytes from `offset` on, None meaning the rest.

        Raises:
            NotFound: the tenant has no such file.
            FilesUnavailable: the store did not answer.
        """
        return await self._store().read(self.tenant, _id(file), offset=offset, length=length)

    async def stat(self, file: str | BlobRef) -> BlobRef:
        """Return what is known of a file; errors as `get`."""
        return await self._store().stat(self.tenant, _id(file))

    async def delete(self, file: str | BlobRef) -> None:
        """Forget a file; errors as `get`."""
        await self._store().delete(self.tenant, _id(file))

    def _store(self) -> Blobs:
        if self.blobs is None:
            raise FilesUnavailable("there is no store of files here: set files.url, or give the context one")
        return self.blobs


def _id(file: str | BlobRef) -> str:
    return file.id if isinstance(file, BlobRef) else file
