"""Beyond one server: a cluster whose masters come and go, a primary that Sentinel replaces."""

from __future__ import annotations

import pytest

from tests.topologies import SHARDS, a_pair, clean_cluster, cluster
from turnyard.errors import ConfigError
from turnyard.records.ids import new_job_id
from turnyard.state import upkeep
from turnyard.state.connection import connect
from turnyard.state.jobs import JobWatch
from turnyard.state.target import lifted_target, parse_target
from turnyard.state.yard import Yard
from turnyard.testing import wait_until

__all__ = ["clean_cluster", "cluster"]

pytestmark = pytest.mark.xdist_group("topologies")


async def test_each_shard_is_where_its_slot_is_and_all_masters_hold_some(clean_cluster: str) -> None:
    yard = await Yard.open(clean_cluster, shards=SHARDS)
    places = {await shard.redis.connection_pool.address() for shard in yard.shards}
    assert len(places) == 3
    for shard in yard.shards:
        assert (await upkeep.tick(shard)).expelled == 0
    await yard.aclose()
    again = await Yard.open(clean_cluster)
    assert len(again.shards) == SHARDS
    await again.aclose()


async def test_an_end_that_one_master_announces_is_heard_by_who_listens_at_another(clean_cluster: str) -> None:
    yard = await Yard.open(clean_cluster, shards=SHARDS)
    watch = await JobWatch.start(yard)
    for shard in yard.shards:
        job = new_job_id(shard.n)
        await shard.redis.publish(watch.channel, job)
        await wait_until(lambda job=job: job in watch._ended, description="the end to be heard")
    await watch.aclose()
    await yard.aclose()


async def test_a_node_of_a_cluster_is_refused_as_a_plain_server_and_a_plain_one_as_a_cluster(clean_cluster: str, clean: str) -> None:
    node = clean_cluster.replace("redis+cluster", "redis").partition(",")[0]
    with pytest.raises(ConfigError, match=r"redis\+cluster://"):
        await Yard.open(node)
    with pytest.raises(ConfigError, match="a cluster where one plain server is needed"):
        connect(clean_cluster)
    with a_pair() as pair, pytest.raises(ConfigError, match="no node of a Redis Cluster"):
        await Yard.open(pair.primary.url.replace("redis", "redis+cluster"))


def test_lifted_tools_of_a_cluster_need_a_plain_server_of_their_own() -> None:
    assert lifted_target("redis+cluster://a:1,b:2", "redis://c") == "redis://c"
    assert lifted_target("redis://a", None) == "redis://a"
    with pytest.raises(ConfigError, match=r"set redis\.lifted_url"):
        lifted_target("redis+cluster://a:1,b:2", None)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis+sentinel://h", "which primary"),
        ("redis+cluster://", "names no server"),
        ("redis+cluster://h:port", "is not the URL"),
        ("redis://h?durable_ack=often", "is not one of"),
        ("redis://h?shards=0", "number from 1 to 256"),
        ("http://h", "must start with"),
    ],
)
def test_a_url_that_is_wrong_says_what_is_wrong(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse_target(url)


def test_a_url_says_all_that_the_processes_of_a_yard_must_agree_on() -> None:
    target = parse_target("rediss+sentinel://me:pass@a,b:1,[::1]:2/3?service=yard&durable_ack=replica&shards=4&ssl_ca_certs=x")
    assert target.seeds == (("a", 26379), ("b", 1), ("::1", 2))
    assert (target.kind, target.service, target.durable_ack, target.shards) == ("sentinel", "yard", "replica", 4)
    assert target.url == "rediss://me:pass@a:26379/3?ssl_ca_certs=x"
    assert target.node_url(("::1", 2)) == "rediss://me:pass@[::1]:2/3?ssl_ca_certs=x"
