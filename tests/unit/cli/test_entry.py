"""What a person gets from a command: a sentence, an exit code, never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turnyard.cli import entry, roles
from turnyard.cli.entry import run
from turnyard.errors import ConfigError, StoreUnavailable


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("REDIS_URL", "TURNYARD_URL", "TURNYARD_CONFIG", "TURNYARD_STATE", "TURNYARD_API_KEY", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


def test_version_is_data_on_stdout(capsys: pytest.CaptureFixture[str]):
    assert run(["version", "--json"]) == 0
    assert "version" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("words", [["nope"], ["jobs", "get"], ["up"], ["jobs", "submit", "a", "b", "--timeout", "x"]])
def test_a_command_line_that_makes_no_sense_exits_with_2(words: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(words) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_wrong_configuration_exits_with_3_and_names_the_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "turnyard.yaml").write_text("limits: {max_turns: 1}")
    assert run(["config", "check"]) == 3
    assert "limits.max_turns: unknown key" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["nowhere", "ftp://host", "http://[::1", "http://host:99999", "http://"])
def test_an_address_that_is_none_exits_with_3(url: str, capsys: pytest.CaptureFixture[str]):
    assert run(["jobs", "list", "--url", url]) == 3
    assert "is not the address of an API" in capsys.readouterr().err


def test_down_in_what_is_no_directory_finds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TURNYARD_STATE", str(tmp_path / "file"))
    assert run(["down"]) == 0


def test_the_effective_settings_are_shown_without_secrets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("REDIS_URL", "redis://user:hunter2@host:1/0")
    monkeypatch.setenv("TURNYARD_API_KEY", "key-hunter3")
    assert run(["config", "show", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out)["redis"]["url"] == "redis://host:1/0"
    assert "hunter" not in out


def test_the_schema_of_the_configuration_knows_its_keys_and_refuses_others(capsys: pytest.CaptureFixture[str]):
    assert run(["config", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert {"limits", "redis", "routes"} <= schema["properties"].keys()
    assert schema["additionalProperties"] is False


def test_examining_a_server_that_does_not_run_exits_with_4(capsys: pytest.CaptureFixture[str]):
    assert run(["doctor"]) == 4
    assert run(["doctor", "--redis", "redis://127.0.0.1:1/0"]) == 4
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_an_unforeseen_error_is_one_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("wires crossed")

    monkeypatch.setattr(entry, "app", broken)
    assert run(["version"]) == 1
    err = capsys.readouterr().err
    assert "wires crossed" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (TimeoutError("slow"), 8), (StoreUnavailable("away"), 4), (ConfigError("x"), 3)]
)
def test_each_ending_has_its_code(error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch):
    def ends(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(entry, "app", ends)
    assert run(["version"]) == code


def test_the_command_starts_without_importing_what_only_some_commands_need():
    heavy = "httpx redis fastapi uvicorn pydantic rich turnyard.app turnyard.client yaml"
    code = f"import sys; import turnyard.cli; print([m for m in {heavy.split()!r} if m in sys.modules])"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ).stdout.strip() == "[]"


class Became(Exception):
    """The process would be another program now."""


@pytest.fixture
def become(monkeypatch: pytest.MonkeyPatch) -> Any:
    def execv(path: str, command: list[str]) -> None:
        raise Became(command[2:])

    def words(*arguments: str) -> list[str]:
        with pytest.raises(Became) as caught:
            roles_of(arguments)
        return caught.value.args[0]

    def roles_of(arguments: tuple[str, ...]) -> None:
        monkeypatch.setattr(entry, "_unforeseen", _again)
        run(list(arguments))

    monkeypatch.setattr(roles.os, "execv", execv)
    return words


def _again(error: Exception) -> int:
    raise error


def test_a_role_becomes_its_own_program_and_the_server_is_not_on_its_command_line(become: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_URL", "redis://u:hunter2@h")
    assert become("dispatcher", "--health-port", "8421") == ["dispatcher", "--health-port", "8421"]
    assert become("worker", "a:app", "b:app", "--pool", "gpu", "--processes", "3") == [
        *["workers", "--app", "a:app", "--app", "b:app", "--pool", "gpu", "--processes", "3", "--concurrency", "256"]
    ]
    assert become("lifted", "a:app", "--queue", "q")[:6] == ["workers", "lifted", "--app", "a:app", "--queue", "q"]
    assert become("platform", "http", "--host", "::1", "--port", "1") == ["platforms", "http", "--host", "::1", "--port", "1"]


def test_in_a_cluster_health_is_served_to_the_kubelet(become: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REDIS_URL", "redis://h")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert become("dispatcher", "--health-port", "1")[-2:] == ["--health-host", "0.0.0.0"]
    assert "--health-host" not in become("dispatcher")


def test_a_role_is_taken_from_the_installed_package_first(monkeypatch: pytest.MonkeyPatch):
    known = {"turnyard.roles.workers", "workers", "dispatcher"}
    monkeypatch.setattr(roles.importlib.util, "find_spec", lambda name: name if name in known else None)
    assert (roles.role_module("workers"), roles.role_module("dispatcher")) == ("turnyard.roles.workers", "dispatcher")
    with pytest.raises(ConfigError, match="platforms is not installed"):
        roles.role_module("platforms")
