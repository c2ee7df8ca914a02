"""What is stored where, and for how long.

Every key of a shard starts with `ty:{tag}:`; the tag puts all of them into one cluster slot, so that one script may
touch any of them. Control keys start with `ty:{ctl}:`. Nothing a user wrote is part of a key, but for tenant, agent
and pool names, whose grammar admits no character that means anything to Redis. `LIFETIMES` says for each key when it
goes; a key that matches no row is a leak.
"""

from __future__ import annotations

from dataclasses import dataclass

SLOTS = 16384
CONTROL = "ty:{ctl}:"
LAYOUT = CONTROL + "layout"
AGENTS = CONTROL + "agents"
SERIALS = CONTROL + "serials"
PLAN = CONTROL + "plan"
COORDINATOR = CONTROL + "coordinator"
PROCESSES = CONTROL + "processes"

LIFETIMES: dict[str, str] = {
    r"ty:\{ctl\}:(layout|agents|serials|plan)": "kept",
    r"ty:\{ctl\}:coordinator": "TTL a lease",
    r"ty:\{ctl\}:processes": "members go with their process",
    r"ty:\{[^}]*\}:ingress": "drained by dispatch",
    r"ty:\{[^}]*\}:(flows|running|workers|fleet|deadlines|limits|blocked|iso|quarantine)": "members go with what they name",
    r"ty:\{[^}]*\}:f:[^:]+": "empty when its sessions run",
    r"ty:\{[^}]*\}:(blocked|run):.+": "empty when nothing waits or runs",
    r"ty:\{[^}]*\}:(serve|reads):.+": "members go with their worker",
    r"ty:\{[^}]*\}:turns:[^@]+@0": "taken by workers; stale ones refused by begin",
    r"ty:\{[^}]*\}:turns:.+": "TTL an hour after the last assignment",
    r"ty:\{[^}]*\}:w:[0-9a-f]+(:ctl|:why)?": "goes with its incarnation",
    r"ty:\{[^}]*\}:offer:.+": "TTL a third of a lease",
    r"ty:\{[^}]*\}:out:.+": "members go when all is sent",
    r"ty:\{[^}]*\}:dead": "capped",
    r"ty:\{[^}]*\}:idx:.+": "members go with their session",
    r"ty:\{[^}]*\}:ap:.+": "members go when people have decided, or nobody waits any more",
    r"ty:\{[^}]*\}:s:\w+:(head|inbox|next)": "as long as the session",
    r"ty:\{[^}]*\}:h:\w+\.\d+:(log|calls)": "as long as the session",
    r"ty:\{[^}]*\}:h:\w+\.\d+:live": "TTL 60 s",
    r"ty:\{[^}]*\}:x:[0-9a-f]+": "TTL 60 s",
    r"ty:\{[^}]*\}:j:job_\w+": "TTL from its end",
    r"ty:\{[^}]*\}:d:\d+:\d+": "TTL 2 days",
    r"ty:\{[^}]*\}:file:[\w-]+:file_\w+(:data)?": "TTL retention.files; content without a card ten minutes",
    r"ty:\{[^}]*\}:files:[\w-]+": "TTL of its youngest file; members go when they have expired and something is put",
}


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one shard. `tag` is what stands between the braces."""

    tag: str

    @property
    def prefix(self) -> str:
        """What every key of the shard starts with."""
        return f"ty:{{{self.tag}}}:"

    @property
    def ingress(self) -> str:
        """Accepted events in order."""
        return f"{self.prefix}ingress"

    @property
    def limits(self) -> str:
        """Limits, capacity and the clock of shares."""
        return f"{self.prefix}limits"

    def head(self, session: str) -> str:
        """A session's head; `session` is its key part."""
        return f"{self.prefix}s:{session}:head"

    def inbox(self, session: str) -> str:
        """What joins the session's open turn."""
        return f"{self.prefix}s:{session}:inbox"

    def next(self, session: str) -> str:
        """What waits for a turn of its own."""
        return f"{self.prefix}s:{session}:next"

    def log(self, store: str) -> str:
        """A store's log; `store` is session key part and ordinal."""
        return f"{self.prefix}h:{store}:log"

    def calls(self, store: str) -> str:
        """A store's call rows."""
        return f"{self.prefix}h:{store}:calls"

    def live(self, store: str) -> str:
        """A store's deltas."""
        return f"{self.prefix}h:{store}:live"

    def job(self, job: str) -> str:
        """A job row."""
        return f"{self.prefix}j:{job}"

    def turns(self, pool_agent_serial: str) -> str:
        """Assignments for one pool:agent@serial."""
        return f"{self.prefix}turns:{pool_agent_serial}"

    def owned(self, owner: str) -> str:
        """What an incarnation runs."""
        return f"{self.prefix}w:{owner}"

    def control_list(self, owner: str) -> str:
        """Cancels pushed to an incarnation."""
        return f"{self.prefix}w:{owner}:ctl"

    def index(self, tenant: str) -> str:
        """A tenant's sessions by last arrival."""
        return f"{self.prefix}idx:{tenant}"

    def file(self, folder: str, file: str) -> str:
        """The card of a stored file; with `:data` behind it the content."""
        return f"{self.prefix}file:{folder}:{file}"

    def files(self, folder: str) -> str:
        """The stored files of one tenant."""
        return f"{self.prefix}files:{folder}"

    def asked(self, tenant: str) -> str:
        """What of a tenant waits for people, by the time since when."""
        return f"{self.prefix}ap:{tenant}"


def crc16(data: bytes) -> int:
    """Return CRC16/XMODEM of `data`: how a cluster maps a hash tag to a slot."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = ((crc << 1) ^ 0x1021) & 0xFFFF if crc & 0x8000 else (crc << 1) & 0xFFFF
    return crc


def slot_of(tag: str) -> int:
    """Return the cluster slot of every key with this hash tag."""
    return crc16(tag.encode()) % SLOTS


def shard_tags(shards: int) -> list[str]:
    """Return one hash tag per shard, chosen so that shard i falls into the i-th of `shards` equal parts of the slots."""
    tags: list[str] = []
    for n in range(shards):
        low, high = SLOTS * n // shards, SLOTS * (n + 1) // shards
        tag, suffix = str(n), 0
        while not low <= slot_of(tag) < high:
            suffix += 1
            tag = f"{n}-{suffix}"
        tags.append(tag)
    return tags
