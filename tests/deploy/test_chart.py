"""The Helm chart, rendered by Helm itself and held against Kubernetes' own schemas."""

import base64
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import helm_python
import kubernetes_validate
import pytest
import yaml

import quipu
from quipu.model.errors import SettingError
from quipu.model.settings_sources import (
    SECRET_SIZE_MIN,
    broker_settings,
    from_environment,
    from_properties,
)
from tests.harness.command import run_quipu

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "deploy" / "helm" / "quipu"
KUBERNETES = ("1.27", "1.31")
TWO_CHAINS = {
    "chains": [{"name": "a", "nodes": 3}, {"name": "b", "nodes": 2, "rack": "zone-2"}],
    "voters": 5, "settings": {"log.retention.hours": 24, "min.insync.replicas": 2},
}
Manifest = dict[str, Any]


def render(values: Mapping[str, Any], name: str = "prod") -> list[Manifest]:
    """Every manifest that `helm install` would send."""
    rendered = helm_python.Chart.load(CHART).render(dict(values), name=name, namespace="data")
    return [manifest for path, text in sorted(rendered.items()) if path.endswith(".yaml")
            for manifest in yaml.safe_load_all(text) if manifest]


def of_kind(manifests: list[Manifest], kind: str) -> list[Manifest]:
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def pods(manifests: list[Manifest]) -> Iterator[Manifest]:
    for manifest in of_kind(manifests, "StatefulSet"):
        yield manifest["spec"]["template"]["spec"]


def test_helm_finds_nothing_to_complain_about() -> None:
    """V18: strict lint, where every warning is an error."""
    report = helm_python.lint(CHART, strict=True)
    assert report["errors"] == []
    assert [each for each in report["messages"] if each["severity"] > 1] == []


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("values", [
    {}, TWO_CHAINS, {"antiAffinity": {"type": "preferred"}}, {"antiAffinity": {"type": "none"}},
    {"peerSecret": {"existingSecret": "mine"}, "storage": {"size": "1Ti",
                                                           "storageClassName": "fast"}},
], ids=["default", "two-chains", "preferred", "none", "own-secret"])
def test_kubernetes_takes_every_manifest(values: dict[str, Any], version: str) -> None:
    """V18: each manifest is valid against the strict schema of its kind."""
    manifests = render(values)
    assert {"StatefulSet", "Service", "ConfigMap", "PodDisruptionBudget", "Job"} <= {
        manifest["kind"] for manifest in manifests}
    for manifest in manifests:
        kubernetes_validate.validate(manifest, version, strict=True)


