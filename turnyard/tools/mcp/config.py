"""How a file with `mcpServers`, as many clients use it, is read.

What such a file says to other clients and means nothing here is named in the log, and left out.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import orjson

from turnyard.errors import ConfigError
from turnyard.tools.names import sanitised
from turnyard.tools.secrets import Secret, secret

_TAKEN = ("allow", "deny", "approval", "timeout", "cwd", "wait", "idempotent", "bind", "notices", "tasks")
_READ = {*_TAKEN, "command", "args", "env", "url", "headers", "type", "transport", "disabled"}
_HTTP = {"http", "streamable-http", "streamable_http", "streamableHttp", None}
_REFERENCE = re.compile(r"(?:env:([A-Za-z_][A-Za-z0-9_]*)|\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\})\Z")

log = logging.getLogger("turnyard.tools")


@dataclass(frozen=True, slots=True)
class Entry:
    """One server of the file: what to reach, and how."""

    target: str | list[str]
    options: dict[str, Any]


def read_config(config: str | Path | Mapping[str, Any]) -> list[Entry]:
    """Return the servers of a file, or of what such a file holds, those left out that it disables.

    Raises:
        ConfigError: it is no such file.
    """
    where = "mcpServers" if isinstance(config, Mapping) else str(config)
    whole = config if isinstance(config, Mapping) else _loaded(Path(config))
    found = whole.get("mcpServers")
    servers: Mapping[str, Any] = cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else {"": None}
    if not all(isinstance(servers[name], Mapping) for name in servers):
        raise ConfigError(f"{where}: there is no object mcpServers with an object for each server")
    return [_entry(where, name, servers[name]) for name in servers if not servers[name].get("disabled")]


def _loaded(path: Path) -> dict[str, Any]:
    try:
        whole = orjson.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
    if not isinstance(whole, dict):
        raise ConfigError(f"{path} is no JSON object")
    return cast("dict[str, Any]", whole)


def _entry(where: str, name: str, one: Mapping[str, Any]) -> Entry:
    if ignored := sorted(set(one) - _READ):
        log.warning("what a server's entry says is left out", extra={"provider": name, "fields": ", ".join(ignored)})
    options: dict[str, Any] = {"name": name, "prefix": f"{sanitised(name)}_"} | {word: one[word] for word in _TAKEN if word in one}
    if "url" in one:
        kind = one.get("type", one.get("transport"))
        if kind not in _HTTP:
            raise ConfigError(f"{where}: server {name} speaks {kind!r}; only streamable HTTP and commands are known")
        return Entry(str(one["url"]), options | {"headers": _values(one.get("headers"))})
    if "command" not in one:
        raise ConfigError(f"{where}: server {name} has neither a url nor a command")
    words = [str(one["command"]), *(str(arg) for arg in one.get("args") or ())]
    return Entry(words, options | {"env": _values(one.get("env"))})


def _values(given: Mapping[str, Any] | None) -> dict[str, str | Secret]:
    return {name: _value(str(value)) for name, value in (given or {}).items()}


def _value(value: str) -> str | Secret:
    found = _REFERENCE.match(value)
    return secret(found[1] or found[2]) if found else value
