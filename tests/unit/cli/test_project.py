"""The first project that `init` writes."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import yaml

from platforms.http.options import HttpOptions
from turnyard.cli.entry import run
from turnyard.cli.project import TEMPLATES
from turnyard.settings import load_settings


def test_init_writes_every_file_and_says_what_is_next(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert run(["init", str(tmp_path / "hello")]) == 0
    told = capsys.readouterr()
    assert {path.name for path in (tmp_path / "hello").iterdir()} == {*TEMPLATES, ".gitignore"}
    assert told.out.splitlines() == [str(tmp_path / "hello" / name) for name in TEMPLATES]
    assert "turnyard up app:app" in told.err


def test_init_touches_nothing_where_a_file_is_already_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "app.py").write_text("mine")
    assert run(["init", str(tmp_path)]) == 7
    assert [path.name for path in tmp_path.iterdir()] == ["app.py"]
    assert "already has app.py" in capsys.readouterr().err


def test_what_init_writes_is_well_formed(tmp_path: Path):
    assert run(["init", str(tmp_path / "hello")]) == 0
    for path in (tmp_path / "hello").glob("*.py"):
        ast.parse(path.read_text())
    load_settings(tmp_path / "hello" / "turnyard.yaml", environ={})
    compose = yaml.safe_load((tmp_path / "hello" / "compose.yaml").read_text())
    assert set(compose["services"]) == {"valkey", "dispatcher", "worker", "lifted", "http"}


def test_the_services_that_init_writes_may_listen_where_they_are_told_to(tmp_path: Path):
    assert run(["init", str(tmp_path / "hello")]) == 0
    http = yaml.safe_load((tmp_path / "hello" / "compose.yaml").read_text())["services"]["http"]
    settings = load_settings(tmp_path / "hello" / "turnyard.yaml", environ=http["environment"])
    host = http["command"][http["command"].index("--host") + 1]
    HttpOptions(host=host, allow_open=settings.platforms.http.allow_open).check()


def test_the_scripted_model_of_the_sample_is_accepted(tmp_path: Path):
    from turnyard.providers.script_file import read_script

    assert run(["init", str(tmp_path / "hello")]) == 0
    assert read_script(tmp_path / "hello" / "hello.yaml").loop


def test_run_answers_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert run(["init", str(tmp_path / "hello")]) == 0
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    assert run(["run", "hello/app.py:app", "hello", "add 2 and 3"]) == 0
    assert capsys.readouterr().out == "2 + 3 = 5\n"
    assert run(["run", "hello/app.py:app", "nobody", "hi"]) == 6
    assert "it has hello" in capsys.readouterr().err


def test_a_run_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    assert run(["init", str(tmp_path / "hello")]) == 0
    (tmp_path / "hello" / "hello.yaml").write_text("replies: [{when: nothing fits, text: x}]")
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    assert run(["run", "hello/app.py:app", "hello", "add 2 and 3"]) == 1
    told = capsys.readouterr()
    assert (told.out, "failed: model_error" in told.err) == ("", True)


def test_checking_an_app_finds_a_model_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    app = tmp_path / "lonely.py"
    app.write_text("from turnyard import App\napp = App()\napp.agent('a', model='scripted:none.yaml')\n")
    monkeypatch.chdir(tmp_path)
    assert run(["config", "check", "lonely.py:app"]) == 3
    assert "none.yaml" in capsys.readouterr().err


def test_checking_an_app_finds_an_override_of_an_agent_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(["init", str(tmp_path / "hello")]) == 0
    (tmp_path / "hello" / "turnyard.yaml").write_text("agents: {helo: {mode: collect}}")
    monkeypatch.chdir(tmp_path / "hello")
    assert run(["config", "check", "app.py:app"]) == 3
    assert "agents.helo" in capsys.readouterr().err


def test_checking_an_app_names_the_approval_rules_that_match_no_tool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    assert run(["init", str(tmp_path / "hello")]) == 0
    rules = 'approvals: [{tools: ["add", "ord*"], approvers: ["ann"]}, {tools: ["refnd", "add"], approvers: []}]'
    (tmp_path / "hello" / "turnyard.yaml").write_text(rules)
    monkeypatch.chdir(tmp_path / "hello")
    assert run(["config", "check", "app.py:app"]) == 0
    said = capsys.readouterr().err
    assert "approvals[1].tools: 'refnd' matches no tool" in said
    assert said.count("warning") == 1


@pytest.mark.parametrize(
    ("rule", "fault"),
    [
        ("{tools: [], approvers: [ann]}", "approvals[0].tools"),
        ('{tools: [""], approvers: [ann]}', "approvals[0].tools[0]"),
        ("{tools: [add]}", "approvals[0].approvers"),
        ("{tools: [add], approvers: [ann], expires_in: 0s}", "more than zero"),
        ("{tools: [add], approvers: [ann], remember: always}", "approvals[0].remember"),
        ("{tools: [add], aprovers: [ann]}", "did you mean"),
    ],
)
def test_a_rule_on_approvals_that_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rule: str, fault: str
):
    (tmp_path / "turnyard.yaml").write_text(f"approvals: [{rule}]")
    monkeypatch.chdir(tmp_path)
    assert run(["config", "check"]) == 3
    assert fault in capsys.readouterr().err
