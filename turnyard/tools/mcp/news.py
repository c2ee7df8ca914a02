"""What an MCP server says without being asked, and which of it becomes news for sessions.

Only what the app asked for is passed on, to the sessions that follow the server. What comes in quick succession is
gathered, and of one thing only the newest is told: a chatty server costs a session one line a second at the most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import mcp_types as types
import orjson
from mcp.client.extension import ClientExtension, NotificationBinding
from pydantic import BaseModel, ConfigDict

from turnyard.errors import TurnyardError
from turnyard.ports import Clock
from turnyard.text import bound
from turnyard.tools.mcp.followers import Followers, Notify, Wanted

GATHER_S = 1.0
MOST_KEYS = 32
_MOST_TEXT_BYTES = 2_048
_MESSAGES, _RESOURCES = "messages", "resources"

log = logging.getLogger("turnyard.tools")


class _AnyParams(BaseModel):
    model_config = ConfigDict(extra="allow")


class News:
    """Gathers what one server says and tells it to those that follow."""

    def __init__(self, server: str, wanted: Wanted, followers: Followers, clock: Clock) -> None:
        self._server = server
        self._wanted = wanted
        self._followers = followers
        self._clock = clock
        self._waiting: dict[str, str] = {}
        self._teller: asyncio.Task[None] | None = None

    def take(self, notification: types.ServerNotification) -> None:
        """Take in a notification of the protocol."""
        match notification:
            case types.ResourceUpdatedNotification(params=params) if str(params.uri) in self._wanted.uris:
                self._add(str(params.uri), f"resource {params.uri} has changed")
            case types.ResourceListChangedNotification() if self._wanted.resources:
                self._add(_RESOURCES, "its list of resources has changed")
            case types.LoggingMessageNotification(params=params) if self._wanted.messages:
                text = params.data if isinstance(params.data, str) else _json(params.data)
                self._add(f"{_MESSAGES}/{params.logger or ''}", f"[{params.level}] {text}")
            case _:
                pass

    def extensions(self) -> Sequence[ClientExtension]:
        """Return what has the SDK listen for notifications of the server's own."""
        return (_Own(self, self._wanted.methods),) if self._wanted.methods else ()

    async def take_own(self, method: str, params: BaseModel) -> None:
        """Take in a notification of the server's own."""
        said = params.model_dump(mode="json", exclude_none=True)
        said.pop("_meta", None)
        self._add(method, f"{method} {_json(said)}")

    def _add(self, key: str, text: str) -> None:
        key = "".join(c for c in key if c.isprintable())[:255]
        if key not in self._waiting and len(self._waiting) >= MOST_KEYS:
            return
        self._waiting[key] = bound(f"{self._server}: {text}", _MOST_TEXT_BYTES)
        if self._teller is None or self._teller.done():
            self._teller = asyncio.create_task(self._tell())

    async def _tell(self) -> None:
        while self._waiting:
            await self._clock.sleep(GATHER_S)
            waiting, self._waiting = self._waiting, {}
            for notify in self._followers.current():
                for key, text in waiting.items():
                    await self._one(notify, key, text)

    async def _one(self, notify: Notify, key: str, text: str) -> None:
        try:
            await notify(text, f"mcp:{self._server}", key)
        except TurnyardError as error:
            log.warning("news of a server did not reach a session", extra={"provider": self._server, "reason": str(error)})

    async def aclose(self) -> None:
        """Stop telling."""
        if self._teller is not None:
            self._teller.cancel()
            await asyncio.wait({self._teller})


class _Own(ClientExtension):
    identifier = "turnyard/notices"

    def __init__(self, news: News, methods: Sequence[str]) -> None:
        self._news = news
        self._methods = methods

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        return tuple(NotificationBinding(method=m, params_type=_AnyParams, handler=self._handler(m)) for m in self._methods)

    def _handler(self, method: str) -> Any:
        async def heard(params: BaseModel) -> None:
            await self._news.take_own(method, params)

        return heard


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
