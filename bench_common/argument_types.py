"""Types of arguments of both command lines, and their bounds.

A value that the other side would silently drop (a port that wraps round, a name longer than a message may carry) is
refused here, before anything starts. An IPv6 address stands in brackets where a port follows it (RFC 3986), and
nowhere else; both programs accept it with and without them.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Final

from bench_common.units import parse_duration


class InvalidValue(argparse.ArgumentTypeError):
    """A value that a type of arguments refuses; the parser prints its text after the option's name."""


MAX_NAME: Final = 128
"""The longest name of a worker or an environment, in characters: what a message can carry."""
MAX_SLOTS: Final = 65536
"""The most jobs that one worker may have in flight."""
MAX_SEED: Final = 2**53
"""The largest seed: whole numbers up to here survive every reader of JSON."""
NAME_PATTERN: Final = rf"^[A-Za-z0-9][A-Za-z0-9_.+-]{{0,{MAX_NAME - 1}}}$"
"""Valid names of workers and environments, as a regular expression that ECMA-262 and Python read alike."""


def int_range(low: int, high: int | None = None) -> Callable[[str], int]:
    """Return a type of arguments: whole numbers from `low` to `high` (None: without limit)."""
    wanted = f"a whole number, {low} or more" if high is None else f"a whole number from {low} to {high}"

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else None
        if number is None or number < low or (high is not None and number > high):
            raise InvalidValue(f"{text!r}: expected {wanted}")
        return number

    return parse


port: Final = int_range(1, 65535)
"""A type of arguments: a TCP port."""


def seconds(text: str) -> float:
    """Return `text` as a number of seconds, 0 or more."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not isfinite(number) or number < 0:
        raise InvalidValue(f"{text!r}: expected a number of seconds, 0 or more")
    return number


def duration(text: str) -> float:
    """Return the seconds that a duration such as ``15m`` stands for."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise InvalidValue(f"{text!r}: {error}") from error


def duration_from(least_s: float, why: str = "") -> Callable[[str], float]:
    """Return a type of arguments: durations of `least_s` or more, or above 0; `why` ends the message."""
    wanted = f"{least_s:g} s or more" if least_s else "more than 0 seconds"

    def parse(text: str) -> float:
        value_s = duration(text)
        if value_s < least_s or not value_s:
            raise InvalidValue(f"{text!r}: expected {wanted}{why}")
        return value_s

    return parse


some_time: Final = duration_from(0)
"""A type of arguments: a duration above 0."""


def file_name(text: str) -> Path:
    """Return `text` as a path; an empty one is refused (pathlib takes it for the working directory)."""
    if not text:
        raise InvalidValue("'': expected a file name")
    return Path(text)


def stats_name(text: str) -> Path:
    """Return `text` as the name of a stats file to write: a type of arguments.

    Another ending is a slip: a format that belongs to ``--export``, or the value of another program's ``-s``.
    """
    path = file_name(text)
    if path.suffix != ".gz":
        raise InvalidValue(f"{text!r}: expected a name that ends in .gz, such as run.stats.gz")
    return path


def name(text: str) -> str:
    """Return `text` if it is a valid name of a worker or an environment."""
    if re.fullmatch(NAME_PATTERN, text) is None:
        raise InvalidValue(
            f"{text!r}: expected a word of letters, digits and _ . + -, at most {MAX_NAME} characters long"
        )
    return text


_BRACKETS: Final = re.compile(r"\[[^\[\]]*:[^\[\]]*\]")
_NAME: Final = re.compile(r"[^\s:/@\[\]]+")
_WITH_PORT: Final = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:]+):(?P<port>[0-9]+)")


def authority(host: str, port: int | str) -> str:
    """Return host and port as in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def strip_brackets(text: str) -> str:
    """Return an address without the brackets of IPv6."""
    return text[1:-1] if _BRACKETS.fullmatch(text) else text


def bind_address(text: str) -> str:
    """Return an address to listen on without brackets: a type of arguments. An empty one is no choice of none."""
    if not text.strip():
        raise InvalidValue(f"{text!r}: expected an IP address of this host; leave the option out for none")
    return strip_brackets(text)


def host_name(text: str) -> str:
    """Return a host name or IP address without brackets: a type of arguments."""
    host = strip_brackets(text)
    if _NAME.fullmatch(host) or (":" in host and _parse_ip(host) is not None):
        return host
    match = _WITH_PORT.fullmatch(text)
    hint = f"; give the port {match['port']} with its own option" if match else ""
    raise InvalidValue(f"{text!r}: expected a host name or IP address, such as 10.0.0.5 or fd00::5{hint}")


def host_address(text: str) -> str:
    """Return an IP address, without brackets, at which other hosts can reach a host: a type of arguments."""
    address = _parse_ip(strip_brackets(text))
    if address is None or address.is_unspecified or address.is_multicast:
        raise InvalidValue(f"{text!r}: expected the IP address of a host, such as 10.0.0.5 or fd00::5")
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_link_local:
            raise InvalidValue(f"{text!r}: link-local address: other hosts cannot reach it; give a routable one")
        return str(address.ipv4_mapped or address)
    return str(address)


def _parse_ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


CONTROL_PORT: Final = 13577
"""The master's default TCP port for control messages."""
RESULTS_PORT: Final = 13578
"""The master's default TCP port for results."""
WORK_PORT: Final = 13579
"""The first of the master's default TCP ports for work, one for each worker."""
