"""Which model a spec like `openai:NAME` stands for.

A provider is opened once per process and spec; it is imported only then, so a worker pays for what it uses.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turnyard.errors import ConfigError
from turnyard.ports import Clock, Provider

KNOWN = ("openai:NAME", "scripted:FILE")


def open_provider(
    spec: str,
    *,
    base_dir: Path,
    settings: Mapping[str, Any] | None = None,
    clock: Clock,
) -> tuple[Provider, str]:
    """Return the provider a spec names and the name of the model behind it.

    `base_dir` is where relative script files are looked for: the folder of the app file. `settings` are the
    provider's own: for openai base_url, api_key, connect_timeout_s, stall_timeout_s, silence_timeout_s.

    Raises:
        ConfigError: the prefix is unknown, a setting is wrong, or the script cannot be used.
    """
    prefix, found, name = spec.partition(":")
    if found and name and prefix == "openai":
        from turnyard.providers.openai_chat import OpenAIChat, read_settings

        return OpenAIChat(read_settings(settings or {}), clock=clock), name
    if found and name and prefix == "scripted":
        from turnyard.providers.scripted import Scripted

        return Scripted(base_dir / name, clock=clock), name
    raise ConfigError(f"model {spec!r} is not known; use one of {', '.join(KNOWN)}")
