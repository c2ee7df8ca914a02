"""`python -m platforms http`: serve the HTTP API, and relay lifted calls, until told to stop."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys

from turnyard import telemetry
from turnyard.blobs import FileStore, open_blobs
from turnyard.errors import ConfigError, FilesUnavailable, StoreUnavailable
from turnyard.lifecycle import CONFIG, Life, run_role
from turnyard.opening import open_yard
from turnyard.ports import Clock
from turnyard.settings import Settings, load_settings
from turnyard.state.target import lifted_target
from turnyard.wire.yard_edge import YardEdge

from .http.desk import Desk
from .http.options import HttpOptions
from .http.serve import listen, serve_http, url_of
from .relays import run_relays

log = logging.getLogger("turnyard.platforms")

_TICK_S = 1.0
_SWEEP_S = 3600.0
_LOAN_LEASES = 3  # a relay that takes longer has died


def main(argv: list[str] | None = None) -> int:
    """Run the platforms; return the exit code."""
    given = _arguments(argv)
    telemetry.setup(role="platform")
    try:
        settings = load_settings(given.config, flags={"redis.url": given.redis})
        url = _server(settings)
        options = _options(given, settings)
        options.check()
        lifted_url = lifted_target(url, given.lifted_redis or settings.redis.lifted_url)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return CONFIG

    async def serve(life: Life) -> None:
        await _serve(life, url=url, lifted_url=lifted_url, options=options, settings=settings)

    return run_role(serve, health_port=given.health_port, health_host=given.health_host)


async def _serve(life: Life, *, url: str, lifted_url: str, options: HttpOptions, settings: Settings) -> None:
    yard = await open_yard(url, role="platform", clock=life.clock, stop=life.drain, progress=life.progress)
    if yard is None:
        return
    blobs = open_blobs(settings, clock=life.clock, yard=yard)
    edge = await YardEdge.start(yard, inbox_cap=settings.limits.inbox_per_session)
    sock = listen(options)
    log.info("listening", extra={"url": url_of(sock)})
    desk = Desk(edge, life.clock, options, blobs=blobs)
    ready = _Ready(life, edge)
    life.ready = ready
    try:
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(ready.watch())
            loan_ms = _LOAN_LEASES * settings.timing.lease_ms
            relays = group.create_task(run_relays(yard, life.drain, clock=life.clock, lifted_url=lifted_url, loan_ms=loan_ms, blobs=blobs))
            sweeper = group.create_task(_sweep(blobs, life.clock))
            await serve_http(desk, life.drain, sock)
            watcher.cancel()
            sweeper.cancel()
            await relays
    finally:
        await blobs.aclose()
        await edge.aclose()
        await yard.aclose()


async def _sweep(blobs: FileStore, clock: Clock) -> None:
    """Take away files that have expired, again and again."""
    while True:
        try:
            await blobs.sweep()
        except FilesUnavailable as error:
            log.warning("files that have expired stay for now", extra={"reason": str(error)})
        await clock.sleep(_SWEEP_S)


class _Ready:
    """Whether the store answered lately."""

    def __init__(self, life: Life, edge: YardEdge) -> None:
        self._life = life
        self._edge = edge
        self._good = True

    def __call__(self) -> bool:
        """Return whether work can be taken now."""
        return self._good

    async def watch(self) -> None:
        """Ask the store again and again."""
        while True:
            self._life.progress.tick()
            try:
                async with asyncio.timeout(_TICK_S * 2):
                    await self._edge.ping()
                self._good = True
            except (StoreUnavailable, TimeoutError) as error:
                if self._good:
                    log.warning("the store does not answer", extra={"reason": type(error).__name__})
                self._good = False
            await self._life.clock.sleep(_TICK_S)


def _server(settings: Settings) -> str:
    url = settings.redis.connection_url()
    if url is None:
        raise ConfigError("the platform has no server: give --redis URL or set REDIS_URL")
    return url


def _options(given: argparse.Namespace, settings: Settings) -> HttpOptions:
    http = settings.platforms.http
    return HttpOptions(
        host=given.host or http.host,
        port=http.port if given.port is None else given.port,
        allow_open=http.allow_open,
        message_bytes=settings.limits.message_bytes,
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="platforms", description="Open the doors: the HTTP API, and relays of lifted calls.")
    parser.add_argument("names", nargs="*", choices=["http"], default="http", metavar="NAME", help="the doors to open: http")
    parser.add_argument("--host", help="the address that http listens on")
    parser.add_argument("--port", type=int, help="its port, 0 for a free one")
    parser.add_argument("--redis", metavar="URL", help="the server; else REDIS_URL, else turnyard.yaml")
    parser.add_argument("--lifted-redis", metavar="URL", help="the server arq uses; else the same one")
    parser.add_argument("--config", metavar="FILE", help="turnyard.yaml")
    parser.add_argument("--health-port", type=int, metavar="PORT", help="serve /healthz and /readyz there")
    parser.add_argument("--health-host", default="127.0.0.1", metavar="HOST", help="on this address (default: %(default)s)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
