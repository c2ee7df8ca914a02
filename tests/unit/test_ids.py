"""How ids and tokens are written and read."""

from __future__ import annotations

import base64

import pytest

from turnyard.records.ids import new_call_token, read_call_token

TOKEN, SECRET_HASH = new_call_token(0, "store.0", "call_x")
RAW = base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4))


def test_a_call_token_says_where_its_row_is() -> None:
    assert read_call_token(TOKEN) == (0, "store.0", "call_x", SECRET_HASH)


@pytest.mark.parametrize(
    "spelling",
    [TOKEN + "=", TOKEN + "====", TOKEN[:5] + "!" + TOKEN[5:], TOKEN + "\n", TOKEN[:-1], TOKEN * 2, "", "é", "=" * 99],
    ids=["padded", "over-padded", "stray", "line end", "cut", "twice", "empty", "not ascii", "padding alone"],
)
def test_a_call_token_in_any_other_spelling_is_none(spelling: str) -> None:
    assert read_call_token(spelling) is None


@pytest.mark.parametrize(
    "place", [b"+0|store.0|call_x", b" 0|store.0|call_x", b"0_0|store.0|call_x", b"00|store.0|call_x", b"-1|s|c", b"0|s"]
)
def test_a_shard_is_written_in_one_way_too(place: bytes) -> None:
    assert read_call_token(base64.urlsafe_b64encode(RAW[:32] + place).decode().rstrip("=")) is None
