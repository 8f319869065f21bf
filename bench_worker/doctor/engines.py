"""Checks of what runs containers, and of the tools that native jobs run."""

from __future__ import annotations

from collections.abc import Iterator

from bench_worker.doctor.base import Check, Finding
from bench_worker.doctor.scene import Scene

ENOUGH_TO_COMPARE = 2


class EnginesCheck(Check):
    """An engine must answer, and let us in."""

    name = "engine"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield a finding for each engine: one that cannot be used is graver the fewer others there are."""
        statuses = scene.engines()
        usable = sum(status.usable for status in statuses)
        for status in statuses:
            if status.usable:
                yield self.ok(f"{status.name} {status.version}".strip(), status.name)
                warnings = status.details.get("warnings")
                if warnings:
                    yield self.note(
                        f"{status.name} warns: {warnings}", "settings that need this are refused", status.name
                    )
            else:
                say = self.warning if usable < ENOUGH_TO_COMPARE else self.note
                yield say(f"{status.name}: {status.reason}", status.advice, status.name)
        if not usable:
            yield self.problem(
                "no engine can be used", "see the advice above; `bench-master list-engines` looks again", 0
            )
        elif usable < ENOUGH_TO_COMPARE:
            yield self.note("only one engine can be used", "there is nothing on this host to compare it with", usable)


class ToolsCheck(Check):
    """Native jobs run the host's own tools."""

    name = "tools"

    def look(self, scene: Scene) -> Iterator[Finding]:
        """Yield a finding for each program that a workload needs."""
        tools, advice = scene.tools(), scene.advice()
        for program, workloads in sorted(tools.items()):
            place = scene.which(program)
            if place:
                yield self.ok(f"{program}: {place}", place)
            elif program in advice:
                yield self.note(
                    f"{program} is not on PATH: {', '.join(workloads)} cannot run natively", advice[program], program
                )
            else:
                yield self.warning(
                    f"{program} is not on PATH: {', '.join(workloads)} cannot run natively",
                    f"apt-get install {program} (inside containers it comes with the image)",
                    program,
                )
        if not tools:
            yield self.note(
                "no workload is registered", "install Weighbridge with pip, so that its entry points are found"
            )
