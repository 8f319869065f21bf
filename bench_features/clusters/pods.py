"""What Kubernetes says of a worker's workload, pods and events, as the launcher needs it. Pure: JSON objects in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from bench_common.safe_text import shorten
from bench_features.clusters.cluster import (
    ONCE_LABEL,
    OWNER_LABEL,
    SETTINGS_LABEL,
    STARTED_BY,
    PlacedWorker,
    StartState,
)

Json = Mapping[str, Any]
"""An object of the API."""

FATAL: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImagePullBackOff",
        "InvalidImageName",
    }
)
"""Reasons for which a container waits, and that no time cures."""
STARTED: Final = frozenset(("Pulled", "Created", "Started"))
"""Reasons of the events that follow when the image is there."""
PREVENTING: Final = {
    **dict.fromkeys(
        ("FailedCreate", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"), STARTED | {"Pulling"}
    ),
    "Failed": STARTED,
}
"""Reasons of the warnings that keep a pod from starting, each with those of the events that show that it is over.

Others, such as a missing cluster DNS, do not keep it. The condition says whether it has no node, while that is true.
"""
REASON_LENGTH: Final = 600
"""Length of a reason (characters)."""


def placed_worker(workload: Json) -> PlacedWorker:
    """Return what a Job or DaemonSet says of its worker; one that is being deleted is not alive."""
    metadata = workload["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    conditions = (workload.get("status") or {}).get("conditions") or ()
    ended = any(each["type"] in ("Complete", "Failed") and each["status"] == "True" for each in conditions)
    return PlacedWorker(
        alive=not ended and "deletionTimestamp" not in metadata,
        owner=labels.get(OWNER_LABEL, ""),
        once=ONCE_LABEL in labels,
        settings=labels.get(SETTINGS_LABEL, ""),
        started_by=annotations.get(STARTED_BY, ""),
    )


def start_state(pods: Sequence[Json], last_lines: Callable[[], str]) -> StartState:
    """Return how far the pod of a worker has come; `last_lines` returns the end of its log."""
    if not pods:
        return StartState("waiting", "no pod was created for it")
    status = pods[0].get("status") or {}
    phase = status.get("phase")
    if phase == "Running":
        return StartState("running")
    if phase in ("Succeeded", "Failed"):
        words = [_ending(status), last_lines()]
        return StartState("failed", shorten(f"its pod has ended: {'; '.join(filter(None, words))}", REASON_LENGTH))
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            return StartState("unplaced", shorten(str(condition.get("message") or "unschedulable"), REASON_LENGTH))
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in FATAL:
            return StartState("failed", shorten(f"{waiting['reason']}: {waiting.get('message', '')}", REASON_LENGTH))
    return StartState("waiting", "its pod is pending")


def ending(pods: Sequence[Json], last_lines: Callable[[], str]) -> str | None:
    """Return how the pod of a worker that had been running ended, or that its node is gone; None if it runs on."""
    if not pods:
        return "its pod is gone: somebody deleted it, or Kubernetes did"
    state = start_state(pods, last_lines)
    return state.reason if state.state == "failed" else silent_node(pods)


def silent_node(pods: Sequence[Json]) -> str | None:
    """Return that the node of a worker's pod is gone; None if it is there, as far as the pod itself shows.

    To look at nodes takes a right that a namespace cannot give. A kubelet that calls its pod not ready says why, and
    which container is not; the control plane, when it misses a node, changes the condition of its pods alone.
    """
    for pod in pods[:1]:
        status = pod.get("status") or {}
        conditions = status.get("conditions") or ()
        unready = any(
            each["type"] == "Ready" and each["status"] == "False" and not each.get("reason") for each in conditions
        )
        if unready and any(container.get("ready") for container in status.get("containerStatuses") or ()):
            return f"node {(pod.get('spec') or {}).get('nodeName')} is not ready: the cluster has not heard from it"
    return None


def explained(state: StartState, events: Sequence[Json]) -> StartState:
    """Return the state of a worker that waits, with the newest warning of what prevents its start.

    A warning is over when what it prevented has happened since: a volume may be mounted at the second try. Sentences
    go before mere codes: after "Failed to pull image NAME ..." comes "Error: ImagePullBackOff".
    """
    telling = [event for event in events if event.get("reason") in PREVENTING and not _is_over(event, events)]
    if not telling:
        return state
    newest = max(telling, key=lambda event: (not str(event.get("message", "")).startswith("Error: "), _time(event)))
    return StartState("unplaced", shorten(f"{newest.get('reason', '')}: {newest.get('message', '')}", REASON_LENGTH))


def _is_over(warning: Json, events: Sequence[Json]) -> bool:
    shown_by = PREVENTING[warning["reason"]]
    return any(event.get("reason") in shown_by and _time(event) >= _time(warning) for event in events)


def _time(event: Json) -> str:
    """Return when an event was last seen, so that texts with and without fractions of a second sort by time."""
    time = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp") or ""
    return str(time).removesuffix("Z")


def _ending(status: Json) -> str:
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated") or {}
        if ended:
            message = ended.get("message")
            return f"{ended.get('reason', 'ended')}, exit code {ended.get('exitCode')}" + (
                f", {message}" if message else ""
            )
    return str(status.get("message") or status.get("reason") or "")
