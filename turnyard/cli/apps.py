"""Whether the apps that were named can be served, found out before any process is started for them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnyard.app import App
    from turnyard.settings import Settings


def checked_apps(specs: Sequence[str], settings: Settings) -> list[App]:
    """Load the apps and open their models once, so that a mistake is told to the person who just typed.

    Raises:
        ConfigError: an app cannot be loaded, two of its parts do not fit, or a model cannot be opened as configured.
    """
    from turnyard.app import load_app
    from turnyard.lifecycle import run

    apps = [load_app(spec) for spec in specs]
    run(_open_models(apps, settings))
    return apps


async def _open_models(apps: Sequence[App], settings: Settings) -> None:
    from turnyard.app.models import open_models
    from turnyard.clock import SystemClock

    async with AsyncExitStack() as stack:
        for app in apps:
            for agent in app:
                opened = open_models(agent.options.models, base_dir=agent.home.base_dir, clock=SystemClock(), settings=settings)
                await stack.enter_async_context(opened)
