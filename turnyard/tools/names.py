"""Which names a tool may have, and which of them an agent may use.

A name is 1 to 64 of A-Z, a-z, 0-9 and _ and begins with no digit: what every model API accepts. Rules speak of names in that form.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from turnyard.errors import ConfigError

MAX_CHARS = 64
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_UNFIT = re.compile(r"[^A-Za-z0-9_]")


def sanitised(name: str) -> str:
    """Return the name with _ in place of each character that some model API refuses, at most 64 of them and no digit first."""
    fit = _UNFIT.sub("_", name)
    return (f"_{fit}" if fit[:1].isdigit() or not fit else fit)[:MAX_CHARS]


@dataclass(frozen=True, slots=True)
class NameFilter:
    """The names that may be used: those that `allow` matches, or all but those that `deny` matches. Both are globs as in `crm_*`."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Tell whether a name may be used."""
        if self.allow:
            return any(fnmatchcase(name, glob) for glob in self.allow)
        return not any(fnmatchcase(name, glob) for glob in self.deny)


def name_filter(whose: str, allow: Sequence[str], deny: Sequence[str]) -> NameFilter:
    """Return the filter that `whose` declares.

    Raises:
        ConfigError: both are given, or one is a string where a list of globs is meant.
    """
    if isinstance(allow, str) or isinstance(deny, str):
        raise ConfigError(f"{whose}: allow= and deny= are lists of globs, as in ['crm_*']")
    if allow and deny:
        raise ConfigError(f"{whose}: allow= leaves out all that it does not name, so deny= says nothing beside it; drop one")
    return NameFilter(tuple(allow), tuple(deny))
