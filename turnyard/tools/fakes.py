"""A call that no turn makes, for unit tests of tools: what the tool said, reported and put can be looked at afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from turnyard.errors import ConfigError, NotFound
from turnyard.records.blobs import BlobRef
from turnyard.tools.context import CallUrls, ToolContext
from turnyard.tools.files import Files


@dataclass(frozen=True, slots=True)
class FakeBlobs:
    """Files in memory, for one tenant: their ids are file_1, file_2 and so on."""

    max_bytes: int = 8_000_000
    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    refs: dict[str, BlobRef] = field(default_factory=dict[str, BlobRef])

    async def put(
        self,
        tenant: str,
        data: bytes | AsyncIterable[bytes],
        *,
        name: str = "",
        media_type: str | None = None,
        ttl_s: float | None = None,
    ) -> BlobRef:
        """Keep a file."""
        del tenant, ttl_s
        raw = data if isinstance(data, bytes) else b"".join([piece async for piece in data])
        ident, kind, digest = f"file_{len(self.refs) + 1}", media_type or "application/octet-stream", hashlib.sha256(raw).hexdigest()
        ref = BlobRef(id=ident, size=len(raw), media_type=kind, name=name, sha256=digest, created_ms=0, expires_ms=0)
        self.kept[ident], self.refs[ident] = raw, ref
        return ref

    async def read(self, tenant: str, file: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return what was put.

        Raises:
            NotFound: nothing was put under this id.
        """
        await self.stat(tenant, file)
        return self.kept[file][offset:][:length]

    async def stat(self, tenant: str, file: str) -> BlobRef:
        """Return what is known of a file; errors as `read`."""
        del tenant
        if file not in self.kept:
            raise NotFound(f"nothing was put as {file!r}; there are {', '.join(self.kept) or 'no files'}")
        return self.refs[file]

    async def page(self, tenant: str, *, limit: int = 50, after: str | None = None) -> Sequence[BlobRef]:
        """Return the files, newest first."""
        del tenant
        newest = [self.refs[ident] for ident in reversed(self.kept)]
        first = 1 + next((n for n, ref in enumerate(newest) if ref.id == after), -1)
        return newest[first : first + limit]

    async def delete(self, tenant: str, file: str) -> None:
        """Forget a file; errors as `read`."""
        await self.stat(tenant, file)
        del self.kept[file]

    async def aclose(self) -> None:
        """Do nothing: there is no connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeContext(ToolContext[Any]):
    """A context that keeps what a tool does with it: `sent` texts, `reported` progress as (fraction, note), `kept` files by id."""

    sent: list[str] = field(default_factory=list[str])
    reported: list[tuple[float, str]] = field(default_factory=list[tuple[float, str]])
    kept: dict[str, bytes] = field(default_factory=dict[str, bytes])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)

    def secret(self, name: str) -> str:
        """Return a secret that the test gave.

        Raises:
            ConfigError: it gave none of this name.
        """
        if name not in self.secrets:
            raise ConfigError(f"the test gave no secret {name}: ToolContext.fake(secrets={{{name!r}: ...}})")
        return self.secrets[name]


def fake_context(deps: Any, secrets: Mapping[str, str], *, cancelled: bool, fields: Mapping[str, Any]) -> FakeContext:
    """Return a context with made-up values, but for `fields`."""
    sent: list[str] = []
    reported: list[tuple[float, str]] = []
    blobs = FakeBlobs()

    async def say(_event: str, text: str) -> None:
        sent.append(text)

    async def report(fraction: float, note: str) -> None:
        reported.append((fraction, note))

    made_up: dict[str, Any] = {
        "tenant": "default",
        "session": "s1",
        "user": "u1",
        "agent": "agent",
        "turn": "turn_fake",
        "call_id": "call_fake",
        "idempotency_key": "key-fake",
        "fence": 1,
        "urls": CallUrls("http://callback.invalid/", "http://outcome.invalid/"),
        "files": Files(blobs, "default"),
        "say": say,
        "report": report,
        "cancel_requested": lambda: cancelled,
    }
    return FakeContext(deps=deps, secrets=secrets, sent=sent, reported=reported, kept=blobs.kept, **(made_up | dict(fields)))
