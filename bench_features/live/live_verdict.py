"""What a run that goes on shows so far, in the words of its report: the answer by a stats file that is being written.

The page's process makes it, at its low priority, after a trial has ended, and so seldom that it takes a small part of
the time. The report's own maker makes it, so that the last one of a run is the sentence of its report.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import gevent

from bench_common.errors import WeighbridgeError
from bench_common.safe_text import one_line
from bench_master.formatting import plural

if TYPE_CHECKING:
    from bench_master.analysis.verdict_options import VerdictOptions

log = logging.getLogger(__name__)

LEAST_INTERVAL_S: Final = 5.0
"""How long at least from one answer to the next."""
COST_FACTOR: Final = 20
"""What making an answer takes may be one part of so many of the time."""
MOST_BYTES: Final = 64 << 20
"""Of a larger stats file nothing is read while a page is open: only the report has all of it."""
MAX_ANSWER_CHARS: Final = 4000


def answer_of(path: Path, options: VerdictOptions | None = None) -> str:
    """Return the sentences at the top of the report of a stats file, which may be incomplete; empty without any.

    `options` says how the report judges; None: as it does by default.
    """
    return _judged(path, options)[0]


def _judged(path: Path, options: VerdictOptions | None) -> tuple[str, int]:
    """Return that, and after how many rounds at most it is said."""
    # Imported here: a page that nobody looks at needs none of it.
    from bench_common.stats.reader import StatsFile
    from bench_master.analysis.document import build_document
    from bench_master.analysis.verdict_options import VerdictOptions
    from bench_master.reports.text import answer_lines

    try:
        if path.stat().st_size > MOST_BYTES:
            return "", 0
        document = build_document(StatsFile(path), options=options or VerdictOptions())
        rounds = max((each.rounds for each in document.verdicts.comparisons), default=0) if document.verdicts else 0
        return one_line(" ".join(answer_lines(document)))[:MAX_ANSWER_CHARS], rounds
    except (OSError, WeighbridgeError) as error:
        log.debug("there is no answer: %s", error)
        return "", 0


def answer_so_far(path: Path, margin: float | None) -> str:
    """Return the answer of a run that goes on, where a difference of `margin` counts, and after how many rounds."""
    from bench_master.analysis.verdict_options import VerdictOptions

    answer, rounds = _judged(path, None if margin is None else VerdictOptions(margin=margin))
    after = f", after {plural(rounds, 'round')}" if rounds else ""
    return f"So far, preliminary{after}: {answer}" if answer else ""


class AnswerSoFar:
    """Makes answers of one run, at most one at a time; `show` gets each one."""

    def __init__(
        self,
        show: Callable[[str], None],
        make: Callable[[Path, float | None], str] = answer_so_far,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._show = show
        self._make = make
        self._clock = clock
        self._trial: int | None = None
        self._due_at = 0.0
        self._is_busy = False

    def trial_runs(self, stats: Path, margin: float | None, number: int | None) -> None:
        """Note which trial of the run of a stats file runs: after another one has ended there may be more to say."""
        if number == self._trial or self._is_busy or self._clock() < self._due_at:
            return
        self._trial, self._is_busy = number, True
        gevent.spawn(self._answer, stats, margin)

    def _answer(self, stats: Path, margin: float | None) -> None:
        begun = self._clock()
        try:
            self._show(gevent.get_hub().threadpool.apply(self._make, (stats, margin)))
        except Exception:
            # The page is worth more than a sentence on it.
            log.exception("the answer so far failed")
        finally:
            took = self._clock() - begun
            self._due_at = begun + max(LEAST_INTERVAL_S, COST_FACTOR * took)
            self._is_busy = False
