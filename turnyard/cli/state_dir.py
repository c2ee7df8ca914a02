"""What the state directory says about the yard that runs from it.

url          where its API is, as one line
up.json      who keeps it, which roles it has, how far it is
up.lock      held by the keeper as long as it lives
logs/        a file per role
server.*     the embedded server (see turnyard.state.embedded)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Literal

from turnyard.errors import ConfigError, Conflict
from turnyard.state import pids
from turnyard.state.pids import Mark

Phase = Literal["starting", "ready", "draining"]


@dataclass(frozen=True, slots=True)
class RoleFacts:
    """One running role."""

    name: str
    mark: Mark
    health_port: int


@dataclass(frozen=True, slots=True)
class UpFacts:
    """A yard that `up` keeps. `durable` and `server` say what its Redis is."""

    keeper: Mark
    phase: Phase
    apps: tuple[str, ...]
    url: str
    redis: str
    server: str
    durable: bool
    agents: tuple[str, ...] = ()
    roles: tuple[RoleFacts, ...] = ()


class StateDir:
    """The files of one state directory."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._held: IO[str] | None = None

    def log(self, name: str) -> Path:
        """Return the log file of a role."""
        return self.root / "logs" / f"{name}.log"

    def turn_logs(self) -> None:
        """Keep the roles' logs of the yard before this one, and no older ones."""
        for file in (self.root / "logs").glob("*.log"):
            if file.name not in ("server.log", "up.log"):
                file.replace(file.with_suffix(".log.1"))

    def hold(self) -> None:
        """Become the one keeper of this directory, until this process ends.

        Raises:
            Conflict: another keeper lives.
            ConfigError: the directory cannot be written.
        """
        try:
            (self.root / "logs").mkdir(parents=True, exist_ok=True)
            handle = (self.root / "up.lock").open("a")
        except OSError as error:
            raise ConfigError(f"state directory {self.root} cannot be used ({error}); choose another with TURNYARD_STATE") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            raise Conflict(
                f"a yard is already up in {self.root} at {self.url() or 'an unknown port'}; stop it with `turnyard down` first"
            ) from None
        self._held = handle

    def release(self) -> None:
        """Stop being the keeper."""
        if self._held is not None:
            self._held.close()
            self._held = None

    def url(self) -> str | None:
        """Return where the API of this directory's yard is, None when there is none."""
        try:
            return (self.root / "url").read_text(encoding="utf-8").strip() or None
        except (OSError, ValueError):
            return None

    def facts(self) -> UpFacts | None:
        """Return what `up` wrote last, also when its processes are gone."""
        try:
            data: dict[str, Any] = json.loads((self.root / "up.json").read_bytes())
            roles = tuple(RoleFacts(r["name"], Mark(**r["mark"]), r["health_port"]) for r in data.pop("roles"))
            lists = {name: tuple(data.pop(name)) for name in ("apps", "agents")}
            return UpFacts(keeper=Mark(**data.pop("keeper")), roles=roles, **lists, **data)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, facts: UpFacts) -> None:
        """Record the yard; readers see the old record or the new one, never half of it."""
        for name, text in (("up.json", json.dumps(asdict(facts))), ("url", f"{facts.url}\n")):
            fresh = self.root / f"{name}.new"
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(self.root / name)

    def clear(self) -> None:
        """Forget the yard: it is down."""
        for name in ("up.json", "url"):
            with contextlib.suppress(NotADirectoryError):
                (self.root / name).unlink(missing_ok=True)

    def alive(self) -> list[tuple[str, Mark]]:
        """Return the processes of the recorded yard that still run, its keeper first."""
        facts = self.facts()
        if facts is None:
            return []
        named = [("keeper", facts.keeper), *((role.name, role.mark) for role in facts.roles)]
        return [(name, mark) for name, mark in named if pids.is_alive(mark)]
