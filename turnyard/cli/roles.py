"""How the command line becomes one of the roles.

A role is a program of its own: this process turns into it, so that signals and the exit code are the role's.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from turnyard.cli.options import Apps, Config, HealthHost, HealthPort, Redis, settings_of
from turnyard.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

Pools = Annotated[
    list[str] | None, typer.Option("--pool", metavar="POOL", help="Whose turns it runs; may be given again. [default: default]")
]
Queues = Annotated[
    list[str] | None, typer.Option("--queue", metavar="QUEUE", help="Whose calls it runs; may be given again. [default: default]")
]
Processes = Annotated[int, typer.Option("--processes", min=1, max=256, metavar="N", help="How many children.")]
Concurrency = Annotated[int, typer.Option("--concurrency", min=1, max=10_000, metavar="M", help="How much one child runs at once.")]


def role_module(role: str) -> str:
    """Return the module to run for a role: inside the installed package, or at the top of a checkout.

    Raises:
        ConfigError: it is in neither place.
    """
    for name in (f"turnyard.roles.{role}", role):
        try:
            if importlib.util.find_spec(name) is not None:
                return name
        except ModuleNotFoundError:
            continue
    raise ConfigError(f"role {role} is not installed: install the wheel, or run from the checkout")


def command_line(role: str, *words: str) -> list[str]:
    """Return the command that runs a role as a process."""
    return [sys.executable, "-m", role_module(role), *words]


def dispatcher(redis: Redis = None, config: Config = None, health_port: HealthPort = None, health_host: HealthHost = None) -> None:
    """Decide who runs next; any number may run."""
    _become("dispatcher", [], redis, config, health_port, health_host)


def worker(
    apps: Apps,
    pool: Pools = None,
    processes: Processes = 2,
    concurrency: Concurrency = 256,
    redis: Redis = None,
    config: Config = None,
    health_port: HealthPort = None,
    health_host: HealthHost = None,
) -> None:
    """Run turns of the apps' agents."""
    words = [*repeated("--app", apps), *repeated("--pool", pool or ["default"])]
    words += ["--processes", str(processes), "--concurrency", str(concurrency)]
    _become("workers", words, redis, config, health_port, health_host)


def lifted(
    apps: Apps,
    queue: Queues = None,
    processes: Processes = 1,
    concurrency: Concurrency = 10,
    redis: Redis = None,
    config: Config = None,
    health_port: HealthPort = None,
    health_host: HealthHost = None,
) -> None:
    """Run lifted calls of the apps' tools."""
    words = ["lifted", *repeated("--app", apps), *repeated("--queue", queue or ["default"])]
    words += ["--processes", str(processes), "--concurrency", str(concurrency)]
    _become("workers", words, redis, config, health_port, health_host)


def platform(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="The doors to open: http, ...")],
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="The address that http listens on.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65_535, metavar="PORT", help="Its port.")] = None,
    redis: Redis = None,
    config: Config = None,
    health_port: HealthPort = None,
    health_host: HealthHost = None,
) -> None:
    """Open platforms: the HTTP API, chat apps."""
    words = [*names, *given("--host", host), *given("--port", port)]
    _become("platforms", words, redis, config, health_port, health_host)


def repeated(flag: str, values: Sequence[str]) -> list[str]:
    """Return the words that give `flag` once for each value."""
    return [word for value in values for word in (flag, value)]


def given(flag: str, value: str | int | None) -> list[str]:
    """Return the words that give `flag`, none when it has no value."""
    return [] if value is None else [flag, str(value)]


def _become(
    role: str, words: list[str], redis: str | None, config: Path | None, health_port: int | None, health_host: str | None
) -> NoReturn:
    url = _server(redis, config)
    command = command_line(role, *words, *given("--config", str(config) if config else None), *given("--health-port", health_port))
    # A kubelet asks from outside the pod's loopback; elsewhere nobody but this machine needs to.
    host = health_host or ("0.0.0.0" if "KUBERNETES_SERVICE_HOST" in os.environ else None)  # noqa: S104
    command += given("--health-host", host if health_port is not None else None)
    # In the environment, because command lines are shown to everybody on the machine and a URL may hold a password.
    os.environ["REDIS_URL"] = url
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606


def _server(redis: str | None, config: Path | None) -> str:
    """Return the configured server, else the one of the state directory, which is started when it does not run."""
    settings = settings_of(config=config, redis=redis)
    url = settings.redis.connection_url()
    if url:
        return url
    import asyncio

    from turnyard.cli.output import say
    from turnyard.state.embedded import NOT_DURABLE, resolve_server

    server = asyncio.run(resolve_server(settings.state_dir))
    say(f"turnyard: using the {server.kind} server of {settings.state_dir}" + ("" if server.durable else f"\n{NOT_DURABLE}"))
    return server.url
