"""Finds the programs of plain processes that this host lacks, before any job of a run on it starts.

Only for workers of this host (``--workers``): they have our PATH, and beside containers their jobs have a
container's. On other hosts a job that fails says it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from bench_common.engine_traits import engine_names, engine_traits
from bench_common.errors import InfrastructureError, UsageError, WeighbridgeError, did_you_mean
from bench_common.job_rules import rules_of
from bench_common.safe_text import one_line
from bench_common.treatment import CONTAINER_PATH, Guest, Treatment
from bench_master.run.preflight import own_programs
from bench_workloads.registry import debian_packages, workload_classes

Find = Callable[[str, str], str | None]
"""Returns where a program is on a PATH; None where it is not there."""


def check_programs(treatments: Sequence[Treatment], environment: str, find: Find | None = None) -> None:
    """Raise an error if jobs that are plain processes of this host name a program that it does not have.

    `UsageError` for a command of the user's, `InfrastructureError` for the program of a workload, with its package.
    Optional treatments, and those of other environments, need none.
    """
    found = find or _find
    own: dict[str, str] = {}
    of_workloads: dict[str, None] = {}
    for treatment in treatments:
        concerned = treatment.environment in (None, environment) and engine_traits(treatment.engine).runs_on_host
        if treatment.optional or not concerned:
            continue
        path, folder = treatment.container.env.get("PATH") or _search_path(treatment), treatment.container.directory
        for written in (*own_programs(treatment), *_programs_of_steps(treatment)):
            program = written if "/" not in written else os.path.normpath(Path(folder or "", written))
            # Without a directory of the scenario's a relative path is one of the job's own.
            if ("/" not in written or Path(program).is_absolute()) and found(program, path) is None:
                own[program] = path
        needed = rules_of(treatment).host_programs().get("")
        if needed and found(needed, path) is None:
            of_workloads[needed] = None
    if own or of_workloads:
        raise _missing(own, of_workloads)


def _programs_of_steps(treatment: Treatment) -> Iterator[str]:
    """Yield what the steps beside an own command look for on the PATH."""
    own = treatment.job.own if isinstance(treatment.job, Guest) else None
    for command in (own.setup, own.prepare, own.cleanup) if own is not None else ():
        if command and "/" not in command[0] and "{" not in command[0]:
            yield command[0]


def _search_path(treatment: Treatment) -> str:
    if treatment.plain_environment == "container":
        return CONTAINER_PATH
    return os.environ.get("PATH", os.defpath)


def _find(program: str, path: str) -> str | None:
    return shutil.which(program, path=path)


def _missing(own: Mapping[str, str], of_workloads: Iterable[str]) -> WeighbridgeError:
    texts = [_own_text(program, path) for program, path in own.items()]
    if texts:
        return UsageError("; ".join(texts))
    packages = debian_packages()
    hints = {kind.binary: kind.install_hint for kind in workload_classes().values()}
    return InfrastructureError(
        "; ".join(
            f"the workload's program {program} is not installed on this host: "
            f"{hints.get(program) or f'apt-get install {packages.get(program, program)}'}, or leave engine native out"
            for program in of_workloads
        )
    )


def _own_text(program: str, search_path: str) -> str:
    shown = one_line(program)
    path = Path(program)
    if path.is_absolute():
        if path.is_dir():
            return f"{shown} is a directory; a program was expected"
        if path.exists():
            return f"{shown} is not executable: chmod +x it"
        hint = did_you_mean(path.name, _programs(str(path.parent)))
        return f"there is no program {shown} on this host, which engine native runs its commands on{hint}"
    here = shutil.which(program)
    if here is not None:
        return (
            f"engine native finds no program {shown!r} in {one_line(search_path)}, its PATH beside containers; write "
            f"{one_line(here)}, or say environment: inherit"
        )
    hint = did_you_mean(program, [*engine_names(), *_programs(search_path)])  # engines stand before a command
    return f"no program {shown!r} in this host's PATH, which engine native runs its commands on{hint}"


def _programs(search_path: str) -> list[str]:
    """Return the names of all programs in these folders."""
    names: set[str] = set()
    for folder in search_path.split(os.pathsep):
        try:
            names.update(each.name for each in Path(folder or ".").iterdir())
        except OSError:
            continue
    return sorted(names)
