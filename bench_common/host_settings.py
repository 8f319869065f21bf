"""Settings of a host's kernel that a scenario may vary: their names, their files and what their texts mean.

A setting is a file below ``/sys`` or ``/proc/sys``, by its path without the first slash or by its name in sysctl(8),
or one of `ALIASES`. A scenario and the owner of a worker name it, and `bench_worker.host.settings` sets it.
"""

from __future__ import annotations

import re
from typing import Final

from bench_common.argument_types import InvalidValue
from bench_common.errors import did_you_mean

GOVERNOR: Final = "governor"
"""The frequency governor of all CPUs: a file for each."""
ALIASES: Final = {
    "thp": "sys/kernel/mm/transparent_hugepage/enabled",
    "swappiness": "proc/sys/vm/swappiness",
    "rcu_expedited": "sys/kernel/rcu_expedited",
}
PATTERNS: Final = {GOVERNOR: "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor"}
"""Where settings of several files are, as globs; all of them have one value."""
MAX_VALUE_CHARS: Final = 200
"""The longest value, in characters."""

_SYSCTL: Final = ("abi", "crypto", "debug", "dev", "fs", "kernel", "net", "sunrpc", "user", "vm")
"""What is below ``/proc/sys``."""
_PATH: Final = r"(?:sys|proc/sys)(?:/(?!\.\.?(?:/|$))[A-Za-z0-9_.:@+,-]+)+"
_SHORT: Final = "|".join((GOVERNOR, *ALIASES))
NAME_PATTERN: Final = rf"^(?:{_SHORT}|{_PATH}|(?:{'|'.join(_SYSCTL)})(?:[.][A-Za-z0-9_:/-]+)+)$"
"""Valid names, as a regular expression that ECMA-262 and Python read alike."""
VALUE_PATTERN: Final = rf"^[!-~](?:[ -~]{{0,{MAX_VALUE_CHARS - 2}}}[!-~])?$"
"""Valid values: a line of printable ASCII."""
EXPECTED: Final = (
    "a host setting: a path such as sys/kernel/rcu_expedited or proc/sys/vm/swappiness, a name of sysctl(8) such as "
    f"vm.swappiness, or one of: {', '.join((GOVERNOR, *ALIASES))}"
)


def setting_name(text: str) -> str:
    """Return the one name that a setting has in records, such as ``proc/sys/vm/swappiness``; raise `ValueError`."""
    # A slash in a name of sysctl(8) stands for a dot in the name of a file.
    path = "proc/sys/" + text.translate(str.maketrans("./", "/."))
    is_path = text.startswith(("sys/", "proc/sys/"))
    short = text == GOVERNOR or text in ALIASES
    if re.fullmatch(NAME_PATTERN, text) is None or not (is_path or short or re.fullmatch(_PATH, path)):
        hint = did_you_mean(text.removeprefix("/"), (GOVERNOR, *ALIASES, *ALIASES.values()))
        instead = f" (write {text[1:]})" if re.fullmatch(NAME_PATTERN, text[1:]) else hint
        raise ValueError(f"unknown host setting {text!r}{instead}; expected {EXPECTED}")
    if short:
        return ALIASES.get(text, text)
    return text if is_path else path


def setting_names(text: str) -> tuple[str, ...]:
    """Return the settings in a list with commas, by the names of records: a type of arguments."""
    try:
        return tuple(dict.fromkeys(setting_name(name.strip()) for name in text.split(",")))
    except ValueError as error:
        raise InvalidValue(str(error)) from error


def chosen(text: str) -> str:
    """Return the value that a file's text shows: the word in brackets of ``always [madvise] never``, or all of it."""
    words = text.split()
    for word in words:
        if len(words) > 1 and word.startswith("[") and word.endswith("]"):
            return word[1:-1]
    return " ".join(words)


def choices(text: str) -> tuple[str, ...]:
    """Return the words to choose from where a file's text is such a choice, else nothing."""
    words = text.split()
    marked = [word for word in words if word.startswith("[") and word.endswith("]")]
    return tuple(word.strip("[]") for word in words) if len(words) > 1 and len(marked) == 1 else ()
