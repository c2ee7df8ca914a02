"""Would a cluster run the manifests, and would the command understand what they say?

No cluster is asked: the base is rendered here, by the few rules of kustomize that it uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from turnyard import load_app
from turnyard.settings import load_settings

Manifest = dict[str, Any]
ROLES = {"dispatcher": "dispatcher", "worker-default": "worker", "lifted-default": "lifted", "platform-http": "platform"}
HEALTH_PORT = 8421


def render(folder: Path) -> list[Manifest]:
    """Resolve resources, generated config maps, labels and image tags of a kustomization."""
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    known = {"apiVersion", "kind", "labels", "resources", "configMapGenerator", "images"}
    assert set(kustomization) <= known, f"this test does not know {set(kustomization) - known}"
    manifests: list[Manifest] = []
    for name in kustomization["resources"]:
        manifests += [m for m in yaml.safe_load_all((folder / name).read_text(encoding="utf-8")) if m]
    for generator in kustomization.get("configMapGenerator", []):
        data = {Path(name).name: (folder / name).read_text(encoding="utf-8") for name in generator["files"]}
        manifests.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data})
    tags = {image["name"]: image["newTag"] for image in kustomization.get("images", [])}
    for manifest in manifests:
        for pair in kustomization.get("labels", []):
            manifest["metadata"].setdefault("labels", {}).update(pair["pairs"])
        for container in containers(manifest):
            container["image"] = f"{container['image']}:{tags[container['image']]}" if container["image"] in tags else container["image"]
    return manifests


def containers(manifest: Manifest) -> list[Manifest]:
    return manifest["spec"]["template"]["spec"]["containers"] if manifest["kind"] in {"Deployment", "StatefulSet"} else []


def within(labels: dict[str, str], pods: dict[str, str]) -> bool:
    return labels.items() <= pods.items()


@pytest.fixture(scope="module")
def base(root: Path) -> list[Manifest]:
    return render(root / "k8s" / "base")


def workloads(base: list[Manifest]) -> Iterator[Manifest]:
    yield from (m for m in base if m["kind"] in {"Deployment", "StatefulSet"})


def roles(base: list[Manifest]) -> dict[str, Manifest]:
    return {m["metadata"]["labels"]["app.kubernetes.io/component"]: m for m in base if m["kind"] == "Deployment"}


def test_there_is_a_deployment_for_each_role(base: list[Manifest]) -> None:
    assert set(roles(base)) == set(ROLES)


@pytest.mark.parametrize("role", ROLES)
def test_each_deployment_says_a_command_that_exists_with_flags_that_exist(base: list[Manifest], role: str) -> None:
    typer_main = pytest.importorskip("typer.main")
    cli = pytest.importorskip("turnyard.cli")
    (container,) = containers(roles(base)[role])
    assert "command" not in container  # the image's entrypoint is the command
    name, *rest = container["args"]
    assert name == ROLES[role]
    root_command = typer_main.get_command(cli.app)
    command = root_command.commands[name]
    context = command.make_context(name, list(rest))  # refuses unknown flags, missing arguments and wrong types
    assert context.params["health_port"] == HEALTH_PORT


def test_every_selector_finds_the_pods_it_means(base: list[Manifest]) -> None:
    pods = [m["spec"]["template"]["metadata"]["labels"] for m in workloads(base)]
    for manifest in workloads(base):
        assert within(manifest["spec"]["selector"]["matchLabels"], manifest["spec"]["template"]["metadata"]["labels"])
        assert sum(within(manifest["spec"]["selector"]["matchLabels"], labels) for labels in pods) == 1
    for manifest in base:
        if manifest["kind"] == "Service":
            assert sum(within(manifest["spec"]["selector"], labels) for labels in pods) == 1
        if manifest["kind"] == "PodDisruptionBudget":
            assert sum(within(manifest["spec"]["selector"]["matchLabels"], labels) for labels in pods) == 1


def test_every_port_that_is_named_is_open(base: list[Manifest]) -> None:
    for manifest in base:
        if manifest["kind"] == "Service":
            (target,) = [m for m in workloads(base) if within(manifest["spec"]["selector"], m["spec"]["template"]["metadata"]["labels"])]
            open_ports = {port["name"] for c in containers(target) for port in c["ports"]}
            assert {port["targetPort"] for port in manifest["spec"]["ports"]} <= open_ports
    for manifest in roles(base).values():
        (container,) = containers(manifest)
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["health"] == HEALTH_PORT
        assert all(str(port) in container["args"] for port in ports.values())


def test_every_role_is_probed_where_its_health_is_served(base: list[Manifest]) -> None:
    for manifest in roles(base).values():
        (container,) = containers(manifest)
        probes = {probe: container[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
        assert {probe: get["path"] for probe, get in probes.items()} == {
            "startup": "/healthz",
            "liveness": "/healthz",
            "readiness": "/readyz",
        }
        assert {get["port"] for get in probes.values()} == {"health"}


@pytest.mark.spec("S12")
def test_no_container_is_root_or_has_rights_or_secrets_it_does_not_need(base: list[Manifest]) -> None:
    for manifest in workloads(base):
        pod = manifest["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["automountServiceAccountToken"] is False
        for container in containers(manifest):
            rights = container["securityContext"]
            assert rights["allowPrivilegeEscalation"] is False
            assert rights["readOnlyRootFilesystem"] is True
            assert rights["capabilities"] == {"drop": ["ALL"]}
            assert not [
                e["name"] for e in container.get("env", []) if any(word in e["name"] for word in ("KEY", "SECRET", "TOKEN", "PASSWORD"))
            ]
            assert not [arg for arg in container["args"] if "secret" in arg.lower() or "token" in arg.lower()]


def test_every_container_says_what_it_needs_and_how_much_memory_it_may_take(base: list[Manifest]) -> None:
    for manifest in workloads(base):
        for container in containers(manifest):
            assert set(container["resources"]["requests"]) == {"cpu", "memory"}
            assert set(container["resources"]["limits"]) == {"memory"}  # a cpu limit throttles the loop and looks like a stall
            assert not container["image"].endswith(":latest")


def test_every_volume_a_pod_mounts_exists(base: list[Manifest]) -> None:
    maps = {m["metadata"]["name"] for m in base if m["kind"] == "ConfigMap"}
    for manifest in workloads(base):
        volumes = {v["name"]: v for v in manifest["spec"]["template"]["spec"].get("volumes", [])}
        claims = {claim["metadata"]["name"] for claim in manifest["spec"].get("volumeClaimTemplates", [])}
        for container in containers(manifest):
            assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes) | claims
        assert {v["configMap"]["name"] for v in volumes.values() if "configMap" in v} <= maps


def test_a_worker_has_time_to_end_its_step(base: list[Manifest]) -> None:
    longest_model_call_s = 120
    for role in ("worker-default", "lifted-default"):
        assert roles(base)[role]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > longest_model_call_s


def test_the_store_keeps_its_log_and_evicts_nothing(base: list[Manifest]) -> None:
    (store,) = [m for m in base if m["kind"] == "StatefulSet"]
    (container,) = containers(store)
    settings = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))
    assert settings["--appendonly"] == "yes"
    assert settings["--maxmemory-policy"] == "noeviction"


def test_the_image_runs_as_the_user_the_manifests_name_and_gets_its_own_signals(root: Path, base: list[Manifest]) -> None:
    lines = (root / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert 'ENTRYPOINT ["turnyard"]' in lines
    (user,) = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert {m["spec"]["template"]["spec"]["securityContext"]["runAsUser"] for m in roles(base).values()} == {int(user)}


def test_the_configuration_in_the_cluster_is_one_that_turnyard_takes(root: Path, base: list[Manifest]) -> None:
    env = {e["name"]: e["value"] for m in roles(base).values() for c in containers(m) for e in c["env"]}
    settings = load_settings(root / "k8s" / "base" / "turnyard.yaml", environ=env)
    (service,) = [m for m in base if m["kind"] == "Service" and "redis" in {port["name"] for port in m["spec"]["ports"]}]
    assert settings.redis.url == f"redis://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/0"


def test_an_api_that_asks_for_no_key_is_closed_by_the_network(root: Path, base: list[Manifest]) -> None:
    settings = load_settings(root / "k8s" / "base" / "turnyard.yaml", environ={"REDIS_URL": "redis://x"})
    assert settings.platforms.http.allow_open
    pods = roles(base)["platform-http"]["spec"]["template"]["metadata"]["labels"]
    closed = [m for m in base if m["kind"] == "NetworkPolicy" and within(m["spec"]["podSelector"]["matchLabels"], pods)]
    assert [peer for m in closed for rule in m["spec"]["ingress"] for peer in rule["from"]] == [
        {"podSelector": {"matchLabels": {"turnyard.client": "true"}}}
    ]


async def test_the_sample_agent_of_the_cluster_answers(root: Path) -> None:
    app = load_app(str(root / "k8s" / "base" / "app" / "app.py") + ":app")
    answer = await app["hello"].run("add 2 and 3")
    assert answer.text == "2 + 3 = 5"
