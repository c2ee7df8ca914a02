"""How a command reaches the API, and how one coroutine becomes its whole life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from turnyard.cli.options import api_url, settings_of

if TYPE_CHECKING:
    from turnyard.client import Client

T = TypeVar("T")


def with_client(work: Callable[[Client], Awaitable[T]], *, url: str | None, key: str | None, config: Path | None = None) -> T:
    """Run `work` with a client of the API that is meant, and return what it returns.

    Raises:
        ConfigError: the settings are wrong.
        StoreUnavailable: nobody answers there.
    """
    from turnyard.client import Client
    from turnyard.lifecycle import run

    settings = settings_of(config=config, url=url, key=key)
    secret = settings.client.api_key

    async def main() -> T:
        async with Client(api_url(settings), api_key=secret.get_secret_value() if secret else None) as client:
            return await work(client)

    return run(main())