def test_a_chain_is_a_stateful_set_whose_pods_are_its_nodes() -> None:
    """V18, V6: one StatefulSet per chain, volumes that stay, one node taken down at a time."""
    manifests = render(TWO_CHAINS)
    sets = of_kind(manifests, "StatefulSet")
    assert [(each["metadata"]["name"], each["spec"]["replicas"]) for each in sets] == [
        ("prod-quipu-a", 3), ("prod-quipu-b", 2)]
    for each in sets:
        spec = each["spec"]
        assert spec["podManagementPolicy"] == "Parallel"
        assert spec["persistentVolumeClaimRetentionPolicy"] == {
            "whenDeleted": "Retain", "whenScaled": "Retain"}
        assert spec["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
        assert spec["template"]["spec"]["terminationGracePeriodSeconds"] > 30
    budgets = of_kind(manifests, "PodDisruptionBudget")
    for each, budget in zip(sets, budgets, strict=True):
        assert budget["spec"]["maxUnavailable"] == 1
        assert budget["spec"]["selector"] == each["spec"]["selector"]


def test_nodes_of_a_chain_stay_apart_and_find_each_other_before_they_are_ready() -> None:
    """V18, V5: anti-affinity by chain; a headless service that also names unready pods."""
    manifests = render({})
    (pod,) = pods(manifests)
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["topologyKey"] == "kubernetes.io/hostname"
    assert term["labelSelector"]["matchLabels"]["quipu/chain"] == "a"
    services = {each["metadata"]["name"]: each["spec"] for each in of_kind(manifests, "Service")}
    headless = services["prod-quipu-nodes"]
    assert headless["clusterIP"] == "None"
    assert headless["publishNotReadyAddresses"] is True
    assert of_kind(manifests, "StatefulSet")[0]["spec"]["serviceName"] == "prod-quipu-nodes"
    assert "publishNotReadyAddresses" not in services["prod-quipu"]


def test_probes_ask_what_a_node_truly_answers() -> None:
    """V18: live is not ready; a node that recovers is given time and is sent no clients."""
    (pod,) = pods(render({}))
    (container,) = pod["containers"]
    assert container["livenessProbe"]["httpGet"]["path"] == "/health/live"
    assert container["readinessProbe"]["httpGet"]["path"] == "/health/ready"
    startup = container["startupProbe"]
    assert startup["httpGet"]["path"] == "/health/live"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 600


def test_every_node_starts_with_settings_that_quipu_accepts() -> None:
    """V18: the rendered file and environment are settings, and ids are unique over all chains."""
    manifests = render(TWO_CHAINS)
    (config,) = of_kind(manifests, "ConfigMap")
    file = from_properties(config["data"]["quipu.properties"], "quipu.properties")
    ids = []
    for each in of_kind(manifests, "StatefulSet"):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        (command,) = container["args"]
        name = re.search(r'--name "(\w+)-\$\{HOSTNAME##\*-\}"', command)
        assert name is not None, command
        for number in range(each["spec"]["replicas"]):
            pod_name = f"{each['metadata']['name']}-{number}"
            environment = from_environment({
                item["name"]: environment_value(manifests, item).replace("$(POD_NAME)", pod_name)
                for item in container["env"]})
            settings = broker_settings(file, environment, from_properties(
                f"node.name={name[1]}-{number}", "--name"))
            ids.append(settings.own_id)
            assert len(settings.peer_secret or "") >= SECRET_SIZE_MIN
            assert settings.peer_secret not in config["data"]["quipu.properties"]
            if number == 0:
                voter = settings.controller_quorum_voters[len(ids) - 1]
                assert voter == (settings.own_id, settings.advertised_peer_listener)
    assert ids == [1, 2, 3, 1001, 1002]
    assert [voter.node_id for voter in settings.controller_quorum_voters] == ids
    assert settings.log_retention_hours == 24
    assert settings.broker_rack == "zone-2"


def environment_value(manifests: list[Manifest], item: Manifest) -> str:
    """What a pod finds in a variable, be it there or in a Secret of the chart."""
    if "valueFrom" not in item or "secretKeyRef" not in item["valueFrom"]:
        return str(item.get("value", "x"))
    wanted = item["valueFrom"]["secretKeyRef"]
    (secret,) = [each for each in of_kind(manifests, "Secret")
                 if each["metadata"]["name"] == wanted["name"]]
    return base64.b64decode(secret["data"][wanted["key"]]).decode()


def test_a_node_of_the_chart_does_not_start_without_a_strong_secret() -> None:
    """K8: pods listen on every address, so an own Secret that is too short is told at the start."""
    (config,) = of_kind(render({"peerSecret": {"existingSecret": "mine"}}), "ConfigMap")
    file = from_properties(config["data"]["quipu.properties"], "quipu.properties")
    container = next(pods(render({})))["containers"][0]
    names = [item["name"] for item in container["env"]]
    assert "QUIPU_PEER_SECRET" in names
    for value in ("", "short"):
        environment = from_environment({
            name: value or "x" if name == "QUIPU_PEER_SECRET" else "a-0.nodes:9094"
            for name in names if "ADVERTISED" in name or "SECRET" in name})
        with pytest.raises(SettingError, match=r"peer\.secret has fewer than 16"):
            broker_settings(file, environment, from_properties("node.name=a-0", "--name"))


def test_a_secret_does_not_get_into_the_config_map() -> None:
    """K8: `settings` go into a ConfigMap, which many can read."""
    with pytest.raises(Exception, match=r"invalid propertyName .peer\.secret."):
        render({"settings": {"peer.secret": "a secret that is long enough"}})


def test_pods_are_not_given_variables_that_look_like_settings() -> None:
    """V18: a service called quipu would otherwise put QUIPU_PORT into every pod."""
    manifests = render({}, name="quipu")
    assert [pod["enableServiceLinks"] for pod in pods(manifests)] == [False]
    (job,) = of_kind(manifests, "Job")
    assert job["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_the_job_that_makes_chains_uses_commands_that_exist() -> None:
    """V18, V6: all nodes of a chain are named, in order; it may run again."""
    (job,) = of_kind(render(TWO_CHAINS), "Job")
    (script,) = job["spec"]["template"]["spec"]["containers"][0]["args"]
    lines = [shlex.split(line) for line in script.splitlines() if line]
    assert [line[:6] for line in lines] == [
        ["quipu", "chain", "create", "a", "a-0", "a-1"],
        ["quipu", "chain", "create", "b", "b-0", "b-1"]]
    options = {word for line in lines for word in line if word.startswith("--")}
    shown = run_quipu("chain", "create", "--help").out
    assert all(option in shown for option in options), options


@pytest.mark.parametrize(("values", "message"), [
    ({"voters": 5}, "voters is 5, but all chains together have 3 nodes"),
    ({"voters": 2}, "voters"),
    ({"chains": []}, "chains"),
    ({"chains": [{"name": "A_b", "nodes": 3}]}, "name"),
    ({"storage": {"size": "lots"}}, "size"),
])
def test_values_that_cannot_be_are_refused(values: dict[str, Any], message: str) -> None:
    """V18: before anything is installed, with what is wrong."""
    with pytest.raises(helm_python.HelmError, match=message):
        render(values)


def test_the_chart_runs_the_version_that_it_comes_with() -> None:
    """V18: chart, image and program have one version."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == chart["version"] == quipu.__version__
