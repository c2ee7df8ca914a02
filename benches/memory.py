"""What the server keeps, by kind of key: the sum of MEMORY USAGE, every element looked at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from benches.stack import Stack

_KINDS = {
    "head": r"s:\w+:head$",
    "inbox": r"s:\w+:(inbox|next)$",
    "log": r"h:\w+\.\d+:log$",
    "calls": r"h:\w+\.\d+:calls$",
    "job": r"j:job_",
    "index": r"idx:",
    "deadlines": r"deadlines$",
}
_KIND = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _KINDS.items()))
_PAGE = 1000


def stored_bytes(stack: Stack) -> Counter[str]:
    """Return the bytes of all keys of the shard by kind: head, inbox, log, calls, job, index, deadlines, other."""
    found: Counter[str] = Counter()
    page: list[bytes] = []
    for key in stack.redis.scan_iter("ty:{0}:*", count=_PAGE):
        page.append(key)
        if len(page) == _PAGE:
            found.update(_sizes(stack, page))
            page = []
    found.update(_sizes(stack, page))
    return found


def used_bytes(stack: Stack) -> int:
    """Return all memory the server has allocated for what it keeps."""
    return int(stack.redis.info("memory")["used_memory"])  # type: ignore[index]


def _sizes(stack: Stack, keys: Iterable[bytes]) -> Counter[str]:
    pipe = stack.redis.pipeline(transaction=False)
    names = list(keys)
    for key in names:
        pipe.execute_command("MEMORY USAGE", key, "SAMPLES", 0)
    sizes: list[Any] = pipe.execute()
    found: Counter[str] = Counter()
    for key, size in zip(names, sizes, strict=True):
        match = _KIND.match(key.decode().partition("}:")[2])
        found[(match and match.lastgroup) or "other"] += size or 0
    return found
