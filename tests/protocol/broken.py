"""A test on the server that must fail when one rule is taken out of the Lua."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.protocol.scene import Scene
from turnyard.errors import TurnyardError
from turnyard.state import scripts

# the test, the rule as the Lua has it, and what stands there instead
Broken = tuple[Callable[[Scene], Awaitable[None]], str, str]


async def snaps(url: str, monkeypatch: pytest.MonkeyPatch, broken: Broken) -> None:
    """Run the test on a deployment without the rule; fail if it passes."""
    walk, was, becomes = broken
    whole = scripts.library_source()
    assert was in whole, f"the Lua no longer says {was!r}"
    monkeypatch.setattr(scripts, "library_source", lambda: whole.replace(was, becomes))
    scene = await Scene.open(url)
    try:
        with pytest.raises((AssertionError, TurnyardError, pytest.fail.Exception)):
            await walk(scene)
    finally:
        await scene.yard.aclose()
