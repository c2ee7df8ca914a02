"""Where an MCP server is and what is asked of it, as an app declares it: nothing here connects, and nothing here knows the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from turnyard.errors import ConfigError
from turnyard.tools.mcp.bind import Bind
from turnyard.tools.secrets import Secret

Value = str | Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which of a server's tools there are, and how they may be called. The globs match the names that the server itself gives.

    `idempotent` None: what the server says of its tools counts. `bind` is what a call tells the server of who makes it.
    """

    prefix: str = ""
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()
    idempotent: tuple[str, ...] | None = None
    wait: bool = False
    tasks: bool = True
    bind: Bind = field(default_factory=Bind)

    def offers(self, name: str) -> bool:
        """Tell whether a tool of the server may be used at all."""
        return (not self.allow or _any(name, self.allow)) and not _any(name, self.deny)

    def asks(self, name: str) -> bool:
        """Tell whether people decide about each call of it."""
        return _any(name, self.approval)

    def repeats(self, name: str, *, hinted: bool) -> bool:
        """Tell whether a call may be made again after a crash; `hinted` is what the server says."""
        return hinted if self.idempotent is None else _any(name, self.idempotent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One server: reached at `url`, or started with `command`. `timeout_s` bounds one call."""

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    headers: Mapping[str, Value] = field(default_factory=dict[str, Value])
    env: Mapping[str, Value] = field(default_factory=dict[str, Value])
    cwd: str | None = None
    timeout_s: float = 60.0

    @property
    def where(self) -> str:
        """Return where it is, for a log line: no user, password, query or argument, which may hold a secret."""
        if self.command:
            return f"command {self.command[0]}"
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}{parts.path}"


def server_at(target: str | Sequence[str], *, name: str | None, prefix: str, **more: object) -> Server:
    """Return the server that `target` means: a URL, or the words of a command.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(target, str):
        parts = urlsplit(target)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"MCP server {target!r}: give an http(s) URL, or a list with the words of a command")
        return Server(name=name or prefix.strip("_") or parts.hostname, url=target, **more)  # pyright: ignore[reportArgumentType]
    words = tuple(target)
    if not words or not all(isinstance(word, str) and word for word in words):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"MCP server {target!r}: a command is a list of words, as in ['uvx', 'some-server']")
    return Server(name=name or prefix.strip("_") or words[0].rpartition("/")[2], command=words, **more)  # pyright: ignore[reportArgumentType]


def _any(name: str, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(name, glob) for glob in globs)
