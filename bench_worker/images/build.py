"""Builds Weighbridge's images in order from the folders of `dockerfiles`, and skips what is up to date.

The image made from folder ``x`` is called ``weighbridge/x``; a fingerprint over what it is made from says when to
build it again. Where no registry has the image that the base starts from, the base is made (see `base_image`).
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec import Struct, field
from msgspec.structs import asdict

from bench_common.errors import InfrastructureError, UsageError, did_you_mean
from bench_common.shipped import shipped_folder
from bench_worker.images.base_image import SCRIPT, BaseSource, base_tarball, build_lock, choose_source

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMESPACE: Final = "weighbridge/"
IMAGE_LABEL: Final = "weighbridge.image"
"""Marks every image that was built here; not a run's label, so that no clean-up of a run touches it."""
RECIPE_LABEL: Final = "weighbridge.recipe"
"""Holds the fingerprint of what an image was built from."""
SOURCE_LABEL: Final = "weighbridge.source"
"""Holds where a base image's packages came from."""

_FROM: Final = re.compile(r"^\s*FROM\s+(?:--\S+\s+)*(\S+)", re.IGNORECASE | re.MULTILINE)
_ON_REQUEST: Final = re.compile(r"^# build-images: on request; (.+)$", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^\s*ARG\s+(\w+)", re.IGNORECASE | re.MULTILINE)
_PROXIES: Final = frozenset({"http_proxy", "https_proxy", "ftp_proxy", "no_proxy", "all_proxy"})
"""Arguments that every Dockerfile takes (Dockerfile reference, "Predefined ARGs")."""


class Recipe(Struct, frozen=True):
    """A folder with a Dockerfile."""

    name: str
    """The folder's name, and the image's without ``weighbridge/``."""
    folder: Path
    parent: str | None
    """The name of the recipe whose image it is built on, if any."""
    on_request: str = ""
    """Why it is built only when it is named, as not every host can build it, and what to use instead."""
    arguments: tuple[str, ...] = ()
    """The names of the arguments that its Dockerfile takes."""

    @property
    def image(self) -> str:
        """The name of the image."""
        return NAMESPACE + self.name

    def fingerprint(self, parent_id: str = "", arguments: Mapping[str, str] | None = None) -> str:
        """Return a hash over the folder's files (names and contents), the parent's image id and build arguments."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(self.folder).as_posix()}\0{len(content)}\0".encode())
                digest.update(content)
        digest.update(parent_id.encode())
        for name, value in sorted((arguments or {}).items()):
            digest.update(f"\0{name}={value}".encode())
        return digest.hexdigest()


def all_recipes(root: Path | None = None) -> dict[str, Recipe]:
    """Return every recipe by name, from the installed `dockerfiles` or from `root`."""
    folder = shipped_folder("dockerfiles") if root is None else root
    found = {path.parent.name: path for path in sorted(folder.glob("*/Dockerfile"))}
    return {
        name: Recipe(
            name, path.parent, _parent(text, found), _on_request_reason(text), tuple(_ARGUMENT.findall(text))
        )
        for name, path in found.items()
        for text in (path.read_text(encoding="utf-8"),)
    }


def _on_request_reason(dockerfile: str) -> str:
    match = _ON_REQUEST.search(dockerfile)
    return match[1] if match else ""


def _parent(dockerfile: str, names: Iterable[str]) -> str | None:
    known = {NAMESPACE + name: name for name in names}
    for match in _FROM.finditer(dockerfile):
        image = match[1].removesuffix(":latest")
        if image in known:
            return known[image]
    return None


def in_build_order(wanted: Iterable[str], recipes: Mapping[str, Recipe]) -> list[Recipe]:
    """Return the wanted recipes and what they are built on, parents first.

    When none is named, all but those on request. A name may be given with or without ``weighbridge/``. Raises
    `UsageError` for an unknown one.
    """
    ordered: dict[str, Recipe] = {}

    def add(name: str, above: tuple[str, ...]) -> None:
        if name in above:
            raise InfrastructureError(f"recipes are built on each other in a circle: {' <- '.join((*above, name))}")
        recipe = recipes[name]
        if recipe.parent is not None:
            add(recipe.parent, (*above, name))
        ordered.setdefault(name, recipe)

    for given in list(wanted) or sorted(name for name, recipe in recipes.items() if not recipe.on_request):
        name = given.removeprefix(NAMESPACE).removesuffix(":latest")
        if name not in recipes:
            hint = did_you_mean(name, recipes)
            raise UsageError(f"unknown image {given!r}{hint}; one of: {', '.join(sorted(recipes))}")
        add(name, ())
    return list(ordered.values())


def check_arguments(given: Iterable[str], recipes: Iterable[Recipe]) -> None:
    """Raise `UsageError` for an argument that none of the Dockerfiles takes: the builder would leave it out."""
    known = [name for recipe in recipes for name in recipe.arguments]
    for name in given:
        if name not in known and name.lower() not in _PROXIES:
            raise UsageError(
                f"--build-arg {name}: the Dockerfile takes no such argument{did_you_mean(name, known)}; "
                f"it takes {', '.join(known) or 'none'}"
            )


class ImageInfo(Protocol):
    """What a store knows of an image."""

    @property
    def identity(self) -> str:
        """Its id."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels."""

    @property
    def size_bytes(self) -> int:
        """Its size."""


class ImageStore(Protocol):
    """Where images are kept and made: an engine."""

    def inspect(self, image: str) -> ImageInfo | None:
        """Return the facts of an image; None where there is none."""

    def find_source(self, image: str) -> str | None:
        """Say where an image is to be had without being made; None for nowhere."""

    def build(
        self,
        folder: Path,
        image: str,
        *,
        labels: Mapping[str, str],
        arguments: Mapping[str, str],
        progress: Callable[[str], None],
    ) -> None:
        """Build a folder's Dockerfile."""

    def import_tarball(
        self, tarball: Path, image: str, *, labels: Mapping[str, str], progress: Callable[[str], None]
    ) -> None:
        """Make an image from a root file system."""

    def discard(self, identity: str) -> None:
        """Remove an image that a newer one of its name has replaced, unless it is in use."""

    def close(self) -> None:
        """Close the connections."""


class BuildResult(Struct, frozen=True):
    """The result for one image."""

    image: str
    action: str
    """``built``, ``cached`` or, with a dry run, ``would build``."""
    source: str
    """What it is made from."""
    identity: str = ""
    """Its id; empty with a dry run."""
    size_bytes: int = 0
    """Its size; 0 with a dry run."""
    seconds: float = 0.0
    """How long the build took."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the query prints."""
        return asdict(self)


class Builder(Struct, frozen=True):
    """Builds recipes in a store."""

    store: ImageStore
    host_arguments: Mapping[str, str]
    """Build arguments with which a build fetches packages as this host does: proxies and APT_OPTIONS."""
    cache: Path
    """The folder of base tarballs."""
    progress: Callable[[str], None]
    """Gets a line for each step."""
    verbose: bool = False
    """Whether `progress` also gets what the tools print."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments of the user's, for every folder that is built from its Dockerfile."""

    def build_all(
        self, recipes: Sequence[Recipe], *, forced: Collection[str] = (), dry_run: bool = False
    ) -> Iterator[BuildResult]:
        """Build what is missing or out of date, parents first, and the recipes that are `forced` in any case."""
        if dry_run:
            yield from self._build_each(recipes, forced, dry_run=True)
            return
        with build_lock(self.cache, self.progress):
            yield from self._build_each(recipes, forced, dry_run=False)

    def _build_each(
        self, recipes: Sequence[Recipe], forced: Collection[str], *, dry_run: bool
    ) -> Iterator[BuildResult]:
        stale: set[str] = set()
        for recipe in recipes:
            parent = self._parent_id(recipe) if recipe.parent not in stale else ""
            fingerprint = recipe.fingerprint(parent, {} if _is_base(recipe) else self.arguments)
            present = self.store.inspect(recipe.image)
            if (
                present
                and recipe.name not in forced
                and recipe.parent not in stale
                and present.labels.get(RECIPE_LABEL) == fingerprint
            ):
                origin = present.labels.get(SOURCE_LABEL, str(recipe.folder))
                self.progress(f"{recipe.image}: up to date ({origin})")
                yield BuildResult(recipe.image, "cached", origin, present.identity, present.size_bytes)
            elif dry_run:
                stale.add(recipe.name)
                yield BuildResult(recipe.image, "would build", self._plan(recipe))
            else:
                built = self._build(recipe, fingerprint)
                if present and present.identity != built.identity and IMAGE_LABEL in present.labels:
                    self.store.discard(present.identity)
                yield built

    def _parent_id(self, recipe: Recipe) -> str:
        if recipe.parent is None:
            return ""
        parent = self.store.inspect(recipe.image.removesuffix(recipe.name) + recipe.parent)
        return parent.identity if parent else ""

    def _plan(self, recipe: Recipe) -> str:
        if not _is_base(recipe):
            return f"Dockerfile {recipe.folder}"
        where = self.store.find_source(_external_parent(recipe))
        return f"{where} image {_external_parent(recipe)}" if where else str(self._source(recipe))

    def _build(self, recipe: Recipe, fingerprint: str) -> BuildResult:
        started = time.monotonic()
        labels = {IMAGE_LABEL: "1", RECIPE_LABEL: fingerprint}
        source = self._build_base(recipe, labels) if _is_base(recipe) else self._build_folder(recipe, labels)
        made = self.store.inspect(recipe.image)
        if made is None:
            raise InfrastructureError(f"{recipe.image} was built but is missing: something removed it at once")
        seconds = time.monotonic() - started
        self.progress(f"{recipe.image}: built, {made.size_bytes / 1e6:.0f} MB in {seconds:.0f} s")
        return BuildResult(recipe.image, "built", source, made.identity, made.size_bytes, round(seconds, 1))

    def _build_folder(self, recipe: Recipe, labels: Mapping[str, str]) -> str:
        source = f"Dockerfile {recipe.folder}"
        self.progress(f"{recipe.image}: building from {recipe.folder}")
        # The builder knows the names of proxies and leaves them out of the image; the rest holds no secret.
        arguments = {**self.host_arguments, **self.arguments}
        try:
            self.store.build(
                recipe.folder,
                recipe.image,
                labels={**labels, SOURCE_LABEL: f"dockerfiles/{recipe.name}"},
                arguments=arguments,
                progress=self._step,
            )
        except InfrastructureError as error:
            if not recipe.on_request:
                raise
            raise InfrastructureError(
                f"{error}\n{recipe.image} cannot be built everywhere: {recipe.on_request}"
            ) from error
        return source

    def _build_base(self, recipe: Recipe, labels: Mapping[str, str]) -> str:
        """Build the base from a registry's image where there is one, from a mirror where there is none."""
        ready_made = _external_parent(recipe)
        where = self.store.find_source(ready_made)
        if where:
            source = f"{ready_made} ({where})"
            self.progress(f"{recipe.image}: from {source}")
            try:
                self.store.build(
                    recipe.folder,
                    recipe.image,
                    labels={**labels, SOURCE_LABEL: source},
                    arguments={name: value for name, value in self.host_arguments.items() if name in _PROXIES},
                    progress=self._step,
                )
            except InfrastructureError as error:
                self.progress(f"{recipe.image}: the registry's image cannot be pulled ({error}); making one")
            else:
                return source
        else:
            self.progress(f"{recipe.image}: no reachable registry has {ready_made}; making one")
        chosen = self._source(recipe)
        source = str(chosen)
        self.progress(f"{recipe.image}: {source} (about a minute, once)")
        tarball, cached = base_tarball(self.cache, recipe.folder, chosen, self._indented)
        self.progress(f"{recipe.image}: importing {'the cached ' if cached else ''}{tarball}")
        self.store.import_tarball(
            tarball, recipe.image, labels={**labels, SOURCE_LABEL: source}, progress=lambda _: None
        )
        return f"{source} (cached)" if cached else source

    def _source(self, recipe: Recipe) -> BaseSource:
        return choose_source(recipe.folder)

    def _indented(self, line: str) -> None:
        self.progress(f"  {line}")

    def _step(self, line: str) -> None:
        if self.verbose or line.startswith("Step "):
            self._indented(line)


def _is_base(recipe: Recipe) -> bool:
    return recipe.parent is None and (recipe.folder / SCRIPT).exists()


def _external_parent(recipe: Recipe) -> str:
    """Return the image of somebody else that the base's Dockerfile starts from."""
    for line in (recipe.folder / "Dockerfile").read_text(encoding="utf-8").splitlines():
        if line.upper().startswith("FROM "):
            return line.split()[1]
    raise InfrastructureError(f"{recipe.folder / 'Dockerfile'} has no FROM line")
