"""What a deployment is configured with, and where each value comes from.

A flag beats the environment, the environment beats turnyard.yaml, the file beats the defaults. Every key is known:
an unknown one is refused with its path and the nearest known name, because a misspelt limit is no limit. `X_file`
beside a key `X` means that the value is in that file. Code elsewhere reads settings, never the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from turnyard.errors import ConfigError
from turnyard.settings.sections import Settings
from turnyard.settings.sources import nearest_names, read_sources

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from turnyard.settings.sources import Sources

__all__ = ["Settings", "load_settings"]


def load_settings(
    config: str | Path | None = None, *, flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None
) -> Settings:
    """Return the settings of this process.

    `config` is the path of a turnyard.yaml; without it TURNYARD_CONFIG, then ./turnyard.yaml where that exists.
    `flags` maps dotted keys ("redis.url") to values given on the command line; a value of None was not given.

    Raises:
        ConfigError: a file cannot be read, a key is unknown or a value is wrong; the message names every such key.
    """
    sources = read_sources(config, flags or {}, os.environ if environ is None else environ)
    try:
        return Settings.model_validate(sources.values, context={"base_dir": sources.base_dir})
    except ValidationError as error:
        faults = [_fault(detail, sources) for detail in error.errors()]
        raise ConfigError("\n".join(dict.fromkeys(faults))) from None


def _fault(detail: ErrorDetails, sources: Sources) -> str:
    loc = detail["loc"]
    where = f"{sources.origin(loc)}: {dotted(loc)}"
    if detail["type"] == "extra_forbidden":
        near = nearest_names(Settings, loc)
        return f"{where}: unknown key" + (
            f"; did you mean {' or '.join(near)}?" if near else "; `turnyard config schema` lists the known ones"
        )
    return f"{where}: {detail['msg'].removeprefix('Value error, ')}"


def dotted(loc: tuple[int | str, ...]) -> str:
    """Return a key's path as people write it: `routes[0].trigger`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
