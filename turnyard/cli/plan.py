"""Which processes a yard on one machine consists of, decided from what its apps declare."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from turnyard.cli.roles import command_line, repeated
from turnyard.errors import ConfigError

if TYPE_CHECKING:
    from turnyard.records.manifest import Manifest

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class RolePlan:
    """One role to start: its words after the module, without its health port. `reloads` tells whether it runs user code."""

    name: str
    role: str
    words: tuple[str, ...]
    reloads: bool = False

    def command(self, health_port: int) -> list[str]:
        """Return the command line."""
        return command_line(self.role, *self.words, "--health-port", str(health_port))


@dataclass(frozen=True, slots=True)
class Plan:
    """A yard: its roles, where its API is, which agents must be published before it counts as ready."""

    apps: tuple[str, ...]
    agents: tuple[str, ...]
    host: str
    port: int
    roles: tuple[RolePlan, ...]

    @property
    def url(self) -> str:
        """Return where the API is."""
        host = LOOPBACK if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def make_plan(apps: Sequence[str], manifests: Iterable[Manifest], *, host: str, port: int, processes: int) -> Plan:
    """Return the plan for these apps; a `port` of 0 becomes a free one.

    Raises:
        ConfigError: the port is taken.
    """
    known = list(manifests)
    pools = sorted({"default", *(m.pool for m in known)})
    queues = sorted({"default", *(t.queue for m in known for t in m.tools if t.queue)})
    real_port = free_port() if port == 0 else _checked(host, port)
    app_words = repeated("--app", apps)
    workers = [*app_words, *repeated("--pool", pools), "--processes", str(processes)]
    roles = (
        RolePlan("dispatcher", "dispatcher", ()),
        RolePlan("worker", "workers", tuple(workers), reloads=True),
        RolePlan("lifted", "workers", ("lifted", *app_words, *repeated("--queue", queues), "--processes", "1"), reloads=True),
        RolePlan("http", "platforms", ("http", "--host", host, "--port", str(real_port))),
    )
    return Plan(tuple(apps), tuple(sorted(m.name for m in known)), host, real_port, roles)


def role_environment(
    plan: Plan, *, redis: str, state: Path, config: Path | None, environ: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment that every role of the plan gets."""
    # The URL of the server may hold a password, which must not stand on a command line.
    added = {"REDIS_URL": redis, "TURNYARD_STATE": str(state), "PYTHONUNBUFFERED": "1"}
    if config is not None:
        added["TURNYARD_CONFIG"] = str(config.absolute())
    public = {"TURNYARD__PLATFORMS__HTTP__PUBLIC_URL": plan.url}
    return {**public, **environ, **added}


def free_port() -> int:
    """Return a port of the loopback that nobody uses now."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _checked(host: str, port: int) -> int:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise ConfigError(
                f"port {host}:{port} cannot be opened ({error.strerror}); choose another with --port, or --port 0 for a free one"
            ) from error
    return port
