"""One deployment of real processes behind a proxy, shared by tests that disturb it and leave it well."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.proxy import Proxy, harmless
from tests.integration.sample_app import SampleApp
from tests.processes import Role, Roles
from tests.servers import private_server


@dataclass
class Deployment:
    """Two dispatchers and two workers of one child each; `url` is the server itself, which keeps its data on disk."""

    url: str
    proxy: Proxy
    roles: Roles
    app: SampleApp
    dispatchers: list[Role]
    workers: list[Role]

    def members(self, *roles: Role) -> set[int]:
        """Return the processes of these roles, children included."""
        return {pid for role in roles for pid in (role.process.pid, *role.children())}

    def alive(self) -> bool:
        """Tell whether every process that was started still runs."""
        return all(role.process.poll() is None for role in (*self.dispatchers, *self.workers))

    def calm(self) -> None:
        """End every disturbance."""
        self.proxy.hook = harmless
        self.proxy.delay_s = 0.0
        self.proxy.release()


@contextmanager
def deployed_in(directory: Path) -> Generator[Deployment]:
    """Run the deployment for the length of the block."""
    roles, app = Roles(directory), SampleApp(directory)
    with private_server("--appendonly", "yes") as url, Proxy(Path(url.removeprefix("unix://")), directory / "proxy") as proxy:
        try:
            dispatchers = [roles.dispatcher(proxy.url, health=True) for _ in range(2)]
            workers = [roles.worker(proxy.url, app.path, "--processes", "1", health=True) for _ in range(2)]
            yield Deployment(url, proxy, roles, app, dispatchers, workers)
        finally:
            roles.end()
