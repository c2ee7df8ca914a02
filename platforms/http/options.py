"""What the HTTP platform is started with.

Without keys the API is open, so it is served on loopback only, and only to requests that name loopback: a page in a
browser on this machine must not reach it by another name.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from turnyard.errors import ConfigError

DEFAULT_PORT = 8420


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Where to listen and what to bear.

    `allow_open` permits an address that others can reach although nobody is asked who they are. `stream_buffer` is
    how many events are held for a reader beyond what the feed holds; `max_streams` how many streams may be open.
    `wrong_tokens` is how many call tokens that are none one address may try at once, and then per minute.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    allow_open: bool = False
    message_bytes: int = 262_144
    body_timeout_s: float = 30.0
    max_streams: int = 2_000
    stream_buffer: int = 64
    ping_s: float = 15.0
    wrong_tokens: int = 30
    wrong_tokens_per_minute: float = 30.0

    def check(self) -> None:
        """Refuse to be reachable from elsewhere without a way to tell who is asking.

        Raises:
            ConfigError: the address is not loopback and `allow_open` is off.
        """
        if not self.allow_open and not is_loopback(self.host):
            raise ConfigError(
                f"the HTTP API has no keys yet, so it listens on loopback only; {self.host} is not. Use 127.0.0.1, or set "
                "TURNYARD__PLATFORMS__HTTP__ALLOW_OPEN=true where the network itself decides who gets in"
            )


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address to listen on."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
