"""The master's part: the key ``dice`` of a scenario, and what a plan says of it."""

from __future__ import annotations

from bench_master.scenario.master_part import MasterPart
from bench_master.scenario.types import WHOLE, Field, Quantity, Record
from dice_jobs.job import Dice


class DiceKeys(MasterPart):
    """``dice: {count: 3, sides: 6}``."""

    name = "dice"
    summary = "a job that throws dice"
    one = "a job with dice"
    many = "jobs with dice"
    does = "throws dice"
    plan_title = "Dice"
    default_engine = "cup"

    def record(self):
        return Record(
            self.name,
            (
                Field("count", Quantity(WHOLE, minimum=1, maximum=100), "how many dice", 2),
                Field("sides", Quantity(WHOLE, minimum=2, maximum=1000), "how many sides a die has", 6),
            ),
        )

    def engines(self):
        return ("cup",)

    def build(self, settings, engine, place, findings):
        given = {key: settings[f"dice.{key}"].value for key in ("count", "sides") if f"dice.{key}" in settings}
        return Dice(**given)

    def plan_lines(self, treatment):
        return (f"{treatment.job.count} of {treatment.job.sides} sides",)
