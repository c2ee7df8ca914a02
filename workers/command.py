"""What a worker is started with on the command line, and what its process does."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace

from turnyard import telemetry
from turnyard.errors import ConfigError
from turnyard.lifecycle import CONFIG, Life, run_role
from turnyard.opening import open_yard
from turnyard.settings import Settings, load_settings
from turnyard.state.schema import THIS_VERSION, Schemas
from turnyard.state.target import lifted_target

from .leases import Leases
from .options import Options, Timing
from .supervisor import Supervisor

_GRACE_S = 140.0


def main(argv: list[str] | None = None, *, schemas: Schemas = THIS_VERSION) -> int:
    """Run a worker; return its exit code. `schemas` are those its version knows."""
    given = _arguments(argv)
    telemetry.setup(role=given.role)
    try:
        options = _options(given, load_settings(given.config, flags={"redis.url": given.redis}))
        options = replace(options, schemas=schemas)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return CONFIG

    async def serve(life: Life) -> int:
        yard = await open_yard(options.redis, role=options.role, clock=life.clock, stop=life.drain, progress=life.progress, schemas=schemas)
        if yard is None:
            return 0
        supervisor = Supervisor(options, Leases(yard, options.timing), life)
        life.ready = lambda: supervisor.ready
        try:
            return await supervisor.run()
        finally:
            await yard.aclose()

    return run_role(serve, health_port=given.health_port, health_host=given.health_host)


def _options(given: argparse.Namespace, settings: Settings) -> Options:
    url = settings.redis.connection_url()
    if url is None:
        raise ConfigError("the worker has no server: give --redis URL or set REDIS_URL")
    timing = settings.timing
    lease_s, beat_s = timing.lease_ms / 1000, timing.beat_ms / 1000
    return Options(
        redis=url,
        lifted_redis=lifted_target(url, given.lifted_redis or settings.redis.lifted_url) if given.role == "lifted" else None,
        apps=tuple(given.app),
        config=given.config,
        role=given.role,
        pools=tuple(given.pool or ("default",)) if given.role == "worker" else (),
        queues=tuple(given.queue or ("default",)),
        processes=given.processes,
        concurrency=given.concurrency,
        timing=Timing(lease_s=lease_s, beat_s=beat_s, margin_s=lease_s / 10, max_block_s=given.max_block, grace_s=given.grace),
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="workers", description="Run turns of an app's agents, or its lifted tools.")
    parser.add_argument("role", nargs="?", choices=("worker", "lifted"), default="worker", help="turns (default), or lifted tools")
    parser.add_argument("--app", action="append", required=True, metavar="MOD:APP", help="pkg.mod:app or path/file.py:app; may be repeated")
    parser.add_argument("--redis", metavar="URL", help="the server; else REDIS_URL, else turnyard.yaml")
    parser.add_argument("--lifted-redis", metavar="URL", help="the server arq uses; else the same one")
    parser.add_argument("--config", metavar="FILE", help="turnyard.yaml")
    parser.add_argument("--pool", action="append", metavar="NAME", help="whose turns to run (default: default); may be repeated")
    parser.add_argument("--queue", action="append", metavar="NAME", help="lifted: which tools to run (default: default); may be repeated")
    parser.add_argument("--processes", type=_count, default=2, metavar="N", help="children (default: %(default)s)")
    parser.add_argument("--concurrency", type=_count, default=100, metavar="M", help="turns of a child at a time (default: %(default)s)")
    parser.add_argument(
        "--max-block", type=float, default=30.0, metavar="S", help="a loop blocked for longer is killed (default: %(default)s)"
    )
    parser.add_argument("--grace", type=float, default=_GRACE_S, metavar="S", help="what SIGTERM waits for at most (default: %(default)s)")
    parser.add_argument("--health-port", type=int, metavar="PORT", help="serve /healthz and /readyz there")
    parser.add_argument("--health-host", default="127.0.0.1", metavar="HOST", help="on this address (default: %(default)s)")
    return parser.parse_args(argv)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 up")
    return int(text)
