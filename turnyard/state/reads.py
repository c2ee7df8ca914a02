"""Plain commands, so that a server that is away, or can do nothing for now, is one error everywhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis import exceptions as rx

from turnyard.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Generator


_FOR_NOW = (rx.OutOfMemoryError, rx.ReadOnlyError, rx.ClusterDownError, rx.TryAgainError)


@contextmanager
def reading(what: str) -> Generator[None]:
    """Turn what a client raises while it reads or writes `what` into StoreUnavailable, where trying again may help."""
    try:
        yield
    except _FOR_NOW as error:
        raise StoreUnavailable(f"{what}: the Redis server is full or not ready ({error}); give it room, or wait") from error
    except rx.ResponseError as error:
        # The disk of its log is full, or its replicas are away: redis-py has no class for either.
        if not str(error).startswith(("MISCONF", "NOREPLICAS")):
            raise
        raise StoreUnavailable(f"{what}: the Redis server takes no writes now ({error}); see its log") from error
    except (TimeoutError, rx.ConnectionError, rx.TimeoutError, rx.BusyLoadingError, OSError) as error:
        raise StoreUnavailable(f"{what} could not be read: the Redis server gave no answer ({error}); try again in a moment") from error


def text(value: bytes | str | None) -> str:
    """Return a reply as text, nothing as an empty one."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else (value or "")


def pairs(flat: list[bytes]) -> dict[str, bytes]:
    """Return a flat field, value, … reply as a dict."""
    return {text(flat[i]): flat[i + 1] for i in range(0, len(flat), 2)}
