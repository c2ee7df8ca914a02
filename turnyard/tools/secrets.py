"""Values that an app names and a process reads when it needs them, so that they are in no code, log or manifest.

`NAME` is read from the environment, or from the file that `NAME_FILE` names there, each time anew: what is rotated is
seen at once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from turnyard.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that is not known here, only its name."""

    name: str

    def __repr__(self) -> str:
        """Return the name; the value is never shown."""
        return f"secret({self.name!r})"

    __str__ = __repr__

    def read(self) -> str:
        """Return the value as it is now.

        Raises:
            ConfigError: neither variable is set, or the file cannot be read.
        """
        value = os.environ.get(self.name)
        if value is not None:
            return value
        path = os.environ.get(f"{self.name}_FILE")
        if path is None:
            raise ConfigError(f"secret {self.name} is not set: set {self.name}, or {self.name}_FILE to the path of a file that holds it")
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"secret {self.name}: {path}, which {self.name}_FILE names, cannot be read ({error})") from None


def secret(name: str) -> Secret:
    """Name a value to be read when it is needed, from the environment or a file: for headers, keys and the like.

    Raises:
        ConfigError: this cannot be the name of an environment variable.
    """
    if not name.replace("_", "a").isalnum() or name[:1].isdigit():
        # what was given is not shown: it may be the value itself
        raise ConfigError("secret(...) names an environment variable and is not given the value: a name is letters, digits and _")
    return Secret(name)


def revealed(value: str | Secret) -> str:
    """Return a value that may be a secret.

    Raises:
        ConfigError: the secret is not set.
    """
    return value.read() if isinstance(value, Secret) else value


def all_revealed(values: Mapping[str, str | Secret]) -> dict[str, str]:
    """Return named values, such as headers, with the secrets among them read.

    Raises:
        ConfigError: a secret is not set.
    """
    return {name: revealed(value) for name, value in values.items()}
