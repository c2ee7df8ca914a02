"""Where files and long results are kept: in Redis, in a directory, in a bucket, or in the memory of this process.

`open_blobs` gives what `files.url` names. A tenant's files are its own, in every one of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from turnyard.blobs.memory import MemoryShelf
from turnyard.blobs.store import FileStore, StoreLimits
from turnyard.errors import ConfigError

if TYPE_CHECKING:
    from turnyard.blobs.store import Shelf
    from turnyard.ports import Clock
    from turnyard.settings import Settings
    from turnyard.state.yard import Yard

__all__ = ["FileStore", "StoreLimits", "open_blobs", "open_memory"]


def open_blobs(settings: Settings, *, clock: Clock, yard: Yard | None = None) -> FileStore:
    """Return the store of files that the settings name; `yard` is the deployment, which `redis` needs.

    Raises:
        ConfigError: the store cannot be used as configured; the message says what to change.
    """
    limits = StoreLimits(
        max_bytes=settings.files.max_bytes,
        per_tenant_bytes=settings.files.per_tenant_bytes,
        per_tenant_files=settings.files.per_tenant_files,
        ttl_s=settings.retention.files.total_seconds(),
    )
    return FileStore(_shelf(settings, clock, yard), clock, limits)


def open_memory(clock: Clock, limits: StoreLimits | None = None) -> FileStore:
    """Return a store that forgets everything with this process."""
    return FileStore(MemoryShelf(), clock, limits)


def _shelf(settings: Settings, clock: Clock, yard: Yard | None) -> Shelf:
    given = settings.files
    if given.url == "redis":
        from turnyard.blobs.redis import RedisShelf

        if yard is None:
            raise ConfigError("files.url: redis is the server of a deployment, and there is none here")
        return RedisShelf(yard)
    if given.url.startswith("file://"):
        from turnyard.blobs.directory import DirectoryShelf

        return DirectoryShelf(Path(unquote(urlsplit(given.url).path)), clock)
    from turnyard.blobs.s3 import Bucket, S3Shelf

    secret = given.secret_access_key.get_secret_value() if given.secret_access_key else None
    return S3Shelf(Bucket.parse(given.url, access_key_id=given.access_key_id, secret_access_key=secret))
