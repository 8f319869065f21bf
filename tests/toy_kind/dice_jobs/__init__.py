"""Jobs that throw dice: the smallest kind of job that has every part."""

from bench_common.job_kind import JobKind

KIND = JobKind(
    "dice",
    job="dice_jobs.job:Dice",
    rules="dice_jobs.rules:DiceRules",
    master="dice_jobs.keys:DiceKeys",
    runner="dice_jobs.runner:DiceRunner",
)
