"""Which processes a yard consists of."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from turnyard.cli.plan import make_plan, role_environment
from turnyard.cli.yard import times
from turnyard.errors import ConfigError
from turnyard.records.manifest import Manifest, ToolFacts


def manifest(name: str, *, pool: str = "default", queue: str | None = None) -> Manifest:
    return Manifest(name, "1", pool=pool, tools=(ToolFacts("t", {}, kind="lift", queue=queue),))


def test_every_pool_and_queue_that_the_apps_use_is_served():
    plan = make_plan(["a:app", "b:app"], [manifest("x", pool="gpu"), manifest("y", queue="render")], host="127.0.0.1", port=0, processes=2)
    words = {role.name: " ".join(role.words) for role in plan.roles}
    assert words["worker"] == "--app a:app --app b:app --pool default --pool gpu --processes 2"
    assert words["lifted"] == "lifted --app a:app --app b:app --queue default --queue render --processes 1"
    assert plan.agents == ("x", "y")
    assert [role.name for role in plan.roles if role.reloads] == ["worker", "lifted"]


def test_port_0_becomes_a_free_one_and_a_taken_one_is_refused():
    assert make_plan(["a"], [], host="127.0.0.1", port=0, processes=1).port > 0
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="--port"):
            make_plan(["a"], [], host="127.0.0.1", port=taken.getsockname()[1], processes=1)


def test_the_server_reaches_the_roles_through_their_environment_alone(tmp_path: Path):
    plan = make_plan(["a"], [], host="0.0.0.0", port=0, processes=1)
    url = "redis://u:hunter2@h"
    environ = role_environment(plan, redis=url, state=tmp_path, config=Path("t.yaml"), environ={"PATH": "/bin", "REDIS_URL": "x"})
    assert (environ["REDIS_URL"], environ["PATH"], environ["TURNYARD_STATE"]) == (url, "/bin", str(tmp_path))
    assert environ["TURNYARD__PLATFORMS__HTTP__PUBLIC_URL"] == plan.url == f"http://127.0.0.1:{plan.port}"
    assert Path(environ["TURNYARD_CONFIG"]).is_absolute()
    assert not any("hunter2" in word for role in plan.roles for word in role.command(1))


def test_a_public_url_of_ones_own_is_kept(tmp_path: Path):
    plan = make_plan(["a"], [], host="127.0.0.1", port=0, processes=1)
    given = {"TURNYARD__PLATFORMS__HTTP__PUBLIC_URL": "https://yard.example"}
    assert role_environment(plan, redis="r", state=tmp_path, config=None, environ=given) | given == role_environment(
        plan, redis="r", state=tmp_path, config=None, environ=given
    )


def test_changes_are_seen_in_sources_and_not_in_environments_or_hidden_folders(tmp_path: Path):
    for name in ("app.py", "sub/more.py", "hello.yaml", "data.bin", ".turnyard/x.py", "env/lib/y.py", "__pycache__/z.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "env" / "pyvenv.cfg").write_text("")
    assert {path.name for path in times({tmp_path})} == {"app.py", "more.py", "hello.yaml"}
