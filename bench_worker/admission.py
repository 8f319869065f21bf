"""What an agent says of its host to be admitted to a run, and what it passes its load process once it is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from bench_common.messages import Hello
from bench_worker.addresses import local_address, resolve_endpoint
from bench_worker.host import page_cache
from bench_worker.pipe_channel import CurveKeys, RunContext, StartRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench_common.clock import ClockOffset
    from bench_common.host_info import HostInfo
    from bench_common.messages import Welcome
    from bench_worker.cli import AgentOptions


def hello_message(options: AgentOptions, info: HostInfo, offset: ClockOffset | None, sent_ns: int) -> Hello:
    """Return a hello; `info` describes the host, `offset` is how far the master's clock is ahead."""
    present: HostInfo = {"load": os.getloadavg()[0]}
    if offset is not None:
        present["clock"] = {"offset_ns": offset.offset_ns, "uncertainty_ns": offset.uncertainty_ns}
    return Hello(
        epoch=0,
        worker_id=options.worker_id,
        environment=options.environment,
        slots=options.slots,
        sent_ns=sent_ns,
        info={
            **info,
            **present,
            "labels": options.labels,
            "allow_host_mounts": options.allow_host_mounts,
            "allow_foreign": options.allow_foreign,
            "allow_native": options.allow_native,
            "allow_swapoff": options.allow_swapoff,
            "allow_cold": options.allow_cold,
            "page_cache": page_cache.unusable_reason() if options.allow_cold else "",
            "allow_host_settings": list(options.allow_host_settings),
        },
    )


def start_message(
    options: AgentOptions, welcome: Welcome, store_variables: Mapping[str, str] | None = None
) -> StartRun:
    """Return the message that starts the run of a welcome in the load process."""
    key = options.key
    return StartRun(
        context=RunContext(
            run_id=welcome.spec.run_id,
            worker_id=options.worker_id,
            slots=options.slots,
            noop=welcome.spec.noop,
            keep=welcome.spec.keep,
            allow_host_mounts=options.allow_host_mounts,
            allow_foreign=options.allow_foreign,
            allow_native=options.allow_native,
            allow_swapoff=options.allow_swapoff,
            allow_cold=options.allow_cold,
            allow_host_settings=options.allow_host_settings,
            address=local_address(options.control, options.address),
        ),
        epoch=welcome.epoch,
        lane_endpoint=resolve_endpoint(welcome.lane_endpoint, options.control),
        results_endpoint=resolve_endpoint(welcome.results_endpoint, options.control),
        profile=welcome.spec.profile,
        keys=None if key is None else CurveKeys(key.keys.public, key.keys.secret, key.master_public),
        token=welcome.token,
        store_variables=dict(store_variables or {}),
    )
