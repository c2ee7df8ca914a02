"""Starting: what is wrong is said, what is missing is waited for, and a server that comes back is worked with."""

from __future__ import annotations

import contextlib
import signal

import pytest
from redis import exceptions as rx

from tests.integration.conversation import Talk, check_log
from tests.integration.sample_app import SampleApp
from tests.processes import Roles
from tests.servers import private_server
from turnyard.errors import StoreUnavailable
from turnyard.state import pids
from turnyard.state.yard import Yard
from turnyard.testing import wait_until


async def test_an_app_that_cannot_be_imported_ends_the_worker_with_3_and_says_why(clean: str, roles: Roles, app: SampleApp) -> None:
    app.path.write_text("import nothing_of_that_name\n")
    worker = roles.worker(clean, app.path)
    assert worker.process.wait(30) == 3
    assert "nothing_of_that_name" in worker.log()


async def test_an_app_that_is_not_there_ends_the_worker_with_3_and_names_it(clean: str, roles: Roles, app: SampleApp) -> None:
    app.path.unlink()
    worker = roles.worker(clean, app.path)
    assert worker.process.wait(30) == 3
    assert "sample.py" in worker.log()


async def test_a_model_file_that_is_missing_ends_the_worker_with_3_and_names_it(clean: str, roles: Roles, app: SampleApp) -> None:
    app.path.write_text('from turnyard import App\napp = App()\napp.agent("x", model="scripted:nowhere.yaml", instructions="")\n')
    worker = roles.worker(clean, app.path)
    assert worker.process.wait(30) == 3
    assert "nowhere.yaml" in worker.log()
    assert "Traceback" not in worker.log()


async def test_a_server_that_is_away_at_the_start_is_waited_for(roles: Roles, app: SampleApp) -> None:
    worker = roles.worker("unix:///nowhere/redis.sock", app.path, health=True)
    await wait_until(lambda: worker.answers("/readyz") == 503, description="it to say that it is not ready")
    assert worker.answers("/healthz") == 200
    await wait_until(lambda: "waiting for the server" in worker.log(), description="it to say what it waits for")
    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(10) == 0


async def test_children_that_wait_for_a_server_end_with_their_supervisor(roles: Roles, app: SampleApp) -> None:
    with private_server() as url:
        worker = roles.worker(url, app.path)
        await wait_until(lambda: len(worker.children()) == 2, description="its children", timeout_s=30)
    children = worker.children()
    await wait_until(lambda: len(worker.events("waiting for the server")) == 2, description="its children to wait", timeout_s=30)
    worker.process.kill()
    await wait_until(lambda: not any(pids.mark_of(child) for child in children), description="its children to end", timeout_s=30)


async def test_it_is_ready_once_its_children_take_turns(talk: Talk, clean: str, roles: Roles, app: SampleApp) -> None:
    worker = roles.worker(clean, app.path, health=True)
    await talk.enrolled(2)
    await wait_until(lambda: worker.answers("/readyz") == 200, description="it to be ready")


@pytest.mark.spec("trap-16")
async def test_a_server_that_stood_still_for_longer_than_a_lease_costs_no_healthy_worker_its_turn(
    talk: Talk, clean: str, roles: Roles, app: SampleApp
) -> None:
    roles.dispatcher(clean)
    roles.worker(clean, app.path)
    await talk.enrolled(2)
    job = await talk.say("s1", "again gate")
    await wait_until(lambda: app.ran("again") != [], description="the tool to run")
    await talk.yard.redis.execute_command("DEBUG", "SLEEP", "2")
    app.open("gate")
    assert (await talk.done(job)).state == "succeeded"
    assert len(app.ran("again")) == 1
    check_log(await talk.log("s1"))


async def test_turns_go_on_after_the_server_was_restarted(roles: Roles, app: SampleApp) -> None:
    with private_server("--appendonly", "yes") as url:
        yard = await Yard.open(url)
        talk = Talk(yard)
        roles.dispatcher(url)
        roles.worker(url, app.path)
        await talk.enrolled(2)
        job = await talk.say("s1", "again gate")
        await wait_until(lambda: app.ran("again") != [], description="the tool to run")
        with contextlib.suppress(rx.RedisError, OSError):
            await yard.redis.execute_command("DEBUG", "RESTART", "0")
        app.open("gate")

        async def ended() -> bool:
            with contextlib.suppress(StoreUnavailable):
                return (await talk.job(job)).done
            return False

        await wait_until(ended, description="the job to end", timeout_s=30)
        assert (await talk.job(job)).state == "succeeded"
        check_log(await talk.log("s1"))
        assert (await talk.done(await talk.say("s1", "hi"))).state == "succeeded"
        await yard.aclose()
