"""The seams: what Turnyard asks of a platform, a model provider, a store, a clock.

A port with more than one implementation has a conformance suite in `turnyard.testing`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from turnyard.records.blobs import BlobRef
from turnyard.records.commit import Commit, TurnView
from turnyard.records.log import LogRecord
from turnyard.records.notices import Notice

if TYPE_CHECKING:
    from turnyard.tools.tool import Tool

Settled = Literal["accepted", "duplicate", "conflict", "gone"]


class Clock(Protocol):
    """Time, so that tests can hold it."""

    def now_ms(self) -> int:
        """Return wall time in milliseconds since 1970; for showing, never for leases."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait that long, at least."""
        ...


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it."""

    name: str
    description: str
    schema: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `messages` are rendered and valid: OpenAI's chat shape (role, content, tool_calls, tool_call_id).

    `model` is the name behind the provider prefix. `key` stays the same when the call is repeated after a crash.
    """

    model: str
    messages: Sequence[dict[str, Any]]
    tools: Sequence[ToolSpec] = ()
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    key: str = ""


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of the answer. `kind`: text, thinking or toolcall; `index` counts the content blocks."""

    kind: str
    index: int
    text: str


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A complete tool call of the model. `arguments` is the JSON text exactly as it came."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Done:
    """The last thing a stream yields; a stream that ends without it was cut.

    `usage` has input_tokens, output_tokens and, where known, cached_tokens; None when the server reported none.
    `finish` is stop, tool_calls, length, refusal or content_filter.
    """

    text: str
    calls: tuple[AskedCall, ...] = ()
    usage: dict[str, int] | None = None
    finish: str = "stop"
    model: str = ""


class Provider(Protocol):
    """A way to reach models."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Done]:
        """Answer one request as a stream that ends with `Done`.

        Raises:
            ModelError: the answer failed, was cut, empty or malformed; `retryable` says whether again may help.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class ToolProvider(Protocol):
    """A source of tools that come and go while agents use them: a server, a catalogue, a folder.

    Several agents of a process may share one. What it raises, and how long it takes, costs its own tools and nothing else.
    """

    @property
    def name(self) -> str:
        """Return what the provider is called in manifests and logs."""
        ...

    @property
    def changed(self) -> int:
        """Return a number that is another one whenever the list may have changed. It is read often and must not block."""
        ...

    async def list_tools(self) -> Sequence[Tool[..., Any]]:
        """Return the tools there are now, connecting first where that is needed."""
        ...

    async def aclose(self) -> None:
        """Let go of connections: the last agent that used the provider is done. It may be listed again later, and closed twice."""
        ...


class SessionStore(Protocol):
    """One session, wherever it lives, for whoever drives its turns: what arrives, its turn, and what can be read.

    `turnyard.testing.stores` is this contract as tests, for a store of your own as for ours:

    1. Whole. What an entry or a notice holds comes back as it was given: tag, origin, parts, usage, and what nobody knows.
    2. Ordered. Records are numbered from 1 without a gap, and read in that order, whatever clocks say.
    3. Claimed once. What arrived becomes an entry by a claim (a `begin`, or a commit with `claim`) and by nothing else, once, however
       many race for it. A message is never claimed between a call and its result.
    4. Seen at once. What a commit wrote, every client of the session reads from then on; it makes nothing claimable.
    5. All or nothing. A commit happens whole or not at all, whoever dies or raises in the middle. So does a compaction, which is the
       commit of one summary: the summary is there and what it stands for is hidden, or neither. Hidden is not gone: `entry` has it.
    6. Fenced. A commit for a view that is not the newest changes nothing, no row and no entry. It is refused; one for the view that
       this client's last commit was made for may be taken as that commit's repetition and answered as it was.
    7. One turn. One client at a time runs the session's turn; the others begin nothing.
    8. First outcome. The first outcome of a call stands. A later one changes nothing; a call that was given up for its deadline
       takes one late result more. An unknown call is an error, and past its deadline a call has the outcome timeout.
    9. Notices. A newer one of a group and key takes the place of one that was not shown yet, and leaves one that was; `clear` takes away
       both. What has outlived its time is not shown. None of them wakes the session.

    A store of four methods maps onto it: claim_pending is a claim, append and compact are commits, context is `entries`.
    """

    async def begin(self) -> TurnView | None:
        """Take the session's turn and claim what waits; None when there is nothing to do, or another client has it.

        Calls whose deadline has passed are given up first.
        """
        ...

    async def commit(self, view: TurnView, change: Commit) -> TurnView:
        """Make one transition of the turn that `view` shows, whole; return what it shows then.

        Raises:
            FenceLost: another client has the turn by now; drop it.
            Diverged: the session moved on since `view`; drop the view and begin again.
        """
        ...

    async def publish(self, body: dict[str, Any]) -> str:
        """Leave a user message, which wakes the session; return the id of its job."""
        ...

    async def inject(self, body: dict[str, Any], *, wake: bool = False) -> None:
        """Add context that the next model call sees; by itself it starts nothing, unless `wake`."""
        ...

    async def notice(self, body: dict[str, Any], *, group: str, key: str, supersede: bool = True, ttl_ms: int | None = None) -> None:
        """Leave a notice; with `supersede` in place of one of this group and key that was not shown yet.

        `ttl_ms` is how long it matters, by the store's clock; None: until it is cleared.
        """
        ...

    async def clear(self, *, group: str, key: str) -> None:
        """Take away the notices of a group and key, shown or not."""
        ...

    async def notices(self) -> Sequence[Notice]:
        """Return the notices that matter now, shown ones first, each kind oldest first."""
        ...

    async def outcome(self, call: str, outcome: str, body: dict[str, Any]) -> Settled:
        """Give a call its outcome from outside: accepted, duplicate (the same again), conflict (another one stands) or gone (no such call)."""
        ...

    async def pending(self) -> int:
        """Return how many items that wake the session wait to be claimed; notices and injected context are not among them."""
        ...

    async def entries(self) -> Sequence[LogRecord]:
        """Return what a model may see by now, in reading order; the caller may change the bodies."""
        ...

    async def entry(self, seq: int) -> LogRecord | None:
        """Return one record of the log by its number, also one that a summary stands for; None when there is none."""
        ...


class Blobs(Protocol):
    """Files of tenants, which never change and go when their time is over.

    `turnyard.testing.blobs` is this contract as tests:

    1. Whole. What was put is read back byte by byte, in one piece or in parts; a put that failed left nothing to be seen.
    2. Apart. A file is its tenant's: for every other one it does not exist, and no id or name of anybody's leads out of the store.
    3. Named here. Ids are made by the store and cannot be guessed; a name is told back and means nothing.
    4. Bounded. A file and the files of a tenant have a largest size, and what is over it is refused before it is kept.
    """

    @property
    def max_bytes(self) -> int:
        """Return how large a file may be."""
        ...

    async def put(
        self,
        tenant: str,
        data: bytes | AsyncIterable[bytes],
        *,
        name: str = "",
        media_type: str | None = None,
        ttl_s: float | None = None,
    ) -> BlobRef:
        """Keep a file and return what is known of it.

        The type of the file is what its content shows; `media_type` refines that where it says no more than text or archive.
        `ttl_s` is how long it is kept, None, or longer than that, meaning as long as the store keeps files.

        Raises:
            TooLarge: it has more than `max_bytes`.
            QuotaExceeded: the tenant has as much as it may have.
            FilesUnavailable: the store did not take it.
        """
        ...

    async def read(self, tenant: str, file: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """Return `length` bytes of a file from `offset` on, None meaning the rest; what is out of range is cut to it.

        Raises:
            NotFound: the tenant has no such file.
            FilesUnavailable: the store did not answer.
        """
        ...

    async def stat(self, tenant: str, file: str) -> BlobRef:
        """Return what is known of a file; errors as `read`."""
        ...

    async def page(self, tenant: str, *, limit: int = 50, after: str | None = None) -> Sequence[BlobRef]:
        """Return files of a tenant, newest first; `after` is the id of the last one of the page before.

        Raises:
            FilesUnavailable: the store did not answer.
        """
        ...

    async def delete(self, tenant: str, file: str) -> None:
        """Forget a file; errors as `read`."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...


class Tracer(Protocol):
    """Who is told when a piece of a turn begins and ends: turn, build, stream_chat, tool."""

    def span(self, name: str, attributes: Mapping[str, str]) -> AbstractContextManager[object]:
        """Return what is entered when the piece begins and left when it ends; spans nest as they are entered."""
        ...
