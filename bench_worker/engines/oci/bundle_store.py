"""Makes bundles, some of them before a container needs them, and removes them while the engine works.

A bundle takes a dozen system calls and a mount to make, and as many to remove. A job that had to wait for them would
do so between its operations, untimed; a client that reuses one bundle would get more done. So while a runtime
runs, a native thread makes the bundle for the next container with the same settings, and deletes that of the last.

A bundle made ahead carries the labels of its run and worker from its first file on, so clean-up finds it. It
becomes a container's own when its config.json gets name and ticket, and its directory the name. A bundle that
is deleted loses its config.json last. What a container wrote is deleted at once, unless it is next to nothing.

The config.json changes places with the new one, which is as safe as a rename in its place and cheaper: such a rename
makes ext4 write the content to the disk at once (ext4(5), `auto_da_alloc`).
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import secrets
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import gevent

from bench_worker.engines.command_line import CommandLine
from bench_worker.engines.oci import images as oci_images
from bench_worker.engines.oci.bundle import Bundle, write_files
from bench_worker.engines.oci.images import CONFIG
from bench_worker.engines.oci.mount_namespace import mount_overlay, unmount
from bench_worker.engines.oci.spec import UnsupportedSetting, make_volumes

if TYPE_CHECKING:
    from bench_common.treatment import ContainerSettings
    from bench_worker.engines.base import Container
    from bench_worker.engines.oci.mount_namespace import MountNamespace
    from bench_worker.engines.oci.recipe import Recipe

log = logging.getLogger(__name__)

_NO_OVERLAY: Final = frozenset({errno.EINVAL, errno.ENODEV, errno.EPERM, errno.EOPNOTSUPP})
_libc = ctypes.CDLL(None)
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
"""Of ``fcntl.h`` and ``linux/fs.h``."""
_COPY_S: Final = 300
_AHEAD: Final = 4
"""How many bundles of one recipe are made ahead at most; with more in flight, each take asks for one."""
_RECIPES: Final = 8
"""How many recipes are kept: of the treatments that take turns."""
_WAITING: Final = 16
"""How many removals may wait; with more, a `remove` waits for its own."""
_FEW: Final = 16
_SMALL_BYTES: Final = 64 << 10


class BundleStore:
    """The bundles of one engine. `overlays` says whether writable layers are overlays or copies."""

    def __init__(self, engine: str, namespace: MountNamespace, slots: int) -> None:
        self.home = oci_images.make_private(oci_images.containers_directory(engine))
        self.overlays = True
        self._home = str(self.home)
        self._namespace = namespace
        self._most_ahead = min(slots, _AHEAD)
        self._recipes: OrderedDict[int, Recipe] = OrderedDict()
        self._prefix = f"{self._home}/ahead-{secrets.token_hex(6)}-"
        self._serial = 0
        self._released = 0
        self._deleted = 0

    def find_recipe(self, settings: ContainerSettings) -> Recipe | None:
        """Return the recipe for these settings, if it is kept."""
        found = self._recipes.get(id(settings))
        if found is not None:
            self._recipes.move_to_end(id(settings))
        return found

    def keep_recipe(self, recipe: Recipe) -> None:
        """Keep a recipe, which holds its settings, so that no others get their number; forget the oldest."""
        if recipe.is_stable:
            self._recipes[id(recipe.settings)] = recipe
            if len(self._recipes) > _RECIPES:
                self._forget(self._recipes.popitem(last=False)[1])

    def make_ahead(self, recipe: Recipe) -> None:
        """Make one bundle more than there are, unless there are enough; it is made while the next program runs."""
        if recipe.ahead < self._most_ahead and self.overlays and id(recipe.settings) in self._recipes:
            recipe.requested += 1
            self._serial += 1
            self._namespace.defer(partial(self._prepare, recipe, f"{self._prefix}{self._serial}"))

    def make(self, container: Container, recipe: Recipe) -> Bundle:
        """Return the bundle of a container, whose name it claims, and hand it to `container.handle`.

        Raises `FileExistsError` where the name is taken, `UnsupportedSetting` and `OSError`.
        """
        name = container.name
        directory = f"{self._home}/{name}"
        if "/" in name or name in {"", ".", ".."}:
            raise UnsupportedSetting(f"{name!r} is no name for a container")
        bundle = Bundle(Path(directory), recipe.cgroup(name), stop_signal=recipe.stop_signal)
        config = recipe.config(name, str(container.ticket))
        if not self._take(recipe, directory, config):
            os.mkdir(directory, 0o700)  # noqa: PTH102  a path object takes longer than the call
            # From here on there is something to remove, and to find by its labels.
            container.handle = bundle
            if not self._namespace.call(partial(_fill, directory, config, recipe, overlay=self.overlays)):
                # Where the store itself is an overlay, as in a container, there is none on top of it.
                self.overlays = False
                copy = CommandLine("cp").sequence(_COPY_S)
                copy.run("-a", "--reflink=auto", f"{recipe.lower}/.", f"{directory}/rootfs/")
        container.handle = bundle
        recipe.taken += 1
        if recipe.taken > 1:  # settings that are used once are those of a service, say
            self.make_ahead(recipe)
        return bundle

    def remove(self, bundle: Bundle, settings: ContainerSettings) -> None:
        """Remove a bundle whose container is gone: while the next program runs if that is little work, else now.

        Raises `OSError`; what fails later is logged, and keeps its labels.
        """
        small = not settings.storage and _is_small(str(bundle.directory))
        if small and self._released - self._deleted < _WAITING:
            self._released += 1
            self._namespace.defer(partial(self._delete_released, str(bundle.directory)))
        else:
            self.delete(bundle.directory)

    def delete(self, directory: Path) -> None:
        """Undo the mount and delete the directory; a missing one is no error. Raises `OSError`."""
        self._namespace.call(partial(unmount, f"{directory}/rootfs"))
        # In a thread of its own, since a large tree takes a while.
        gevent.get_hub().threadpool.apply(_delete, (str(directory),))

    def release(self) -> None:
        """Remove what was made ahead and what still waits to be removed; return when it is gone."""
        for recipe in self._recipes.values():
            self._forget(recipe)
        self._recipes.clear()
        self.finish_removals()

    def finish_removals(self) -> None:
        """Remove what still waits to be removed; return when it is gone."""
        self._namespace.call(_nothing)

    def _take(self, recipe: Recipe, directory: str, config: str) -> bool:
        """Turn a bundle that is ready into a container's own; return whether there was one.

        Raises `FileExistsError` where the name is taken.
        """
        if not recipe.ready:
            return False
        if os.path.lexists(directory):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), directory)
        made = recipe.ready.popleft()
        try:
            _write(f"{made}/{CONFIG}.new", config)
            _exchange(f"{made}/{CONFIG}.new", f"{made}/{CONFIG}")
            os.rename(made, directory)  # noqa: PTH104
        except OSError:
            # A clean-up may have deleted it, or the disk is full: one that is made now tells.
            self._namespace.defer(partial(_unmount_and_delete, made))
            return False
        return True

    def _forget(self, recipe: Recipe) -> None:
        # After those that are asked for by now.
        self._namespace.defer(partial(self._delete_ready, recipe))

    # -- in the native thread -----------------------------------------------------------------------------------

    def _prepare(self, recipe: Recipe, directory: str) -> None:
        try:
            os.mkdir(directory, 0o700)  # noqa: PTH102
            if _fill(directory, recipe.config(directory.rpartition("/")[2], ""), recipe, overlay=True):
                recipe.ready.append(directory)
            else:
                _unmount_and_delete(directory)
        except OSError as error:
            log.info(
                "no bundle was made ahead in %s: %s", directory, error
            )  # the container that needs one reports it
            _unmount_and_delete(directory)
        finally:
            recipe.prepared += 1

    def _delete_released(self, directory: str) -> None:
        _unmount_and_delete(directory)
        self._deleted += 1

    def _delete_ready(self, recipe: Recipe) -> None:
        while recipe.ready:
            _unmount_and_delete(recipe.ready.popleft())


def _nothing() -> None:
    """Do nothing, when all before it is done."""


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123
        file.write(text)


def _exchange(one: str, other: str) -> None:
    """Have two files change places (rename(2)); where that cannot be, let the first replace the second."""
    try:
        failed = _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
    except AttributeError:  # an older C library
        failed = -1
    if failed:
        os.rename(one, other)  # noqa: PTH104


def _fill(directory: str, config: str, recipe: Recipe, *, overlay: bool) -> bool:
    """Make what is in a bundle; return whether its root is complete, which it is where there are overlays."""
    rootfs, upper, work = f"{directory}/rootfs", f"{directory}/upper", f"{directory}/work"
    try:
        _write(f"{directory}/{CONFIG}", config)
        make_volumes(recipe.settings, Path(directory))
        write_files(recipe.files, Path(directory))
        for path in (rootfs, upper, work):
            os.mkdir(path)  # noqa: PTH102
        # The layer's root is the container's: as an image has it.
        os.chmod(upper, recipe.root_mode)  # noqa: PTH101
        if overlay:
            mount_overlay(rootfs, lower=recipe.lower, upper=upper, work=work)
    except OSError as error:
        if overlay and error.errno in _NO_OVERLAY and error.filename == rootfs:
            return False
        # A write to a full disk does not say where.
        error.filename = error.filename or directory
        raise
    return overlay


def _is_small(directory: str) -> bool:
    """Say whether what a container wrote is next to nothing, so that deleting it disturbs no other."""
    try:
        with os.scandir(f"{directory}/upper") as entries:
            for number, entry in enumerate(entries):
                if number >= _FEW:
                    return False
                if entry.is_dir(follow_symlinks=False):
                    with os.scandir(entry.path) as inner:
                        if next(inner, None) is not None:
                            return False
                elif entry.stat(follow_symlinks=False).st_size > _SMALL_BYTES:
                    return False
        return all(os.stat(f"{directory}/{name}").st_size <= _SMALL_BYTES for name in ("stdout", "stderr"))  # noqa: PTH116
    except OSError:
        return False


def _unmount_and_delete(directory: str) -> None:
    try:
        unmount(f"{directory}/rootfs")
        _delete(directory)
    except OSError as error:
        log.warning("%s cannot be removed and waits for the clean-up of its run: %s", directory, error)


def _delete(directory: str) -> None:
    """Delete a bundle, its config.json with the labels last; a missing one is no error. Raises `OSError`."""
    with suppress(FileNotFoundError):
        names = os.listdir(directory)  # noqa: PTH208
        for name in names:
            if name != CONFIG:
                _delete_entry(f"{directory}/{name}")
        with suppress(FileNotFoundError):
            os.unlink(f"{directory}/{CONFIG}")  # noqa: PTH108
        os.rmdir(directory)  # noqa: PTH106


def _delete_entry(path: str) -> None:
    """Delete a file or a directory; the cheapest call first, since nearly all are files and empty directories."""
    try:
        os.unlink(path)  # noqa: PTH108
    except IsADirectoryError:
        if path.endswith("/work"):
            with suppress(OSError):
                os.rmdir(f"{path}/work")  # noqa: PTH106  the overlay's own
        try:
            os.rmdir(path)  # noqa: PTH106
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                raise
            oci_images.delete_directory(Path(path))
    except FileNotFoundError:
        pass
