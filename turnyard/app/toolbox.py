"""Which tools an agent has at this moment: its own, and those of its providers as they come and go.

Its own stay, and a provider's join them under names that nobody else has. They are sorted by name, so that the same
tools make the same request, byte for byte. A provider that fails or is slow costs its own tools and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from turnyard.backoff import Backoff
from turnyard.engine.effects import DAY_MS, READ_ENTRY, ToolFact
from turnyard.ports import Clock, ToolProvider, ToolSpec
from turnyard.tools.names import NameFilter
from turnyard.tools.tool import Tool

AnyTool = Tool[..., Any]

PATIENCE_S = 5.0  # how long a provider may take to list its tools
KEEP_S = 300.0  # how long the tools of a provider that fails are still offered
_RETRY_MOST_S = 60.0
_MOST_REMEMBERED = 10_000  # names that were there before, or were taken

log = logging.getLogger("turnyard.tools")


class Keepers:
    """Closes a provider once the last toolbox that uses it is closed."""

    def __init__(self) -> None:
        self._users: Counter[int] = Counter()

    @asynccontextmanager
    async def held(self, providers: Sequence[ToolProvider]) -> AsyncGenerator[None]:
        """Keep the providers open."""
        self._users.update(id(p) for p in providers)
        try:
            yield
        finally:
            for one in providers:
                self._users[id(one)] -= 1
                if not self._users[id(one)]:
                    await _close(one)


class _Source:
    """A provider, and what it listed last."""

    def __init__(self, provider: ToolProvider) -> None:
        self.provider = provider
        self.tools: tuple[AnyTool, ...] = ()
        self._seen: int | None = None
        self._listed_at = 0.0
        self._not_before = 0.0
        self._backoff = Backoff(first_s=1.0, most_s=_RETRY_MOST_S)

    def due(self, now: float, *, force: bool) -> bool:
        """Tell whether to list again: something may have changed, or somebody misses a tool. One that fails is left alone a while."""
        if now < self._not_before:
            return False
        return force or self._seen is None or self._seen != count_of(self.provider)

    @property
    def failing(self) -> bool:
        """Tell whether it failed since it last listed its tools."""
        return self._backoff.failing

    def listed(self, tools: Sequence[AnyTool], seen: int, now: float) -> None:
        """Take a new list."""
        self.tools, self._seen, self._listed_at, self._not_before = tuple(tools), seen, now, 0.0
        self._backoff.reset()

    def failed(self, now: float) -> None:
        """Keep the last list for a while, and try again later, each time later than before."""
        self._seen = None
        self._not_before = now + self._backoff.next_s()
        if now - self._listed_at > KEEP_S:
            self.tools = ()


class Toolbox:
    """The tools of one agent. `tools` and `facts` hold what there is now, by name in the order of names; they change in place.

    `own` are the agent's own tools. `names` says which may be used at all. `patience_s` is how long a provider may take to answer.
    """

    def __init__(
        self,
        own: Iterable[AnyTool],
        providers: Sequence[ToolProvider] = (),
        *,
        clock: Clock,
        names: NameFilter | None = None,
        keepers: Keepers | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.tools: dict[str, AnyTool] = {}
        self.facts: dict[str, ToolFact] = {}
        self._own = {one.name: one for one in own}
        self._sources = tuple(_Source(p) for p in providers)
        self._clock = clock
        self._names = names or NameFilter()
        self._keepers = keepers or Keepers()
        self._patience_s = patience_s
        self._specs: tuple[ToolSpec, ...] = ()
        self._met: set[str] = set()
        self._dropped: set[tuple[str, str]] = set()
        self._listing: asyncio.Task[None] | None = None
        self._arrange()

    @property
    def comes_and_goes(self) -> bool:
        """Tell whether there are tools that may be missing now and there later."""
        return bool(self._sources)

    def get(self, name: str) -> AnyTool | None:
        """Return the tool of this name, None when there is none now."""
        return self.tools.get(name)

    def visible(self) -> tuple[ToolSpec, ...]:
        """Return what a model is offered, sorted by name."""
        return self._specs

    def absence(self, name: str) -> str:
        """Return why there is no tool of this name, for the model to read."""
        if not self._names.has(name):
            return f"the tool {name!r} is not available"
        return f"there is no tool {name!r}{' any more' if name in self._met else ''}"

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator[Toolbox]:
        """List what the providers have; keep them open meanwhile."""
        async with self._keepers.held([s.provider for s in self._sources]):
            try:
                await self.refresh()
                yield self
            finally:
                if self._listing is not None:
                    self._listing.cancel()

    async def offer(self) -> Sequence[ToolSpec]:
        """Return what a model is offered now, after looking at what changed."""
        await self.refresh()
        return self._specs

    async def look_up(self, names: Sequence[str]) -> None:
        """See what changed, and ask the providers once more if one of these names is not known."""
        await self.refresh()
        if any(name not in self.tools and name != READ_ENTRY and self._names.has(name) for name in names):
            await self.refresh(force=True)

    async def refresh(self, *, force: bool = False) -> None:
        """Ask those providers whose list may have changed, with `force` all of them; never raises but for cancellation."""
        now = self._clock.monotonic()
        due = [source for source in self._sources if source.due(now, force=force)]
        if not due:
            return
        if self._listing is None or self._listing.done():
            self._listing = asyncio.ensure_future(self._list(due))
        # whoever else needs it waits for the same answer, and one that is cancelled does not take it from them
        await asyncio.shield(self._listing)

    async def _list(self, due: Sequence[_Source]) -> None:
        await asyncio.gather(*(self._list_one(source) for source in due))
        self._arrange()

    async def _list_one(self, source: _Source) -> None:
        try:
            seen = count_of(source.provider)
            tools = await _answer(source.provider, self._patience_s)
        except Exception as error:  # noqa: BLE001 - a provider is a stranger's code
            fields = {"provider": source.provider.name, "reason": f"{type(error).__name__}: {error}"}
            level = logging.DEBUG if source.failing else logging.WARNING  # it may be away for days
            log.log(level, "a provider lists no tools, it is asked again later", extra=fields)
            source.failed(self._clock.monotonic())
        else:
            if source.failing:
                log.info("a provider lists its tools again", extra={"provider": source.provider.name})
            source.listed(tools, seen, self._clock.monotonic())

    def _arrange(self) -> None:
        found = {name: one for name, one in self._own.items() if self._names.has(name)}
        for source in self._sources:
            for one in self._admitted(source, found):
                found[one.name] = one
        for remembered in (self._met, self._dropped):
            if len(remembered) > _MOST_REMEMBERED:
                remembered.clear()
        # in place: the tables that engines hold read through them
        self.tools.clear()
        self.tools.update(sorted(found.items()))
        self.facts.clear()
        self.facts.update({name: fact_of(one) for name, one in self.tools.items()})
        self._specs = tuple(one.spec() for one in self.tools.values())
        self._met.update(self.tools)

    def _admitted(self, source: _Source, found: dict[str, AnyTool]) -> Iterator[AnyTool]:
        """Yield those of a provider's tools that are in nobody's way."""
        for one in sorted(source.tools, key=lambda t: (t.name, t.given)):
            if one.name not in found and one.name not in self._own:
                if self._names.has(one.name):
                    yield one
                continue
            drop = (source.provider.name, one.given)
            if drop not in self._dropped:
                self._dropped.add(drop)
                log.warning("a tool is left out, its name is taken", extra={"provider": drop[0], "tool": one.name, "given": one.given})


def fact_of(one: AnyTool) -> ToolFact:
    """Return what the engine has to know of a tool. A parked call waits as long as the tool was declared to."""
    bounded = one.kind == "lift" or one.lift_after is not None
    waits = one.park or (one.limit if bounded else None)
    timeout_ms = int(waits.total_seconds() * 1000) if waits else DAY_MS
    timeout = timeout_ms if one.kind != "plain" or bounded else None
    return ToolFact(one.kind, one.wait, one.idempotent, one.queue, timeout, one.alone, one.resolver is not None)


def count_of(provider: ToolProvider) -> int:
    """Return the provider's count of changes; one that cannot tell has none."""
    try:
        return provider.changed
    except Exception:  # noqa: BLE001 - a provider is a stranger's code
        return 0


async def _answer(provider: ToolProvider, patience_s: float) -> Sequence[AnyTool]:
    """Return the provider's list; one that is too slow is left behind, also when it does not heed being cancelled."""
    asked = asyncio.ensure_future(provider.list_tools())
    try:
        await asyncio.wait({asked}, timeout=patience_s)
        if not asked.done():
            raise TimeoutError(f"no answer after {patience_s:g} s")
        if asked.cancelled():
            raise RuntimeError("it was cancelled")
    finally:
        asked.cancel()
    tools = asked.result()
    for one in tools:
        if not isinstance(one, Tool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{one!r} is no tool")
    return tools


async def _close(provider: ToolProvider) -> None:
    try:
        await provider.aclose()
    except Exception as error:  # noqa: BLE001 - as above; whoever else closes goes on
        log.warning("a provider did not close", extra={"provider": provider.name, "reason": f"{type(error).__name__}: {error}"})
