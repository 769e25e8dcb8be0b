"""Makes a Helm chart from deploy/kubernetes.yaml: the same objects, with what differs between clusters as values.

Called by `make_stores.py`. With the default values, the chart gives exactly the objects of that file; a test renders
it. Uses of values stay plain (`{{ .Values.x }}`, `toJson`), so that YAML of any shape stays YAML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

VALUES: Mapping[str, tuple[Any, str]] = {
    "image": ("mcp-optimizer", "the image, with its registry and version"),
    "replicas": (3, "gateways at the start, and the least that the autoscaler keeps"),
    "maxReplicas": (12, "the most that the autoscaler starts"),
    "allowedHosts": (
        "mcp-optimizer:8080,mcp-optimizer.example.com,$(POD_IP):8080",
        "names under which clients reach the service; the last is how Prometheus asks each pod",
    ),
    "existingSecret": ("", "a secret of yours with the three variables below; then none is made"),
    "database": ("postgresql://optimizer:replace-me@postgres:5432/optimizer", "PostgreSQL, which is not part of this"),
    "secretKey": ("replace-me", "openssl rand -base64 32; the same for all gateways"),
    "dashboardToken": ("replace-me", "what Prometheus sends as a bearer token to /metrics"),
    "servers": ({"example": {"type": "http", "url": "https://example.com/mcp"}}, "your servers, as in mcp.json"),
    "resources": ({"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}}, "of each gateway"),
    "podMetrics": (True, "whether an adapter serves Prometheus metrics of pods to the autoscaler"),
}
"""Each value with its default and its meaning."""

_REPLACED: Mapping[str, str] = {
    "MCP_OPTIMIZER_DATABASE: postgresql://optimizer:replace-me@postgres:5432/optimizer": (
        "MCP_OPTIMIZER_DATABASE: {{ .Values.database | toJson }}"
    ),
    "MCP_OPTIMIZER_SECRET_KEY: replace-me": "MCP_OPTIMIZER_SECRET_KEY: {{ .Values.secretKey | toJson }}",
    "MCP_OPTIMIZER_DASHBOARD_TOKEN: replace-me": (
        "MCP_OPTIMIZER_DASHBOARD_TOKEN: {{ .Values.dashboardToken | toJson }}"
    ),
    '{"mcpServers": {"example": {"type": "http", "url": "https://example.com/mcp"}}}': (
        '{"mcpServers": {{ .Values.servers | toJson }}}'
    ),
    "image: mcp-optimizer  # yours": "image: {{ .Values.image | toJson }}",
    "  replicas: 3": "  replicas: {{ .Values.replicas }}",
    "minReplicas: 3": "minReplicas: {{ .Values.replicas }}",
    "maxReplicas: 12": "maxReplicas: {{ .Values.maxReplicas }}",
    "value: mcp-optimizer:8080,mcp-optimizer.example.com,$(POD_IP):8080": "value: {{ .Values.allowedHosts | toJson }}",
    "name: mcp-optimizer\n": "name: {{ .Release.Name }}\n",
    "app: mcp-optimizer\n": "app: {{ .Release.Name }}\n",
}
_VARIABLES = "          envFrom:\n            - secretRef:\n                name: {{ .Release.Name }}\n"
_RESOURCES = (
    "          resources:\n            requests: {cpu: 500m, memory: 256Mi}\n            limits: {memory: 1Gi}\n"
)


def chart_files(kubernetes: str, name: str, version: str, description: str) -> dict[str, str]:
    """The files of the chart by their names."""
    about = {
        "apiVersion": "v2",
        "name": name,
        "description": description,
        "type": "application",
        "version": version,
        "appVersion": version,
    }
    files = {
        "Chart.yaml": yaml.safe_dump(about, sort_keys=False, width=200),
        "values.yaml": _values(),
        "templates/NOTES.txt": _NOTES,
    }
    for text in _objects(kubernetes):
        kind = str(yaml.safe_load(text)["kind"]).lower()
        files[f"templates/{kind}.yaml"] = _template(kind, text)
    return files


def _objects(kubernetes: str) -> list[str]:
    """The objects, without what is said before the first."""
    first, *others = kubernetes.split("\n---\n")
    return [first[first.index("apiVersion:") :] + "\n", *(text.rstrip("\n") + "\n" for text in others)]


def _values() -> str:
    lines = ["# Made from deploy/kubernetes.yaml by scripts/make_stores.py; docs/many-gateways.md says more."]
    for key, (default, meaning) in VALUES.items():
        lines += [f"# {meaning}", f"{key}: {json.dumps(default)}"]
    return "\n".join(lines) + "\n"


def _template(kind: str, text: str) -> str:
    for plain, template in _REPLACED.items():
        text = text.replace(plain, template)
    text = text.replace(_RESOURCES, "          resources: {{ .Values.resources | toJson }}\n")
    chosen = "                name: {{ .Values.existingSecret | default .Release.Name }}\n"
    text = text.replace(_VARIABLES, _VARIABLES.rpartition("                name:")[0] + chosen)
    if kind == "secret":
        return "{{- if not .Values.existingSecret }}\n" + text + "{{- end }}\n"
    if kind == "horizontalpodautoscaler":
        before, metric, after = text.partition("    - type: Pods\n")
        return before + "{{- if .Values.podMetrics }}\n" + metric + after + "{{- end }}\n"
    return text


_NOTES = """A gateway that nobody has a key for does not start. Make the first key where the database can be reached:

  MCP_OPTIMIZER_DATABASE=postgresql://... mcp-optimizer-gateway key create --name me

Clients then connect to http://{{ .Release.Name }}:8080/mcp, or through your ingress.
"""
