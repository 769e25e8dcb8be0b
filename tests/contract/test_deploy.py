"""What `deploy/` names exists: settings, addresses, ports, metrics, paths of the image, and the file that tests run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from mcp_optimizer.config.settings import PREFIX, Settings
from tests.cluster import HAPROXY_FILE, NAMES

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))
KINDS = {one["kind"]: one for one in OBJECTS}
POD = KINDS["Deployment"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
KUBERNETES = {one["name"]: one.get("value", "") for one in CONTAINER["env"]} | KINDS["Secret"]["stringData"]
GATEWAYS = {name: COMPOSE["services"][name] for name in NAMES}
IMAGE = runpy.run_path(str(ROOT / "scripts" / "dockerfile.py"), run_name="dockerfile")
STEPS: list[Any] = IMAGE["steps_of"](ROOT / "Dockerfile")
IMAGE_TEXT = " ".join(step.text for step in STEPS)
OUTSIDE = {f"{PREFIX}SECRET_KEY"}
"""Read from the environment, and no setting; named in docs/secrets.md."""


@pytest.mark.parametrize("named", [*(one["environment"] for one in GATEWAYS.values()), KUBERNETES])
def test_every_variable_is_a_setting(named: dict[str, str]) -> None:
    ours = {name for name in named if name.startswith(PREFIX)} - OUTSIDE
    assert ours
    assert {name.removeprefix(PREFIX).lower() for name in ours} <= set(Settings.model_fields)
    assert f"{PREFIX}SECRET_KEY" in (ROOT / "docs" / "secrets.md").read_text()


def test_haproxy_asks_the_gateways_of_the_compose_file_and_the_tests_run_its_file() -> None:
    text = HAPROXY_FILE.read_text()
    ports = {one["environment"][f"{PREFIX}HTTP"].rpartition(":")[2] for one in GATEWAYS.values()}
    assert ports == {"8080"}
    for number, name in enumerate(NAMES, 1):
        assert f'server {name} "${{GATEWAY_{number}-{name}:8080}}"' in text
    balancer = COMPOSE["services"]["balancer"]
    assert f"./{HAPROXY_FILE.name}:/usr/local/etc/haproxy/haproxy.cfg:ro" in balancer["volumes"]
    assert HAPROXY_FILE.parent == DEPLOY
    assert balancer["ports"] == ["127.0.0.1:8080:8080"]
    # Whatever may have reached a gateway is not sent to another one.
    assert re.findall(r"^ *retry-on (.*)$", text, re.MULTILINE) == ["conn-failure"]


def test_a_stopping_gateway_has_the_time_that_it_was_promised() -> None:
    for one in GATEWAYS.values():
        most = float(one["environment"][f"{PREFIX}SHUTDOWN_TIMEOUT"])
        assert float(one["environment"][f"{PREFIX}SHUTDOWN_DELAY"]) < most
        assert float(one["stop_grace_period"].removesuffix("s")) >= most + 5
    most, delay = (float(KUBERNETES[f"{PREFIX}SHUTDOWN_{what}"]) for what in ("TIMEOUT", "DELAY"))
    ready = CONTAINER["readinessProbe"]
    assert ready["periodSeconds"] * ready["failureThreshold"] + ready["timeoutSeconds"] < delay < most
    assert POD["terminationGracePeriodSeconds"] >= most + 5


def test_probes_ask_what_the_gateway_serves() -> None:
    [port] = CONTAINER["ports"]
    assert str(port["containerPort"]) == KUBERNETES[f"{PREFIX}HTTP"].rpartition(":")[2]
    asked = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: one["path"] for name, one in asked.items()} == {
        "startup": "/health",
        "liveness": "/health",
        "readiness": "/ready",
    }
    assert {one["port"] for one in asked.values()} == {port["name"]}
    assert KINDS["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    # Prometheus asks pods by their addresses.
    assert "$(POD_IP):8080" in KUBERNETES[f"{PREFIX}ALLOWED_HOSTS"].split(",")


def test_objects_name_each_other() -> None:
    labels = KINDS["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        KINDS["Deployment"]["spec"]["selector"]["matchLabels"],
        KINDS["Service"]["spec"]["selector"],
        KINDS["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
    ):
        assert selector == labels
    assert KINDS["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == KINDS["Deployment"]["metadata"]["name"]
    assert CONTAINER["envFrom"] == [{"secretRef": {"name": KINDS["Secret"]["metadata"]["name"]}}]
    assert POD["volumes"][0]["configMap"]["name"] == KINDS["ConfigMap"]["metadata"]["name"]
    mounted = {one["name"] for one in CONTAINER["volumeMounts"]}
    assert mounted == {one["name"] for one in POD["volumes"]}


def test_autoscaling_uses_gauges_that_are_served() -> None:
    used = {
        one["pods"]["metric"]["name"]
        for one in KINDS["HorizontalPodAutoscaler"]["spec"]["metrics"]
        if one["type"] == "Pods"
    }
    gauges = (ROOT / "src/mcp_optimizer/metrics/prometheus.py").read_text()
    assert used
    assert {name for name in used if f'"{name.removeprefix("mcp_optimizer_")}"' not in gauges} == set()


def test_the_image_has_what_both_files_expect_of_it() -> None:
    security = POD["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == STEPS[[s.word for s in STEPS].index("USER")].text
    assert "XDG_CONFIG_HOME=/config" in IMAGE_TEXT
    assert "[postgres]" in IMAGE_TEXT, "the driver"
    places = {one["mountPath"] for one in CONTAINER["volumeMounts"]}
    assert {"/config/mcp-optimizer", "/data"} <= places
    for one in GATEWAYS.values():
        assert one["volumes"] == ["../mcp.json:/config/mcp-optimizer/mcp.json:ro"]
        assert (one["read_only"], one["cap_drop"]) == (True, ["ALL"])


def test_no_secret_stands_in_the_files() -> None:
    assert {value for name, value in KINDS["Secret"]["stringData"].items() if "DATABASE" not in name} == {"replace-me"}
    assert ":replace-me@" in KINDS["Secret"]["stringData"][f"{PREFIX}DATABASE"]
    for one in COMPOSE["services"].values():
        for name, value in one.get("environment", {}).items():
            assert not re.search("PASSWORD|KEY|DATABASE", name) or "${" in value


def test_the_page_shows_the_file_that_is_run() -> None:
    page = (ROOT / "docs" / "many-gateways.md").read_text()
    for name in ("haproxy.cfg", "compose.yaml", "kubernetes.yaml"):
        assert f"(../deploy/{name})" in page
