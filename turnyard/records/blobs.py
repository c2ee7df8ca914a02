"""What is known of a stored file, and how files are named.

An id is made here and nowhere else: nobody can guess it, nothing of it is what somebody wrote, and ids sort newest first,
which is how every store lists names cheaply. The name that a file came with is told back and never used for anything.
"""

from __future__ import annotations

import re
import secrets
import unicodedata
from dataclasses import dataclass

from turnyard.text import REPLACEMENT, scrub

NAME_BYTES = 255

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_BITS, _SECRET_BITS = 45, 125
_ID = re.compile(rf"file_[{_ALPHABET}]{{{(_TIME_BITS + _SECRET_BITS) // 5}}}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRef:
    """A stored file. It never changes; `expires_ms` is when it goes.

    `media_type` is what its content looks like, `name` what whoever sent it called it, for showing alone; `size` is in bytes.
    """

    id: str
    size: int
    media_type: str
    name: str
    sha256: str
    created_ms: int
    expires_ms: int


def new_file_id(now_ms: int) -> str:
    """Return a fresh id: when it was made, backwards, and 125 bits that nobody can guess."""
    number = ((1 << _TIME_BITS) - 1 - now_ms) << _SECRET_BITS | secrets.randbits(_SECRET_BITS)
    digits = (number >> shift & 31 for shift in range(_TIME_BITS + _SECRET_BITS - 5, -1, -5))
    return "file_" + "".join(_ALPHABET[digit] for digit in digits)


def is_file_id(text: str) -> bool:
    """Tell whether this has the form of an id; what has not is no file, and part of no path."""
    return _ID.match(text) is not None


def clean_name(given: str) -> str:
    r"""Return the name that somebody gave a file in a form that is safe to show: its last part, without control characters.

    What stands before a `/` or `\` goes, so does what turns the direction of writing, and the middle of a name over 255
    bytes. Nothing left is "file".
    """
    last = re.split(r"[/\\]", scrub(given))[-1]
    shown = "".join(char for char in last if char != REPLACEMENT and unicodedata.category(char)[0] != "C").strip().strip(".").strip()
    if not shown:
        return "file"
    raw = shown.encode()
    if len(raw) <= NAME_BYTES:
        return shown
    end = raw[-32:].decode("utf-8", "ignore")
    return raw[: NAME_BYTES - len(end.encode()) - 3].decode("utf-8", "ignore") + "…" + end
