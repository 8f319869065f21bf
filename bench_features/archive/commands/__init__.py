"""`bench-master archive`: keeps runs, finds them again, and says what they show together.

Each module here has some of its sub-commands, in ``COMMANDS``.
"""

from __future__ import annotations

import importlib
import pkgutil

from bench_features.archive.options import SubCommand

EPILOG = """\
Stats files are kept as they are; the database beside them is an index. Nothing leaves this machine unless the
archive's address names another one.

  bench-master archive add results/*.stats.gz            # keep runs (run-scenario --archive does so by itself)
  bench-master archive list --scenario quickstart --since 30d
  bench-master archive show 1e6b6731                     # one run, by the beginning of its id or by its name
  bench-master archive compare 1e6b6731 8575409c         # any two runs
  bench-master archive trend                             # since when is it slower?
  bench-master archive tag 1e6b6731 release-2.1          # tags and notes are kept in a file beside the runs
  bench-master archive prune --keep-last 20 --keep-tagged --older 180d --dry-run
  bench-master archive verify                            # has a disk or a person changed anything?
"""


def members() -> dict[str, SubCommand]:
    """Return the sub-commands by name, in order."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    found = {one.name: one for module in modules for one in module.COMMANDS}
    return dict(sorted(found.items()))
