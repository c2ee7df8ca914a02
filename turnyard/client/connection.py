"""One HTTP request that may be made again, and one event stream that comes back by itself.

A request is repeated only when a repeat is the same request: it reads, or it carries an idempotency key, or it never
reached the server. How often is bounded, and a server that says when to come back is obeyed.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import httpx
import orjson

from turnyard.backoff import Backoff
from turnyard.client.problems import error_of
from turnyard.errors import InvalidInput, Overloaded, StoreUnavailable
from turnyard.ports import Clock
from turnyard.records.sse import Event, SSEParser
from turnyard.text import scrub_tree
from turnyard.wire.events import FeedEvent

ATTEMPTS = 6
MAX_RETRY_AFTER_S = 30.0
# The server sends a comment every 15 s, so a stream that is silent for three of them is dead.
_SILENT_S = 45.0
_CONNECT_S = 10.0
_AWAY, _OVER = 503, 204


class Connection:
    """A server's address and how it is spoken to."""

    def __init__(
        self, url: str, *, api_key: str | None, timeout_s: float, clock: Clock, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._clock = clock
        self._http = httpx.AsyncClient(
            base_url=self.url, headers=headers, transport=transport, timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S)
        )

    async def aclose(self) -> None:
        """Let go of connections."""
        await self._http.aclose()

    async def get(self, path: str, params: Mapping[str, Any] | None = None, *, wait_s: int = 0) -> Any:
        """Return what is at a path; `wait_s` has the server wait for a job's end."""
        headers = {"Prefer": f"wait={wait_s}"} if wait_s else {}
        return await self.request("GET", path, params=params, headers=headers, wait_s=wait_s)

    async def post(self, path: str, body: Mapping[str, Any] | None = None, *, key: str | None = None, wait_s: int = 0) -> Any:
        """Send a body, its text repaired; `key` is made up when none is given, so that a repeat is harmless."""
        if key is not None and not key.isascii():
            raise InvalidInput("an idempotency key travels in a header, so it has ASCII characters only", pointer="/idempotency_key")
        headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else key}
        if wait_s:
            headers["Prefer"] = f"wait={wait_s}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        return await self.request(
            "POST", path, content=None if body is None else orjson.dumps(scrub_tree(body)), headers=headers, wait_s=wait_s
        )

    async def request(self, method: str, path: str, *, wait_s: int = 0, **parts: Any) -> Any:
        """Return the JSON of an answer, making the request again where that may help; errors as `bytes_of`."""
        return self._json(await self._answer(method, path, wait_s=wait_s, **parts))

    async def bytes_of(self, path: str, *, headers: Mapping[str, str] | None = None) -> bytes:
        """Return what is at a path as it is.

        Raises:
            StoreUnavailable: nobody answered, or the server's store is away, for every attempt.
            TurnyardError: what the server's problem stands for.
        """
        return (await self._answer("GET", path, headers=dict(headers or {}))).content

    async def _answer(self, method: str, path: str, *, wait_s: int = 0, **parts: Any) -> httpx.Response:
        backoff = Backoff(first_s=0.1, most_s=2.0)
        parts["timeout"] = httpx.Timeout(self._timeout_s + wait_s, connect=_CONNECT_S)
        for _ in range(ATTEMPTS - 1):
            with contextlib.suppress(httpx.TransportError):
                response = await self._http.request(method, path, **parts)
                if response.status_code != _AWAY:
                    return self._good(response)
                await self._clock.sleep(_retry_after_s(response))
            await self._clock.sleep(backoff.next_s())
        try:
            return self._good(await self._http.request(method, path, **parts))
        except httpx.TransportError as error:
            raise self._silent(error) from error

    def _good(self, response: httpx.Response) -> httpx.Response:
        if not response.is_success:
            raise error_of(response)
        return response

    def _json(self, response: httpx.Response) -> Any:
        try:
            return response.json() if response.content else None
        except ValueError:
            raise StoreUnavailable(f"{self.url} answers, but not as Turnyard's API does: check the address") from None

    def _silent(self, error: Exception) -> StoreUnavailable:
        reason = str(error) or type(error).__name__
        return StoreUnavailable(f"{self.url} does not answer ({reason}): check the address, or start it with `turnyard up`")

    async def events(self, path: str, *, after: str | None = None, job: str | None = None) -> AsyncGenerator[FeedEvent]:
        """Yield the events of a stream after a feed id, without end, or to the last state of `job`.

        When the connection breaks it is made again after the last id; what was already given is not given twice, and
        `hello` is given once.

        Raises:
            StoreUnavailable: nobody answered for every attempt in a row.
            NotFound: there is no such session or job.
        """
        follower = _Follower(after, job)
        backoff = Backoff(first_s=0.1, most_s=2.0)
        while not follower.over:
            reason: Exception | None = None
            try:
                async with contextlib.aclosing(self._once(path, follower)) as events:
                    async for event in events:
                        yield event
            except (httpx.TransportError, StoreUnavailable, Overloaded) as error:
                reason = error
            if follower.heard:
                backoff.reset()
            follower.heard, follower.failures = False, 0 if follower.heard else follower.failures + 1
            if follower.failures >= ATTEMPTS:
                raise self._silent(reason or StoreUnavailable("the stream ends at once")) from reason
            if not follower.over:
                await self._clock.sleep(backoff.next_s())

    async def _once(self, path: str, follower: _Follower) -> AsyncGenerator[FeedEvent]:
        headers = {"Last-Event-ID": follower.last_id} if follower.last_id else {}
        timeout = httpx.Timeout(_SILENT_S, connect=_CONNECT_S)
        async with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
            if response.status_code == _OVER:
                follower.over = True
                return
            if not response.is_success:
                await response.aread()
                raise error_of(response)
            parser = SSEParser(last_id=follower.last_id)
            async for text in response.aiter_text():
                for event in parser.feed(text):
                    told = follower.take(event)
                    if told is not None:
                        yield told


class _Follower:
    """What a follower has seen, so that coming back repeats nothing."""

    def __init__(self, after: str | None, job: str | None) -> None:
        self.last_id = after or ""
        self.over = False
        self.heard = False
        self.failures = 0
        self._job = job
        self._since_id: set[tuple[object, ...]] = set()
        self._greeted = False

    def take(self, event: Event) -> FeedEvent | None:
        """Return an event that is new, None for one that was seen before or is not for the consumer."""
        if event.event == "error":
            # It says why the stream ends now; the follower comes back by itself.
            return None
        self.heard = True
        if event.event == "hello" and self._greeted:
            return None
        self._greeted = True
        data = orjson.loads(event.data)
        mark = (event.event, data["seq"], data["job"], data["data"].get("state"))
        if event.id == self.last_id and mark in self._since_id:
            return None
        if event.id != self.last_id:
            self.last_id, self._since_id = event.id, set()
        else:
            self._since_id.add(mark)
        if event.event == "job" and data["job"] == self._job and data["data"]["finished_at"] is not None:
            self.over = True
        return FeedEvent(event.event, data, event.id or None)


def _retry_after_s(response: httpx.Response) -> float:
    raw = response.headers.get("retry-after", "")
    return min(float(raw), MAX_RETRY_AFTER_S) if raw.isascii() and raw.isdigit() else 0.0
