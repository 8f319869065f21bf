"""Facts of the CPU: model, topology, frequency, mitigations, clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench_worker.host.facts import Fact, file_fact, whole_number

if TYPE_CHECKING:
    from bench_worker.host_files import HostFiles

CPU: Final = "/sys/devices/system/cpu"
CLOCK: Final = "/sys/devices/system/clocksource/clocksource0"


def cpu_numbers(files: HostFiles) -> tuple[str, ...]:
    """Return the directory names of the CPUs, ``cpu0`` and so on."""
    return tuple(name for name in files.names(CPU) if name.startswith("cpu") and name[3:].isdigit())


def governor(files: HostFiles) -> str | None:
    """Return the frequency governor; several are joined by commas; None where the kernel manages no frequency."""
    found = {files.text(f"{CPU}/{name}/cpufreq/scaling_governor") or "" for name in cpu_numbers(files)} - {""}
    return ",".join(sorted(found)) or None


def turbo(files: HostFiles) -> str | None:
    """Return ``on`` or ``off`` as the frequency driver says, None where it does not."""
    no_turbo = files.text(f"{CPU}/intel_pstate/no_turbo")
    if no_turbo in ("0", "1"):
        return "off" if no_turbo == "1" else "on"
    boost = files.text(f"{CPU}/cpufreq/boost")
    return {"1": "on", "0": "off"}.get(boost or "")


def mitigations(files: HostFiles) -> str | None:
    """Return what the CPU is affected by and how it is met, as ``name: state; ...``, in the kernel's words."""
    path = f"{CPU}/vulnerabilities"
    states = {name: files.text(f"{path}/{name}") or "" for name in files.names(path)}
    if not states:
        return None
    affected = [f"{name}: {state}" for name, state in sorted(states.items()) if state and state != "Not affected"]
    return " | ".join(affected) or "not affected"


def _cpuinfo(files: HostFiles, *keys: str) -> str | None:
    for line in (files.text("/proc/cpuinfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name.strip() in keys and value.strip():
            return value.strip()
    return None


def _model(files: HostFiles) -> str | None:
    return _cpuinfo(files, "model name", "Model", "cpu", "Hardware")


def _threads(files: HostFiles) -> int | None:
    lines = (files.text("/proc/stat") or "").splitlines()
    return sum(line.startswith("cpu") and line[3:4].isdigit() for line in lines) or None


def _distinct(files: HostFiles, *parts: str) -> int | None:
    found = {tuple(files.text(f"{CPU}/{name}/topology/{part}") for part in parts) for name in cpu_numbers(files)}
    known = {places for places in found if None not in places}
    return len(known) or None


def _max_frequency(files: HostFiles) -> int | None:
    khz = whole_number(files.text(f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq"))
    return khz * 1000 if khz else None


CPU_FACTS: Final = (
    Fact("cpu_model", "the CPU's name", _model),
    Fact("cpu_sockets", "CPU packages", lambda files: _distinct(files, "physical_package_id")),
    Fact("cpu_cores", "physical cores", lambda files: _distinct(files, "physical_package_id", "core_id")),
    Fact("cpu_threads", "CPUs on line", _threads),
    file_fact("cpu_smt", f"{CPU}/smt/control", "simultaneous multithreading: on, off, notsupported ..."),
    Fact("cpu_max_frequency", "the highest frequency of CPU 0", _max_frequency, "Hz"),
    Fact("cpu_microcode", "the microcode's revision", lambda files: _cpuinfo(files, "microcode")),
    file_fact("cpu_driver", f"{CPU}/cpu0/cpufreq/scaling_driver", "the frequency driver"),
    Fact("cpu_governor", "the frequency governor", governor),
    Fact("cpu_turbo", "whether the CPU may exceed its base frequency", turbo),
    file_fact("cpu_idle_driver", f"{CPU}/cpuidle/current_driver", "the idle-state driver"),
    file_fact("cpu_isolated", f"{CPU}/isolated", "CPUs kept from the scheduler"),
    Fact("mitigations", "CPU vulnerabilities that apply, and how they are met", mitigations),
    file_fact("clocksource", f"{CLOCK}/current_clocksource", "what the kernel tells the time by"),
    file_fact("clocksources", f"{CLOCK}/available_clocksource", "what it could tell the time by"),
)
