"""Which providers an agent's model names stand for, opened for as long as they are needed."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turnyard.engine.runner import Model
from turnyard.errors import ConfigError
from turnyard.ports import Clock, Provider

if TYPE_CHECKING:
    from turnyard.settings import Settings

ModelSpec = str | Provider
_WITHOUT_SETTINGS = "scripted:"


@asynccontextmanager
async def open_models(
    specs: Sequence[ModelSpec], *, base_dir: Path, clock: Clock, settings: Settings | None = None
) -> AsyncGenerator[list[Model]]:
    """Open the models that these specs name, and close them at the end.

    A spec is `provider:NAME`, a name that the settings give to one or several of those, or a provider itself, which
    its owner closes. Without `settings` those of this process are loaded when a spec needs them.

    Raises:
        ConfigError: a name is not known, or a provider cannot be opened as configured.
    """
    from turnyard.providers import open_provider

    async with AsyncExitStack() as stack:
        models: list[Model] = []
        for spec in specs:
            if not isinstance(spec, str):
                models.append(Model(spec, type(spec).__name__))
                continue
            if settings is None and not spec.startswith(_WITHOUT_SETTINGS):
                settings = _settings()
            for name in resolve(spec, settings):
                provider, model = open_provider(name, base_dir=base_dir, settings=_provider_settings(name, settings), clock=clock)
                stack.push_async_callback(provider.aclose)
                models.append(Model(provider, model))
        yield models


def resolve(spec: str, settings: Settings | None) -> list[str]:
    """Return the `provider:NAME` specs behind a spec.

    Raises:
        ConfigError: it is a name that the settings do not give to anything.
    """
    if ":" in spec:
        return [spec]
    named = settings.models if settings is not None else {}
    if spec not in named:
        known = ", ".join(sorted(named)) or "none"
        raise ConfigError(f"model {spec!r} is no provider:NAME and no name from `models` in turnyard.yaml; known there: {known}")
    found = named[spec]
    return [found] if isinstance(found, str) else list(found)


def _provider_settings(spec: str, settings: Settings | None) -> dict[str, Any]:
    section = settings.providers.get(spec.partition(":")[0]) if settings is not None else None
    if section is None:
        return {}
    return {"base_url": section.base_url, "api_key": section.api_key.get_secret_value() if section.api_key else None}


def _settings() -> Settings:
    from turnyard.settings import load_settings

    return load_settings()
