"""What waits for people, in the hands of a program that decides for them: one face for every client.

A decision may be sent again when its answer was lost: the first one stands, and the same one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import quote

from pydantic import ConfigDict

from turnyard.wire.shapes import ApprovalShape

if TYPE_CHECKING:
    from turnyard.client.connection import Connection

_ROOT = "/v1/approvals"

JsonObject = dict[str, Any]
T = TypeVar("T")
Scope = Literal["once", "session"]
Choice = str | int


class Approval(ApprovalShape):
    """A call that waits for a decision, or a question; `decided` says what became of it."""

    # A newer server may say more than this client knows.
    model_config = ConfigDict(extra="ignore")

    @property
    def raw(self) -> JsonObject:
        """Return the same as JSON: every answer of a client has it under this name."""
        return self.model_dump(mode="json")


class ApprovalDoor(Protocol):
    """What `Approvals` asks of the client it belongs to, in JSON as the API has it."""

    async def page(self, *, session: str | None, limit: int, after: str | None) -> JsonObject:
        """Return one page of what waits."""
        ...

    async def read(self, approval: str) -> JsonObject:
        """Return an approval."""
        ...

    async def decide(self, approval: str, body: Mapping[str, Any]) -> JsonObject:
        """Decide an approval and return it."""
        ...


class ApprovalRoutes:
    """The same over the API."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def page(self, *, session: str | None, limit: int, after: str | None) -> JsonObject:
        """Return one page of what waits."""
        given = {"session": session, "limit": limit, "after": after}
        return await self._connection.get(_ROOT, {name: value for name, value in given.items() if value is not None})

    async def read(self, approval: str) -> JsonObject:
        """Return an approval."""
        return await self._connection.get(f"{_ROOT}/{quote(approval, safe='')}")

    async def decide(self, approval: str, body: Mapping[str, Any]) -> JsonObject:
        """Decide an approval and return it."""
        return await self._connection.post(f"{_ROOT}/{quote(approval, safe='')}", body)


class Approvals:
    """The approvals and questions of a client's tenant."""

    def __init__(self, door: ApprovalDoor) -> None:
        self._door = door

    async def list(self, *, session: str | None = None, limit: int = 50) -> list[Approval]:
        """Return up to `limit` of what waits for people, oldest first; `session` only what one session waits for.

        Raises:
            NotFound: there is no such session.
        """
        found: list[Approval] = []
        after: str | None = None
        while len(found) < limit:
            page = await self._door.page(session=session, limit=min(100, limit - len(found)), after=after)
            found += [Approval.model_validate(item) for item in page["data"]]
            after = page["next"]
            if after is None:
                break
        return found

    async def get(self, approval: str) -> Approval:
        """Return an approval or a question by its id.

        Raises:
            NotFound: there is none of this tenant.
        """
        return Approval.model_validate(await self._door.read(approval))

    async def allow(
        self,
        approval: str,
        *,
        user: str,
        scope: Scope = "once",
        input: Mapping[str, Any] | None = None,  # noqa: A002 - the API's own word
        reason: str | None = None,
    ) -> Approval:
        """Let a call run, with `input` in place of the model's arguments where that is given.

        `user` is who decides; with scope session the tool needs no approval in this session any more, where that is offered.

        Raises:
            NotApprover: this user may not decide it.
            AlreadyDecided: it was decided otherwise, or by somebody else; the first decision stands.
            Expired: its time is over.
            InvalidInput: the arguments do not fit the tool.
        """
        given = {"scope": None if scope == "once" else scope, "input": None if input is None else dict(input), "reason": reason}
        return await self._decide(approval, {"decision": "allow", "user": user, **given})

    async def deny(self, approval: str, *, user: str, reason: str | None = None) -> Approval:
        """Refuse a call; the model is told `reason` and goes on without it. Raises as `allow`."""
        return await self._decide(approval, {"decision": "deny", "user": user, "reason": reason})

    async def answer(self, approval: str, answer: Choice | Sequence[Choice], *, user: str) -> Approval:
        """Answer a question: an option by its number (from 1) or its label, several in a list, or free text. Raises as `allow`."""
        said = answer if isinstance(answer, str | int) else [*answer]
        return await self._decide(approval, {"decision": "answer", "user": user, "answer": said})

    async def _decide(self, approval: str, body: Mapping[str, Any]) -> Approval:
        given = {name: value for name, value in body.items() if value is not None}
        return Approval.model_validate(await self._door.decide(approval, given))


class SyncApprovals:
    """As `Approvals`, for code without an event loop; `wait_for` runs a coroutine and returns what it returns."""

    def __init__(self, approvals: Approvals, wait_for: Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]) -> None:
        self._approvals = approvals
        self._wait_for = wait_for

    def list(self, *, session: str | None = None, limit: int = 50) -> list[Approval]:
        """Return what waits for people, oldest first."""
        return self._wait_for(lambda: self._approvals.list(session=session, limit=limit))

    def get(self, approval: str) -> Approval:
        """Return an approval or a question by its id."""
        return self._wait_for(lambda: self._approvals.get(approval))

    def allow(self, approval: str, *, user: str, **options: Any) -> Approval:
        """Let a call run; as `Approvals.allow`."""
        return self._wait_for(lambda: self._approvals.allow(approval, user=user, **options))

    def deny(self, approval: str, *, user: str, reason: str | None = None) -> Approval:
        """Refuse a call; as `Approvals.deny`."""
        return self._wait_for(lambda: self._approvals.deny(approval, user=user, reason=reason))

    def answer(self, approval: str, answer: Choice | Sequence[Choice], *, user: str) -> Approval:
        """Answer a question; as `Approvals.answer`."""
        return self._wait_for(lambda: self._approvals.answer(approval, answer, user=user))
