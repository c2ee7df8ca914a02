"""Does each lane deliver everything, in order?"""

from tests.protocol.lanes import LaneRules, explore


def test_every_part_arrives_in_order_whatever_crashes_stalls_or_is_throttled() -> None:
    found = explore(LaneRules())
    assert found.bad is None
    assert found.states > 3000


def test_a_commit_that_re_arms_a_lane_lets_two_senders_send_one_part() -> None:
    assert "sent twice" in str(explore(LaneRules(nx=False)).bad)


def test_a_stale_sent_without_its_lease_moves_the_cursor_back() -> None:
    assert explore(LaneRules(cas=False)).bad == "the cursor went back"
