"""What a tool returns when it has more to tell than the model is to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Detailed:
    """A result with details: `content` is what the model reads, `details` what the log keeps for whoever watches, at most 16 KB as JSON."""

    content: Any
    details: Any
