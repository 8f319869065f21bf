"""What capabilities this machine can give to a container at all (capabilities(7)).

A container's root has some; none has more than the process that starts it may pass on. In a container, or a virtual
machine of some providers, that is less than all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench_common.treatment import CAPABILITIES

OWN: Final = "self"
"""This process: what it starts may have what it may have."""
MACHINE: Final = "1"
"""The first process of this machine: a daemon may have what it may have."""

_BOUNDING: Final = "CapBnd:"


def withheld(process: str, proc: Path = Path("/proc")) -> list[str]:
    """Return the capabilities that nothing gets from a process (`OWN`, `MACHINE`); empty where that is not known."""
    try:
        lines = (proc / process / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
    for line in lines:
        if line.startswith(_BOUNDING):
            mask = int(line.split()[1], 16)
            return [name for number, name in enumerate(CAPABILITIES) if not mask >> number & 1]
    return []
