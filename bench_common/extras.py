"""Packages that a part of the program needs and a first run does not: each belongs to an extra that installs it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from bench_common.errors import UsageError

EXTRAS: Final = {
    "pyinstrument": ("--profile", "pyinstrument", "profile"),
    "shtab": ("completion", "shtab", "completion"),
}
"""By the module that is imported: what needs it, its package, and the extra."""


def missing_extra(error: ImportError) -> UsageError | None:
    """Return the error for people where a package of an extra is missing; None where it is anything else."""
    found = EXTRAS.get((error.name or "").partition(".")[0])
    if found is None:
        return None
    what, package, extra = found
    return UsageError(f"{what} needs {package}, which is not installed: pip install 'weighbridge[{extra}]'")


def require_extra(module: str) -> None:
    """Raise `UsageError` if this module of an extra is not installed."""
    if find_spec(module) is None:
        refusal = missing_extra(ModuleNotFoundError(name=module))
        assert refusal is not None, f"{module} is in no extra"
        raise refusal
