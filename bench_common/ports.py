"""The TCP ports that a master listens on unless it is told otherwise; a lane for each worker from `WORK_PORT` on."""

from typing import Final

CONTROL_PORT: Final = 13577
RESULTS_PORT: Final = 13578
WORK_PORT: Final = 13579
