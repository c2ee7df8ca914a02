"""Where do the roles live in the wheel?

In the checkout they are top-level packages; in site-packages a top-level `workers` would collide with other
people's packages. They import themselves relatively, so the wheel carries them as `turnyard.roles.*`.
"""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class RolesInside(BuildHookInterface[Any]):
    """Put dispatcher, workers and platforms into `turnyard/roles`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Map each role's folder, except for an editable install, where the checkout itself is on the path."""
        if version == "editable":
            return
        for role in ("dispatcher", "workers", "platforms"):
            build_data["force_include"][role] = f"turnyard/roles/{role}"
