"""The options that several commands share, and the settings they make."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

import typer

from turnyard.errors import ConfigError

if TYPE_CHECKING:
    from turnyard.settings import Settings

LOOPBACK_URL = "http://127.0.0.1:8420"

Apps = Annotated[list[str], typer.Argument(metavar="MOD:APP...", help="Your app: `pkg.mod:app` or `path/file.py:app`.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="The API; else TURNYARD_URL, else the yard of this directory.")]
Key = Annotated[str | None, typer.Option("--key", metavar="KEY", help="Its API key; else TURNYARD_API_KEY.")]
Redis = Annotated[
    str | None, typer.Option("--redis", metavar="URL", help="The server; else REDIS_URL, else turnyard.yaml, else an embedded one.")
]
Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A turnyard.yaml; else TURNYARD_CONFIG, else the one here.")]
HealthPort = Annotated[int | None, typer.Option("--health-port", metavar="PORT", help="Serve /healthz and /readyz there.")]
HealthHost = Annotated[str | None, typer.Option("--health-host", metavar="HOST", help="On this address.")]


def settings_of(*, config: Path | None = None, url: str | None = None, key: str | None = None, redis: str | None = None) -> Settings:
    """Return the settings with what was given on the command line on top.

    Raises:
        ConfigError: a file, a variable or an option is wrong.
    """
    from turnyard.settings import load_settings

    flags: dict[str, Any] = {"client.url": url, "client.api_key": key, "redis.url": redis}
    return load_settings(config, flags=flags)


def api_url(settings: Settings) -> str:
    """Return where the API is: as configured, else where `up` in this directory serves it, else the usual port here.

    Raises:
        ConfigError: what was configured is no address of an API.
    """
    from turnyard.cli.state_dir import StateDir

    url = settings.client.url or StateDir(settings.state_dir).url() or LOOPBACK_URL
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(f"{url!r} is not the address of an API, such as {LOOPBACK_URL}: correct --url, TURNYARD_URL or client.url")
    return url
