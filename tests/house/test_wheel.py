"""Does the wheel work for somebody who has nothing but the wheel?

Built, installed with the locked dependencies into an empty environment, and used from a folder far from the checkout.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = [pytest.mark.timeout(400), pytest.mark.slow, pytest.mark.xdist_group("wheel")]


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that holds the wheel, its dependencies and nothing else."""

    wheel: Path
    bin: Path
    home: Path

    def run(self, *command: str, cwd: Path | None = None, timeout: float = 90) -> str:
        """Run a command of the environment; return what it printed; fail with all it said."""
        env = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home), "TURNYARD_STATE": str(self.home / "state"), "LANG": "C.UTF-8"}
        done = subprocess.run(command, cwd=cwd or self.home, env=env, capture_output=True, text=True, timeout=timeout, check=False)
        assert done.returncode == 0, f"{' '.join(command)} → {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def build(root: Path, out: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(root)], check=True, capture_output=True
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def needed(wheel: Path, *extras: str) -> set[str]:
    """The names of all distributions that the wheel with these extras depends on, read from what is installed here."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist: ")]
    queue = [(Requirement(line.removeprefix("Requires-Dist: ")), ("", *extras)) for line in lines]
    names: set[str] = set()
    while queue:
        requirement, wanted = queue.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
            continue
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in names and not requirement.extras:
            continue
        names.add(name)
        if name != "turnyard":
            below = importlib.metadata.requires(name) or []
            queue += [(Requirement(line), ("", *requirement.extras)) for line in below]
    return names - {"turnyard"}


def locked(lock: str, names: set[str]) -> str:
    """The part of the lock that speaks of these distributions."""
    entries = re.split(r"\n(?=\S)", lock.strip())
    return "\n".join(entry for entry in entries if entry.split("==")[0].lower() in names) + "\n"


@pytest.fixture(scope="module")
def installed(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    base = tmp_path_factory.mktemp("w")
    wheel = build(root, base / "dist")
    subprocess.run([sys.executable, "-m", "venv", str(base / "v")], check=True, capture_output=True)
    pip = [str(base / "v" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    requirements = base / "requirements.txt"
    requirements.write_text(locked((root / "requirements.lock").read_text(encoding="utf-8"), needed(wheel, "server", "embedded")))
    for command in ([*pip, "--require-hashes", "-r", str(requirements)], [*pip, "--no-deps", str(wheel)]):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    (base / "home").mkdir()
    return Installed(wheel, base / "v" / "bin", base / "home")


@pytest.fixture(scope="module")
def hello(installed: Installed) -> Iterator[Path]:
    """The sample project, up and running."""
    installed.run("turnyard", "init", "hello")
    project = installed.home / "hello"
    installed.run("turnyard", "up", "app:app", "--detach", "--port", "0", cwd=project)
    yield project
    installed.run("turnyard", "down", cwd=project)


def test_the_wheel_has_one_top_level_name(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"turnyard"}


def test_the_wheel_carries_the_roles_and_the_scripts(installed: Installed, root: Path) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        names = set(archive.namelist())
    for role in ("dispatcher", "workers", "platforms"):
        assert f"turnyard/roles/{role}/__init__.py" in names
    for script in (root / "turnyard" / "state" / "lua").glob("*.lua"):
        assert f"turnyard/state/lua/{script.name}" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests/")]


def test_the_installed_command_tells_its_version(installed: Installed) -> None:
    assert importlib.metadata.version("turnyard") in installed.run("turnyard", "version")


def test_the_sample_project_answers_a_job_on_the_installed_wheel(installed: Installed, hello: Path) -> None:
    url = (installed.home / "state" / "url").read_text(encoding="utf-8").strip()
    request = urllib.request.Request(
        f"{url}/v1/jobs",
        data=json.dumps({"agent": "hello", "input": "add 2 and 3"}).encode(),
        headers={"content-type": "application/json", "prefer": "wait=10"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        job = json.load(answer)
    assert job["state"] == "succeeded", job
    assert "5" in job["text"]
    assert hello.joinpath("turnyard.yaml").exists()


def test_a_worker_that_is_killed_in_the_first_five_minutes_costs_nothing(installed: Installed, hello: Path) -> None:
    installed.run("turnyard", "submit", "hello", "count slowly", "--session", "s1", cwd=hello)
    first, *_ = [json.loads(line) for line in installed.run("turnyard", "workers", "list", "--json", cwd=hello).splitlines()]
    os.kill(first["pid"], signal.SIGKILL)
    told = installed.run("turnyard", "follow", "s1", cwd=hello)
    assert "1, 2, 3, 4, 5. None was lost." in told
    assert "idle" in installed.run("turnyard", "explain", "s1", cwd=hello)
    installed.run("turnyard", "doctor", cwd=hello)


def test_the_sample_projects_own_tests_need_no_server_and_no_key(installed: Installed, root: Path, tmp_path: Path) -> None:
    installed.run("turnyard", "init", str(tmp_path / "mine"))
    env = {**os.environ, "PYTHONPATH": str(root), "REDIS_URL": "redis://127.0.0.1:1"}
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "JSON", "SPEC", "PYTEST_XDIST_WORKER"):
        env.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=tmp_path / "mine",
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stdout + done.stderr
