"""Launcher `kubernetes`: a Job (or a DaemonSet) for each worker, bound to its node, applied with the user's kubectl.

Each worker has a Secret with its key, which goes to kubectl through stdin. The image must contain Weighbridge.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from bench_common.errors import InfrastructureError
from bench_master.fleet.hosts import FleetHost
from bench_master.fleet.launchers.cluster import LABEL, ClusterLauncher, run_tool

KEY_FOLDER: Final = "/etc/weighbridge"
KINDS: Final = {"job": "Job", "daemonset": "DaemonSet"}
GRACE_S: Final = 60
"""Time for a worker to clean up before its pod is killed (s)."""


class KubernetesLauncher(ClusterLauncher):
    """Nodes of a Kubernetes cluster, by ``address`` (the value of their host-name label)."""

    name = "kubernetes"
    settings: ClassVar[Mapping[str, str]] = {
        "image": "an image that contains Weighbridge",
        "namespace": "namespace (default: the one of kubectl's context)",
        "context": "kubectl context (default: the current one)",
        "kind": "job (default), or daemonset, which restarts a worker that dies",
        "node_label": "label that identifies nodes (default: kubernetes.io/hostname)",
        "engine_socket": "socket of the node's container engine to mount (default: none)",
    }

    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Apply the manifest; if nothing of it changes, the worker runs already."""
        manifest = self.manifest(host, worker, address)
        printed = run_tool([*self._kubectl(host), "apply", "-f", "-"], json.dumps(manifest))
        if printed.strip() and all(line.endswith("unchanged") for line in printed.strip().splitlines()):
            return ""
        return f"{self._kind(host)} {_resource_name(worker)}, master {address}"

    def manifest(self, host: FleetHost, worker: str, address: str) -> dict[str, Any]:
        """Return the Secret and the Job or DaemonSet of a worker."""
        kind = self._kind(host)
        name = _resource_name(worker)
        labels = {LABEL: worker}
        metadata = {"name": name, "labels": labels}
        pod: dict[str, Any] = {
            "restartPolicy": "Always" if kind == "DaemonSet" else "Never",
            "nodeSelector": {self.setting(host, "node_label", "kubernetes.io/hostname"): host.login.address},
            # The host is measured: no network between it and the worker, and no token of the cluster in the pod.
            "hostNetwork": True,
            "dnsPolicy": "ClusterFirstWithHostNet",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": GRACE_S,
            "containers": [self._container(host, worker, address)],
            "volumes": [{"name": "key", "secret": {"secretName": name, "defaultMode": 0o400}}],
        }
        socket = host.settings.get("engine_socket")
        if socket is not None:
            pod["containers"][0]["volumeMounts"].append({"name": "engine", "mountPath": socket})
            pod["volumes"].append({"name": "engine", "hostPath": {"path": socket, "type": "Socket"}})
        template = {"metadata": {"labels": labels}, "spec": pod}
        if kind == "DaemonSet":
            workload = {"apiVersion": "apps/v1", "spec": {"selector": {"matchLabels": labels}, "template": template}}
        else:
            workload = {"apiVersion": "batch/v1", "spec": {"backoffLimit": 0, "template": template}}
        key = self.launch_spec.key_file_of(worker).read_text("ascii")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"worker.key": key}}
        return {
            "apiVersion": "v1",
            "kind": "List",
            "items": [secret, {**workload, "kind": kind, "metadata": metadata}],
        }

    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Delete everything with the worker's label, and wait until it is deleted."""
        printed = run_tool(
            [
                *self._kubectl(host),
                "delete",
                "job,daemonset,secret",
                "--selector",
                f"{LABEL}={worker}",
                "--ignore-not-found",
                "--wait=true",
                "--cascade=foreground",
            ],
            timeout_s=GRACE_S * 3,
        )
        return "ended" if "deleted" in printed else "was not running"

    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return the log of the worker's pod."""
        return run_tool([*self._kubectl(host), "logs", "--selector", f"{LABEL}={worker}", "--tail=-1"])

    def _container(self, host: FleetHost, worker: str, address: str) -> dict[str, Any]:
        key = f"{KEY_FOLDER}/worker.key"
        return {
            "name": "worker",
            "image": self.setting(host, "image"),
            "command": self.command(host, worker, address, key=key, python="python3"),
            "env": [{"name": name, "value": value} for name, value in host.env.items()],
            "volumeMounts": [{"name": "key", "mountPath": KEY_FOLDER, "readOnly": True}],
        }

    def _kind(self, host: FleetHost) -> str:
        kind = self.setting(host, "kind", "job")
        if kind not in KINDS:
            raise InfrastructureError(f"setting 'kind': {kind!r}: expected one of {', '.join(KINDS)}")
        return KINDS[kind]

    @staticmethod
    def _kubectl(host: FleetHost) -> list[str]:
        flags = {"context": host.settings.get("context"), "namespace": host.settings.get("namespace")}
        return ["kubectl", *(f"--{name}={value}" for name, value in flags.items() if value is not None)]


def _resource_name(worker: str) -> str:
    """Return a worker's name as Kubernetes allows it: lower-case letters, digits and dashes, and unique."""
    plain = re.sub(r"[^a-z0-9-]", "-", worker.lower()).strip("-")[:40]
    suffix = "" if plain == worker else f"-{hashlib.sha256(worker.encode()).hexdigest()[:6]}"
    return f"weighbridge-{plain}{suffix}"
