"""How things are named.

User-made ids (tenant, session) never become part of a key as they are: they are length-prefixed and hashed, so
no two different pairs meet and no character is special (spec: decisions, "Ids"). Ids that Turnyard makes are
random, except a call id and a keyed job id, which are hashes so that a replay makes the same one.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from functools import lru_cache

_PREFIX_BYTES = 8


def _digest(*parts: str, size: int = 16) -> bytes:
    h = hashlib.blake2b(digest_size=size)
    for part in parts:
        raw = part.encode("utf-8", "surrogatepass")
        h.update(len(raw).to_bytes(_PREFIX_BYTES, "big"))
        h.update(raw)
    return h.digest()


def _b32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()


@lru_cache(maxsize=16_384)
def session_key(tenant: str, session: str) -> str:
    """Return the key part of a session: 26 characters, the same for the same (tenant, effective id)."""
    return _b32(_digest(tenant, session))


def shard_of(key: str, shards: int) -> int:
    """Return which of `shards` shards owns the session with this key part."""
    if shards == 1:
        return 0
    padded = key.upper() + "=" * (-len(key) % 8)
    return int.from_bytes(base64.b32decode(padded)[:8], "big") % shards


def store_key(session: str, ordinal: int) -> str:
    """Return the key part of a session's history number `ordinal` (0 first, one more with each /new)."""
    return f"{session}.{ordinal}"


def store_session(store: str) -> str:
    """Return the session key part a store belongs to."""
    return store.partition(".")[0]


def new_job_id(shard: int) -> str:
    """Return a fresh job id; its first two digits after `job_` are the shard in hexadecimal."""
    return f"job_{shard:02x}{_b32(secrets.token_bytes(10))}"


def keyed_job_id(shard: int, tenant: str, session: str, key: str) -> str:
    """Return the job id that an idempotency key stands for: the job row is the record of the key."""
    return f"job_{shard:02x}{_b32(_digest(tenant, session, key, size=10))}"


def job_shard(job: str) -> int | None:
    """Return the shard a job id names, or None when it is not a job id."""
    if not job.startswith("job_") or len(job) != 22 or not job.isascii() or not job[4:].isalnum():
        return None
    try:
        return int(job[4:6], 16)
    except ValueError:
        return None


def keyed_session(tenant: str, key: str) -> str:
    """Return the session id of a request that has an idempotency key and names no session."""
    return f"k-{_b32(_digest(tenant, key))}"


def keyed_event(kind: str, tenant: str, session: str, key: str) -> str:
    """Return the id of a control or notice that was sent with an idempotency key: the same for a repeat."""
    return _b32(_digest(kind, tenant, session, key, size=10))


def new_session_id() -> str:
    """Return a fresh session id, for a request that names none."""
    return f"s-{_b32(secrets.token_bytes(10))}"


def new_turn_id() -> str:
    """Return a fresh turn id; random, so that a rewound server cannot mint it twice."""
    return f"turn_{_b32(secrets.token_bytes(10))}"


def new_owner_id() -> str:
    """Return the id of a worker incarnation: 128 random bits, one per process start."""
    return secrets.token_hex(16)


def call_id(store: str, turn: str, step: int, index: int) -> str:
    """Return the id of call number `index` that the model made in `step` of `turn`."""
    return f"call_{_b32(_digest(store, turn, str(step), str(index), size=10))}"


def wait_id(store: str, turn: str, step: int) -> str:
    """Return the id of the row that holds `turn` for a while after `step`."""
    return f"wait_{_b32(_digest(store, turn, str(step), size=10))}"


def child_session(tenant: str, session: str, call: str) -> str:
    """Return the session that works for a call of kind child: one for each call, the same however often it is started."""
    return f"c-{_b32(_digest(tenant, session, call))}"


def child_parent(shard: int, store: str, call: str) -> str:
    """Return how a child's job names the call that it answers; read by `read_child_parent`."""
    return f"{shard}.{store}!{call}"


def read_child_parent(parent: str) -> tuple[int, str, str]:
    """Return (shard, store, call) of what `child_parent` made."""
    where, _, call = parent.partition("!")
    shard, _, store = where.partition(".")
    return int(shard), store, call


def idempotency_key(tenant: str, session: str, turn: str, call: str) -> str:
    """Return the key a tool passes on to what it calls; the same on each attempt of the same call."""
    return _b32(_digest(tenant, session, turn, call))


def new_call_token(shard: int, store: str, call: str) -> tuple[str, str]:
    """Return (token for the outside world, hash of its secret for the row).

    The token carries where its row is, so that it needs no index and garbage costs no read; the secret is 256 bits.
    """
    secret = secrets.token_bytes(32)
    return _call_token(secret, shard, store, call), hash_secret(secret)


def hash_secret(secret: bytes) -> str:
    """Return the form in which a row keeps the secret of its token."""
    return hashlib.blake2b(secret, digest_size=16).hexdigest()


def read_call_token(token: str) -> tuple[int, str, str, str] | None:
    """Return (shard, store, call, hash of the secret) of a token, or None when it is not one."""
    if len(token) > 256 or not token.isascii():
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        shard, store, call = raw[32:].decode("ascii").split("|")
        number = int(shard)
    except ValueError:
        return None
    # One token, one spelling: what was not made by `new_call_token` is none of ours.
    if _call_token(raw[:32], number, store, call) != token or number < 0:
        return None
    return number, store, call, hash_secret(raw[:32])


def _call_token(secret: bytes, shard: int, store: str, call: str) -> str:
    return base64.urlsafe_b64encode(secret + f"{shard}|{store}|{call}".encode()).decode().rstrip("=")


def body_hash(body: bytes) -> str:
    """Return the hash by which a repeated request is compared with the first one."""
    return hashlib.blake2b(body, digest_size=12).hexdigest()
