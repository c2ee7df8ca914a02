"""The files of a client's tenant, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from turnyard.client.connection import Connection
    from turnyard.client.handle import JsonObject


class FilesClient:
    """Puts, gets, lists and deletes files; `client.files`. A file is its object as the API has it: id, name, size, media_type, ..."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def put(self, data: bytes, *, name: str = "", media_type: str | None = None) -> JsonObject:
        """Keep a file and return it; name its id to an agent, or get it later. A lost answer may leave a second one behind.

        Raises:
            TooLarge: it is larger than a file may be.
            QuotaExceeded: the tenant has as much as it may have.
            StoreUnavailable: nobody answered.
        """
        headers = {"Content-Type": media_type or "application/octet-stream"}
        return await self._connection.request("POST", "/v1/files", params={"name": name}, content=data, headers=headers)

    async def get(self, file: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return the content of a file: `length` bytes from `offset` on, None meaning the rest.

        Raises:
            NotFound: there is no such file, or its time is over.
        """
        if length == 0:
            return b""
        last = "" if length is None else str(offset + length - 1)
        headers = {} if offset == 0 and length is None else {"Range": f"bytes={offset}-{last}"}
        return await self._connection.bytes_of(f"{_path(file)}/content", headers=headers)

    async def stat(self, file: str) -> JsonObject:
        """Return what is known of a file.

        Raises:
            NotFound: there is no such file, or its time is over.
        """
        return await self._connection.get(_path(file))

    async def list(self, *, limit: int = 50) -> list[JsonObject]:
        """Return files, newest first."""
        found: list[JsonObject] = []
        after: str | None = None
        while len(found) < limit:
            params: dict[str, Any] = {"limit": min(100, limit - len(found))} | ({"after": after} if after else {})
            page = await self._connection.get("/v1/files", params)
            found += page["data"]
            after = page["next"]
            if after is None:
                break
        return found

    async def delete(self, file: str) -> None:
        """Delete a file.

        Raises:
            NotFound: there is no such file.
        """
        await self._connection.request("DELETE", _path(file))


def _path(file: str) -> str:
    return f"/v1/files/{quote(file, safe='')}"
