"""Whether object stores can be used from a worker's host: their URL, the login, a storage policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_common.objects.access import ALL_VARIABLES, find_access
from bench_common.objects.rules import as_objects
from bench_worker.host_part import HostPart
from bench_worker.stores.base import StoreOptions
from bench_worker.stores.registry import open_store, server_processes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bench_common.job_kind import Job

TIMEOUT_S: Final = 30.0
"""Timeout of each call of a store, in seconds."""


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
            return store.check()
        finally:
            store.close()

    def server_processes(self, engines: Iterable[str]) -> frozenset[str]:
        """Return what the processes of stores' servers are called."""
        return server_processes(engines)
