"""Recipes: one folder of `dockerfiles` each, what they are built on, and the fingerprint that says when to rebuild.

A pure reading of files. The image made from folder ``x`` is called ``weighbridge/x``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench_common.errors import InfrastructureError, UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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


@dataclass(frozen=True, slots=True)
class Recipe:
    """A folder with a Dockerfile; `parent` is the image of another recipe that it is built on, if any.

    One that is `on_request` is built only when it is named: it needs what cannot be had everywhere, and says what to
    do without it. `arguments` are the names of those that its Dockerfile takes.
    """

    name: str
    folder: Path
    parent: str | None
    on_request: str = ""
    arguments: tuple[str, ...] = ()

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
    folder = Path(str(files("dockerfiles"))) if root is None else root
    found = {path.parent.name: path for path in sorted(folder.glob("*/Dockerfile"))}
    return {
        name: Recipe(name, path.parent, _parent(text, found), _way_out(text), tuple(_ARGUMENT.findall(text)))
        for name, path in found.items()
        for text in (path.read_text(encoding="utf-8"),)
    }


def _way_out(dockerfile: str) -> str:
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
