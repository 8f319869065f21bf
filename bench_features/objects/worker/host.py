"""Whether object stores can be used from a worker's host: their URL, the login, a storage policy, a new container.

A login, and a listing of containers, may be granted where nothing can be written: another region, a quota that is
used up, a user who may only read. So a container is made and deleted again, unless a base's is there already.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bench_features.objects.common.access import ALL_VARIABLES, find_access
from bench_features.objects.common.rules import as_objects
from bench_features.objects.worker.base import StoreOptions
from bench_features.objects.worker.names import Names
from bench_features.objects.worker.population import Phase, tried
from bench_features.objects.worker.registry import open_store, server_processes
from bench_features.objects.worker.server_cost import ServerSampler, addresses_of
from bench_worker.host_part import HostPart

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_common.job_kind import Job
    from bench_features.objects.common.job import Objects
    from bench_features.objects.worker.base import Store

TIMEOUT_S: Final = 30.0
"""Timeout of each call of a store, in seconds."""
RUN_ID_BYTES: Final = 6
"""The bytes of a run's id, twelve hexadecimal digits."""


class StoreHost(HostPart):
    """Logs in to a store, once for each need."""

    environment = frozenset(ALL_VARIABLES)
    check = "store"
    fine = "answers, and accepts the credentials"
    advice = "docs/objects.rst explains credentials; a store to try with: script/store start"

    def describe(self, engine: str, job: Job) -> str:
        """Return the store, and the profile that says how it is reached."""
        profile = as_objects(job).profile
        return f"store {engine}" + (f" (profile {profile})" if profile else "")

    def short(self, engine: str, job: Job) -> str:
        """Return store and profile as ``bench-master doctor --store`` takes them."""
        profile = as_objects(job).profile
        return f"{engine}:{profile}" if profile else engine

    def find_problem(self, engine: str, job: Job, variables: Mapping[str, str]) -> list[str]:
        """Return what is wrong with the options of a store that could be opened; raise why it could not be."""
        need = as_objects(job)
        options = StoreOptions(timeout_s=TIMEOUT_S, policy=need.policy, delete_after_s=need.delete_after_s)
        store = open_store(find_access(engine, need.profile, variables).at(need.endpoints), options)
        try:
            return store.check() or find_write_problem(store, need)
        finally:
            store.close()

    def servers(self, engine: str, job: Job, variables: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        """Return where the endpoints and the login of a store are."""
        need = as_objects(job)
        access = find_access(engine, need.profile, variables).at(need.endpoints)
        return addresses_of((*access.endpoints, access.auth_url))

    def server_processes(self, engines: Iterable[str]) -> frozenset[str]:
        """Return what the processes of stores' servers are called."""
        return server_processes(engines)

    def cost_sampler(self, engine: str, job: Job, variables: Mapping[str, str]) -> ServerSampler:
        """Return what samples the processes of the store's server, where they are on this host."""
        need = as_objects(job)
        options = StoreOptions(timeout_s=TIMEOUT_S)
        store = open_store(find_access(engine, need.profile, variables).at(need.endpoints), options)
        try:
            return ServerSampler(store.endpoints, self.server_processes([engine]))
        finally:
            store.close()


def find_write_problem(store: Store, need: Objects) -> list[str]:
    """Return why no container can be made in an open store, or deleted again; make and delete one.

    It has the name of one of ours, of a run that never was, so that a clean-up finds it. The first container of a
    base that is there already is all that the jobs need: whoever may only use it is not asked for more.
    """
    phase = Phase("populate", endpoints=len(store.endpoints))
    with closing(store.slot(0)) as slot:
        if need.container_base:
            first = store.container_name(Names.of(need, "", 0, 0).containers[0])
            if tried(slot, lambda: slot.list_objects(first, limit=1), phase).ok:
                return []
        (name,) = Names.of(
            replace(need, container_base="", containers=1), secrets.token_hex(RUN_ID_BYTES), 0, 0
        ).containers
        container = store.container_name(name)
        for what, call in (("made", slot.make_container), ("deleted again", slot.delete_container)):
            answer = tried(slot, lambda call=call: call(container), phase)  # type: ignore[misc]
            if not answer.ok:
                return [
                    f"{store.endpoints[0]}: container {container} cannot be {what}: {answer.message} ({answer.kind})"
                ]
    return []
