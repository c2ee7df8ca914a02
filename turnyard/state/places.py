"""Where a server is that may be another one tomorrow: the master of a slot, or the primary of a Sentinel service.

A connection asks for its place each time it connects, and says so when the server it found turned out to be the wrong
one. What was found is kept until then, so asking costs nothing; whoever asks first asks for everybody.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Protocol

from redis import exceptions as rx

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from turnyard.state.target import Address


# What a server says that is not, or not now, the one to ask; UNBLOCKED reaches a reader whose server was demoted.
_ELSEWHERE = ("READONLY", "MOVED ", "ASK ", "CLUSTERDOWN", "MASTERDOWN", "UNBLOCKED")


def is_elsewhere(reply: object) -> bool:
    """Tell whether a reply is an error which means that another server, or the same one later, must be asked."""
    return isinstance(reply, rx.ReadOnlyError) or (isinstance(reply, rx.ResponseError) and str(reply).startswith(_ELSEWHERE))


class Place(Protocol):
    """Where to connect. `masters_only`: what is found must say that it is a master before it is used."""

    masters_only: bool

    async def find(self) -> Address:
        """Return the address of the server as far as is known; ConnectionError when nobody can tell."""
        ...

    def doubt(self) -> None:
        """Ask again before the next use."""
        ...


class _Lookup:
    """Something looked up once for all who ask, and again after a doubt."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._sure = False

    def doubt(self) -> None:
        self._sure = False

    async def _refresh(self) -> None:
        if self._sure:
            return
        async with self._lock:
            if not self._sure:
                await self._look()
                self._sure = True

    async def _look(self) -> None:
        raise NotImplementedError


class Sentinels(_Lookup):
    """The primary of one service, as its Sentinels name it."""

    masters_only = True

    def __init__(self, seeds: Iterable[Address], service: str, ask: Callable[..., Awaitable[Any]]) -> None:
        super().__init__()
        self._seeds = list(seeds)
        self._service = service
        self._ask = ask
        self._known: Address = ("", 0)

    def __str__(self) -> str:
        return f"the primary of {self._service}"

    async def find(self) -> Address:
        """Return where the primary is; the Sentinel that answered last is asked first."""
        await self._refresh()
        return self._known

    async def _look(self) -> None:
        why = "it knows no such service"
        for seed in list(self._seeds):
            try:
                found = await self._ask(seed, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._service)
            except (rx.RedisError, OSError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                continue
            if found:
                self._known = (found[0].decode(), int(found[1]))
                self._seeds.remove(seed)
                self._seeds.insert(0, seed)
                return
        raise rx.ConnectionError(f"no Sentinel says where {self._service} is ({why})")


class ClusterMap(_Lookup):
    """Which master serves which slot of a cluster."""

    def __init__(self, seeds: Iterable[Address], ask: Callable[..., Awaitable[Any]]) -> None:
        super().__init__()
        self._seeds = list(seeds)
        self._ask = ask
        self._ranges: list[tuple[int, int, Address]] = []

    async def master_of(self, slot: int) -> Address:
        """Return the master that serves `slot`; ConnectionError while none does."""
        await self._refresh()
        for low, high, address in self._ranges:
            if low <= slot <= high:
                return address
        self.doubt()
        raise rx.ConnectionError(f"no master of the cluster serves slot {slot}")

    async def masters(self) -> list[Address]:
        """Return every master that serves slots."""
        await self._refresh()
        return sorted({address for _, _, address in self._ranges})

    async def _look(self) -> None:
        known = {address for _, _, address in self._ranges}
        # In another order each time: a node that was cut off for a while believes in the past.
        nodes = random.sample(sorted(known), len(known)) + [seed for seed in self._seeds if seed not in known]
        why = "it names no node"
        for node in nodes:
            try:
                reply = await self._ask(node, "CLUSTER", "SLOTS")
            except (rx.RedisError, OSError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                continue
            self._ranges = [(low, high, (master[0].decode() if master[0] else node[0], int(master[1]))) for low, high, master, *_ in reply]
            return
        raise rx.ConnectionError(f"no node of the cluster answers ({why})")


class SlotPlace:
    """The master of one slot."""

    masters_only = False  # a replica sends whoever asks it to its master

    def __init__(self, cluster: ClusterMap, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot

    def __str__(self) -> str:
        return f"the master of slot {self._slot}"

    async def find(self) -> Address:
        """Return where the slot's master is."""
        return await self._cluster.master_of(self._slot)

    def doubt(self) -> None:
        """Read the map again before the next use."""
        self._cluster.doubt()
