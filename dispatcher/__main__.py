"""`python -m dispatcher`: dispatch and tick for all shards of one deployment until told to stop."""

from __future__ import annotations

import argparse
import sys

from turnyard import telemetry
from turnyard.errors import ConfigError
from turnyard.lifecycle import CONFIG, Life, run_role
from turnyard.opening import open_yard
from turnyard.settings import Settings, load_settings
from turnyard.state.schema import THIS_VERSION, Schemas

from .coordinator import check_limits
from .service import Dispatcher


def main(argv: list[str] | None = None, *, schemas: Schemas = THIS_VERSION) -> int:
    """Run a dispatcher; return its exit code. `schemas` are those its version knows."""
    given = _arguments(argv)
    telemetry.setup(role="dispatcher")
    try:
        settings = load_settings(given.config, flags={"redis.url": given.redis})
        url = _server(settings)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return CONFIG

    async def serve(life: Life) -> None:
        yard = await open_yard(url, role="dispatcher", clock=life.clock, stop=life.drain, progress=life.progress, schemas=schemas)
        if yard is None:
            return
        try:
            check_limits(settings, len(yard.shards))
            dispatcher = Dispatcher(yard, life, settings)
            life.ready = lambda: dispatcher.ready
            await dispatcher.run()
        finally:
            await yard.aclose()

    return run_role(serve, health_port=given.health_port, health_host=given.health_host)


def _server(settings: Settings) -> str:
    url = settings.redis.connection_url()
    if url is None:
        raise ConfigError("the dispatcher has no server: give --redis URL or set REDIS_URL")
    return url


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dispatcher", description="Decide which session's turn runs next.")
    parser.add_argument("--redis", metavar="URL", help="the server; else REDIS_URL, else turnyard.yaml")
    parser.add_argument("--config", metavar="FILE", help="turnyard.yaml")
    parser.add_argument("--health-port", type=int, metavar="PORT", help="serve /healthz and /readyz there")
    parser.add_argument("--health-host", default="127.0.0.1", metavar="HOST", help="on this address (default: %(default)s)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
