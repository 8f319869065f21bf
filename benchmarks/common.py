"""What the benchmarks share: how Weighbridge is run, and how figures and ratios are printed."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
ONE_OPERATION = [{"sleep": "1ns"}]
"""The least job that there is: under `--noop` a sleep is as free as any other operation."""
TWO_OPERATIONS = ["run", "remove"]


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """Return a parser of command lines that shows a script's own text."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def numbers(text: str) -> list[int]:
    """Read ``10k,100k,1M`` as a list of whole numbers."""
    scales = {"k": 1000, "m": 1_000_000}
    return [int(float(word.rstrip("kKmM")) * scales.get(word[-1].lower(), 1)) for word in text.split(",")]


def master_command(directory: str, scenario: Mapping[str, Any], *words: str) -> list[str]:
    """Write a scenario (JSON is YAML) and return the command that runs it; the stats file is ``run.stats.gz``."""
    path = Path(directory, "scenario.yaml")
    path.write_text(json.dumps(scenario), "utf-8")
    master = [sys.executable, "-m", "bench_master", "-q", "run-scenario", "-f", str(path)]
    return [*master, "-s", str(Path(directory, "run.stats.gz")), *words]


def noop_scenario(operations: Sequence[Any]) -> dict[str, Any]:
    """Return a scenario of these operations that only `--noop` can run."""
    return {
        "name": "ceiling",
        "engines": ["docker"],
        "container": {"image": "none"},
        "job": {"operations": list(operations)},
    }


def treatment_of(scenario: Mapping[str, Any], *words: str) -> dict[str, Any]:
    """Run a scenario of one treatment, and return what its JSON report says of it."""
    with tempfile.TemporaryDirectory() as directory:
        command = master_command(directory, scenario, *words, "--format", "json")
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(done.stdout)["treatments"][0])


def script_results(script: str, *words: str) -> Any:
    """Run another script of this folder in a fresh process, and return the JSON that it prints."""
    command = [sys.executable, str(FOLDER / script), *words]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def in_turn(repeats: int, measures: Mapping[str, Callable[[], float]], unit: str) -> dict[str, list[float]]:
    """Measure each in turn, so often; print each turn, and return the figures by name."""
    results: dict[str, list[float]] = {name: [] for name in measures}
    for turn in range(1, repeats + 1):
        for name, measure in measures.items():
            results[name].append(measure())
        told = "   ".join(f"{name} {values[-1]:,.0f}" for name, values in results.items())
        print(f"turn {turn}: {told}  {unit}", flush=True)
    return results


def print_ratio(what: str, ours: float, baseline: float) -> None:
    """Print the line that counts."""
    print(f"ratio {what}: {ours / baseline:.4g}", flush=True)
