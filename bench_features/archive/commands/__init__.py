"""`bench-master archive`: keeps runs, finds them again, and says what they show together.

Each module here has some of its sub-commands, in ``COMMANDS``.
"""

from __future__ import annotations

import importlib
import pkgutil

from bench_features.archive.options import SubCommand

EPILOG = """\
Stats files are kept as they are, in a folder; nothing leaves this machine.

  bench-master archive add results/*.stats.gz            # keep runs (run-scenario --archive does so by itself)
  bench-master archive list --scenario quickstart --since 30d
  bench-master archive show 1e6b6731                     # one run, by the beginning of its id
  bench-master archive compare 1e6b6731 8575409c         # any two runs
  bench-master archive trend                             # since when is it slower?
  bench-master archive html pages                        # all of it as pages
"""


def members() -> dict[str, SubCommand]:
    """Return the sub-commands by name, in order."""
    modules = (importlib.import_module(f"{__name__}.{info.name}") for info in pkgutil.iter_modules(__path__))
    found = {one.name: one for module in modules for one in module.COMMANDS}
    return dict(sorted(found.items()))
