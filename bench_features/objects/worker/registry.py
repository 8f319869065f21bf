"""Finds object stores through entry points, so that a third party adds one from a package of its own."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint

from bench_common import load_entry, registered
from bench_common.cli import check_choice
from bench_features.objects.common.access import Access
from bench_features.objects.common.store_names import STORES_GROUP, store_names
from bench_features.objects.worker.base import Store, StoreOptions, StoreUnavailable


def store_class(name: str) -> type[Store]:
    """Return the store of that name.

    Raises `UsageError`, with the nearest right spelling, for an unknown name, and `StoreUnavailable` for one that
    cannot be loaded.
    """
    check_choice(name, store_names(), what="store")
    (point, *_) = (entry for entry in registered(STORES_GROUP) if entry.name == name)
    loaded = _load(point)
    if isinstance(loaded, str):
        raise StoreUnavailable(f"store {name!r} cannot be loaded: {loaded}")
    return loaded


def server_processes(names: Iterable[str]) -> frozenset[str]:
    """Return what the processes of some stores' servers are called."""
    found = (_load(entry) for entry in registered(STORES_GROUP) if entry.name in set(names))
    return frozenset[str]().union(*(one.server_processes for one in found if not isinstance(one, str)))


def open_store(access: Access, options: StoreOptions) -> Store:
    """Return the store that `access` names, opened. Raises as `store_class` and `Store.open` do."""
    store = store_class(access.store)(access, options)
    try:
        store.open()
    except BaseException:
        store.close()  # what a login has left: its connection, and what renews its token
        raise
    return store


def _load(point: EntryPoint) -> type[Store] | str:
    """Return an entry point's store, or why it is none."""
    try:
        loaded = load_entry(point)
    except Exception as error:  # noqa: BLE001  somebody else's module may raise anything when imported
        return f"{point.value}: {type(error).__name__}: {error}"
    if not (isinstance(loaded, type) and issubclass(loaded, Store)):
        return f"{point.value} is not a subclass of {Store.__module__}.Store"
    missing = sorted(loaded.__abstractmethods__)
    if missing:
        return f"{point.value} does not define {', '.join(missing)}"
    if getattr(loaded, "name", None) != point.name:
        return f"{point.value} has the name {getattr(loaded, 'name', None)!r}"
    return loaded
