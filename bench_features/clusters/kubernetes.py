"""Launcher `kubernetes`: a Job (or a DaemonSet) for each worker, bound to its node, made with the user's kubectl.

Each worker has a Secret with its key, which goes to kubectl through stdin. The image must contain Weighbridge.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, ClassVar, Final

from bench_common.errors import InfrastructureError
from bench_features.clusters.cluster import (
    LABEL,
    LAST_LINES,
    OWNER_LABEL,
    POLL_S,
    STARTED_BY,
    ClusterLauncher,
    PlacedWorker,
    StartState,
    object_name,
    run_tool,
)
from bench_features.clusters.pods import Json, ending, explained, placed_worker, silent_node, start_state
from bench_features.fleet.hosts import FleetHost
from bench_master.run.endpoints import describe_master

KEY_FOLDER: Final = "/etc/weighbridge"
KINDS: Final = {"job": "Job", "daemonset": "DaemonSet"}
GRACE_S: Final = 60
"""Time for a worker to clean up before its pod is killed (s)."""
END_S: Final = GRACE_S + 30
"""How long a deleted pod is waited for (s), unless its node is known to be silent: by default a cluster takes 50 s to
notice that."""
KEPT_S: Final = 60
"""How long the cluster keeps the Job of a run after its worker has exited (s): until then its log can be read."""


class KubernetesLauncher(ClusterLauncher):
    """Nodes of a Kubernetes cluster, by ``address`` (the value of their host-name label)."""

    name = "kubernetes"
    settings: ClassVar[Mapping[str, str]] = {
        "image": "an image that contains Weighbridge",
        "namespace": "namespace (default: the one of kubectl's context)",
        "context": "kubectl context (default: the current one)",
        "kind": "job (default), or daemonset, which restarts a worker that dies; the worker of a run is always a job",
        "node_label": "label that identifies nodes (default: kubernetes.io/hostname)",
        "engine_socket": "socket of the node's container engine to mount (default: none)",
    }

    def find_worker(self, host: FleetHost, worker: str) -> PlacedWorker | None:
        """Look for the worker's Job or DaemonSet."""
        words = ["get", "job,daemonset", "--selector", f"{LABEL}={worker}", "--output", "json"]
        found = json.loads(run_tool([*self._kubectl(host), *words]) or "{}").get("items", ())
        return next((placed_worker(workload) for workload in found), None)

    def start_worker(self, host: FleetHost, worker: str, address: str) -> str:
        """Create the Secret and the workload that owns it, and wait until the pod runs."""
        kubectl, kind = self._kubectl(host), self._kind(host)
        secret, workload = self.manifest(host, worker, address)["items"]
        name = workload["metadata"]["name"]
        # Created for good: what has this name already is left of somebody else.
        run_tool([*kubectl, "create", "-f", "-"], json.dumps(secret))
        made = run_tool([*kubectl, "create", "-f", "-", "--output", "jsonpath={.metadata.uid}"], json.dumps(workload))
        # So that the cluster removes the Secret with the workload, whoever removes that.
        owner = {"apiVersion": workload["apiVersion"], "kind": kind, "name": name, "uid": made.strip()}
        patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
        run_tool([*kubectl, "patch", "secret", name, "--type", "merge", "--patch", patch])
        self.await_start(lambda: self._look(host, worker, name))
        return f"{kind} {name}, master {address}"

    def manifest(self, host: FleetHost, worker: str, address: str) -> dict[str, Any]:
        """Return the Secret and the Job or DaemonSet of a worker."""
        kind = self._kind(host)
        # A name for a run is of this run alone, whoever removes it later.
        name = object_name(worker, self.launch_spec.owner_id if self.launch_spec.once else "")
        labels = {LABEL: worker}
        metadata = {
            "name": name,
            "labels": self.labels(host, worker, address),
            "annotations": {STARTED_BY: describe_master()},
        }
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
        template = {"metadata": {"labels": self.labels(host, worker, address)}, "spec": pod}
        if kind == "DaemonSet":
            workload = {"apiVersion": "apps/v1", "spec": {"selector": {"matchLabels": labels}, "template": template}}
        else:
            kept = {"ttlSecondsAfterFinished": KEPT_S} if self.launch_spec.once else {}
            workload = {"apiVersion": "batch/v1", "spec": {"backoffLimit": 0, **kept, "template": template}}
        key = self.launch_spec.key_file_of(worker).read_text("ascii")
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"worker.key": key}}
        return {
            "apiVersion": "v1",
            "kind": "List",
            "items": [secret, {**workload, "kind": kind, "metadata": metadata}],
        }

    def stop_worker(self, host: FleetHost, worker: str) -> str:
        """Delete everything with the worker's label, and wait until its pod has ended.

        Raises `InfrastructureError` if that cannot be told: the pod of a node that is gone stays until the node is
        back, or is taken out of the cluster.
        """
        words = ["--selector", f"{LABEL}={worker}", "--ignore-not-found", "--cascade=background", "--timeout=60s"]
        printed = run_tool([*self._kubectl(host), "delete", "job,daemonset,secret", *words])
        deadline = monotonic() + END_S
        while pods := self._pods(host, f"{LABEL}={worker}"):
            silent = silent_node(pods)
            if silent is not None or monotonic() > deadline:
                reason = silent or f"it has not ended within {END_S} s"
                raise InfrastructureError(
                    f"pod {pods[0]['metadata']['name']} is deleted and still listed: {reason}; Kubernetes ends what "
                    "is left of it when the node is back, and forgets it when the node is taken out of the cluster"
                )
            sleep(POLL_S)
        return "ended" if "deleted" in printed else "was not running"

    def explain_end(self, host: FleetHost, worker: str) -> str | None:
        """Return how the pod of a worker ended, or that its node is gone; None if it runs on."""
        return ending(self._pods(host, self._own(worker)), lambda: self._last_lines(host, worker))

    def removal(self, host: FleetHost, worker: str) -> list[list[str]]:
        """Return the command that deletes what has the worker's label and this master's."""
        words = ["delete", "job,secret", "--selector", self._own(worker), "--ignore-not-found", "--wait=false"]
        return [[*self._kubectl(host), *words]]

    def read_log(self, host: FleetHost, worker: str) -> str:
        """Return the log of the worker's pod."""
        return run_tool([*self._kubectl(host), "logs", "--selector", f"{LABEL}={worker}", "--tail=-1"])

    def _look(self, host: FleetHost, worker: str, name: str) -> StartState:
        pods = self._pods(host, self._own(worker))
        state = start_state(pods, lambda: self._last_lines(host, worker))
        if state.state != "waiting":
            return state
        about = pods[0]["metadata"]["name"] if pods else name
        with suppress(InfrastructureError):  # events may be hidden from this user
            words = ["get", "events", "--field-selector", f"involvedObject.name={about}", "--output", "json"]
            return explained(state, json.loads(run_tool([*self._kubectl(host), *words]) or "{}").get("items", ()))
        return state

    def _own(self, worker: str) -> str:
        """Return the selector of what this master made for a worker."""
        return f"{LABEL}={worker},{OWNER_LABEL}={self.launch_spec.owner_id}"

    def _pods(self, host: FleetHost, selector: str) -> list[Json]:
        listed = run_tool([*self._kubectl(host), "get", "pods", "--selector", selector, "--output", "json"])
        found: list[Json] = json.loads(listed or "{}").get("items", [])
        return found

    def _last_lines(self, host: FleetHost, worker: str) -> str:
        """Return the end of a worker's log; nothing if it cannot be read."""
        with suppress(InfrastructureError):
            words = ["logs", "--selector", self._own(worker), f"--tail={LAST_LINES}"]
            return " ".join(run_tool([*self._kubectl(host), *words], timeout_s=10).split())
        return ""

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
        # A DaemonSet would start the worker of a run again and again.
        return "Job" if self.launch_spec.once else KINDS[kind]

    @staticmethod
    def _kubectl(host: FleetHost) -> list[str]:
        flags = {"context": host.settings.get("context"), "namespace": host.settings.get("namespace")}
        return ["kubectl", *(f"--{name}={value}" for name, value in flags.items() if value is not None)]
