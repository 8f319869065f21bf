"""Who is told what at first: a master of this worker and its host, the load process of its run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from bench_worker.own_address import own_address

if TYPE_CHECKING:
    from bench_common.clock import Offset
    from bench_common.messages import Message
    from bench_worker.agent_options import AgentOptions


def hello_of(options: AgentOptions, info: dict[str, Any], offset: Offset | None, sent_ns: int) -> dict[str, Any]:
    """Return the fields of a hello. `info` says what the host is, `offset` how far the master's clock is ahead."""
    present: dict[str, Any] = {"load": os.getloadavg()[0]}
    if offset is not None:
        present["clock"] = {"offset_ns": offset.offset_ns, "bound_ns": offset.bound_ns}
    return {
        "worker_id": options.worker_id,
        "environment": options.environment,
        "slots": options.slots,
        "sent_ns": sent_ns,
        "info": {
            **info,
            **present,
            "labels": options.labels,
            "allow_host_mounts": options.allow_host_mounts,
            "allow_swapoff": options.allow_swapoff,
        },
    }


def orders_of(options: AgentOptions, welcome: Message) -> dict[str, Any]:
    """Return what the load process has to know of the run that a welcome is to."""
    key = options.key
    return {
        "run_id": welcome["run_id"],
        "worker_id": options.worker_id,
        "epoch": welcome.epoch,
        "slots": options.slots,
        "lane": _seen_from_here(welcome["lane"], options.control),
        "results": _seen_from_here(welcome["results"], options.control),
        "noop": welcome["noop"],
        "keep": welcome["keep"],
        "profile": welcome["profile"],
        "allow_host_mounts": options.allow_host_mounts,
        "allow_swapoff": options.allow_swapoff,
        "address": own_address(options.control, options.address),
        "keys": None if key is None else (key.keys.public, key.keys.secret, key.master_public),
    }


def _seen_from_here(endpoint: str, control: str) -> str:
    """Return an endpoint of the master: it names the port, `control` the host as it is called from here."""
    if not endpoint.startswith("tcp://"):
        return endpoint
    host = control.removeprefix("tcp://").rpartition(":")[0]
    return f"tcp://{host}:{endpoint.rpartition(':')[2]}"
