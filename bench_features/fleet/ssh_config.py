"""The user's own ``ssh_config``: it supplies what an inventory leaves open about how to reach a host.

The inventory always takes precedence. HostName, Port, User, IdentityFile and ProxyJump are read, resolved as ``ssh``
resolves them for the host's address. A directive that cannot be followed is an error and is not skipped: otherwise we
would reach a host by another route than its user has set up.
"""

from __future__ import annotations

import ipaddress
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Self

from msgspec.structs import replace

from bench_common.errors import UsageError
from bench_common.files import read_regular
from bench_features.fleet.hosts import Inventory, Login

NONE_KEYWORD: Final = "none"
"""Given instead of a file name: read no file."""
MAX_INCLUDES: Final = 16
"""Maximum depth of Include, as in OpenSSH."""
MAX_PORT: Final = 65535

_LINE: Final = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.+?)\s*$")
_HOP: Final = re.compile(
    r"(?:ssh://)?(?:(?P<user>[^@\s]+)@)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^@:/\s\[\]]+)(?::(?P<port>[0-9]+))?/?"
)
_EXEC: Final = re.compile(r"(^|\s)!?exec\s", re.IGNORECASE)
_ADVICE: Final = "put the setting into the inventory and use --ssh-config none, or a file without this line"


def default_ssh_config() -> Path:
    """Return the path of the user's own file."""
    return Path("~/.ssh/config").expanduser()


class SshConfig:
    """One ``ssh_config`` with the files that it includes. Raises `UsageError` for what cannot be read or followed."""

    def __init__(self, path: Path) -> None:
        import paramiko  # imported here: it takes 16 MB, which a run on this host alone does not need

        self._path = path
        try:
            self._config = paramiko.SSHConfig.from_text("".join(f"{line}\n" for line in _lines(path)))
        except (paramiko.ConfigParseError, ValueError) as error:
            raise UsageError(f"{path}: {error}: expected an ssh_config; {_ADVICE}") from error

    @classmethod
    def load(cls, path: Path | None) -> Self | None:
        """Return the named file, by default the user's own; None for ``none`` or if the user has none."""
        if path is not None:
            return None if str(path) == NONE_KEYWORD else cls(path)
        path = default_ssh_config()
        if not path.exists():
            return None
        _check_owner(path)
        return cls(path)

    def apply_to(self, inventory: Inventory) -> Inventory:
        """Return the inventory with open settings filled in for the hosts that are reached over SSH."""
        hosts = tuple(
            replace(host, login=self.complete(host.login)) if host.launcher == "ssh" else host
            for host in inventory.hosts
        )
        return replace(inventory, hosts=hosts)

    def complete(self, login: Login, passed: tuple[str, ...] = ()) -> Login:
        """Return a login with open settings filled in, jump hosts included; `passed` are the hosts behind it."""
        word = login.address
        options = self._lookup(word)
        found: dict[str, Any] = {}
        taken = []
        if options["hostname"] != word and not _is_ip(word):
            found["address"] = str(options["hostname"])
            taken.append("HostName")
        if login.explicit_port is None and "port" in options:
            found["explicit_port"] = self._port(word, str(options["port"]))
            taken.append("Port")
        if login.user is None and "user" in options:
            found["user"] = str(options["user"])
            taken.append("User")
        if not login.keys and "identityfile" in options:
            # Missing files are skipped, as ssh does.
            found["keys"] = tuple(path for path in map(Path, options["identityfile"]) if path.is_file())
            taken.append("IdentityFile")
        jump = login.jump
        if jump is None:
            jump = self._jump(word, options, passed)
            if jump is not None:
                taken.append("ProxyJump")
        else:
            jump = self.complete(jump, (*passed, word))
        if taken:
            found["source"] = f"{_join_words(taken)} from {self._path}, as for 'ssh {word}'"
        if login.jump is None and jump is None and options.get("proxycommand") is not None:
            unused = f"the ProxyCommand in {self._path} is not used: give the route with 'jump:' or ProxyJump"
            found["source"] = "; ".join(text for text in (found.get("source"), unused) if text)
        return replace(login, jump=jump, **found)

    def _lookup(self, word: str) -> Mapping[str, Any]:
        try:
            return dict(self._config.lookup(word))
        except Exception as error:  # the parser raises many types for malformed files
            raise UsageError(
                f"{self._path}: cannot be applied to '{word}': {type(error).__name__}: {error}; {_ADVICE}"
            ) from error

    def _jump(self, word: str, options: Mapping[str, Any], passed: tuple[str, ...]) -> Login | None:
        """Return the last of the jump hosts that the file gives for `word`; None if it gives none."""
        text = str(options.get("proxyjump", NONE_KEYWORD))
        if text.lower() == NONE_KEYWORD:
            return None
        way: Login | None = None
        for hop in text.split(","):
            match = _HOP.fullmatch(hop.strip())
            if match is None:
                raise UsageError(f"{self._path}: ProxyJump {text} of '{word}': expected [user@]host[:port], ...")
            host = match["host"].strip("[]")
            if host == word:
                return None  # a ProxyJump for all hosts does not apply to the jump host itself
            if host in passed:
                around = " -> ".join((*passed, word, host))
                raise UsageError(f"{self._path}: jump hosts form a loop: {around}")
            port = None if match["port"] is None else self._port(host, match["port"])
            way = self.complete(Login(host, port, match["user"], jump=way), (*passed, word))
        return way

    def _port(self, word: str, text: str) -> int:
        if not text.isdecimal() or not 0 < int(text) <= MAX_PORT:
            raise UsageError(f"{self._path}: Port {text} of '{word}': expected a whole number from 1 to {MAX_PORT}")
        return int(text)


def _lines(path: Path, depth: int = 0) -> Iterator[str]:
    """Yield the lines of a file, with included files in their places."""
    if depth > MAX_INCLUDES:
        raise UsageError(f"{path}: Include is nested more than {MAX_INCLUDES} deep; do files include each other?")
    try:
        text = read_regular(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: expected an ssh_config (--ssh-config FILE, or none)") from error
    everywhere = True
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.match(line)
        if match is None or line.lstrip().startswith("#"):
            continue
        keyword, value = match[1].lower(), match[2]
        if keyword in ("host", "match"):
            everywhere = value.lower() in ("*", "all")
            if keyword == "match" and _EXEC.search(value):
                raise UsageError(
                    f"{path}:{number}: 'Match exec' is not supported, because it runs a command; {_ADVICE}"
                )
        if keyword != "include":
            yield line
        elif everywhere:
            yield from _expand_include(value, depth)
        else:
            raise UsageError(
                f"{path}:{number}: an Include for some hosts only is not supported: move it to the top of the file, "
                f"or {_ADVICE}"
            )


def _expand_include(patterns: str, depth: int) -> Iterator[str]:
    for pattern in patterns.replace('"', "").split():
        # Relative paths start at the user's folder, wherever the file is, as in OpenSSH.
        whole = Path("~/.ssh").expanduser() / Path(pattern).expanduser()
        for path in sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor)))):
            yield from _lines(path, depth + 1)
            yield "Host *"  # the next lines belong to this file again, not to a block of the included one


def _check_owner(path: Path) -> None:
    """Raise `UsageError` if anybody but the user and root can write to the file, as OpenSSH does."""
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & 0o022:
        raise UsageError(f"{path}: others can write to it, so it is not trusted: chmod go-w {path}")


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _join_words(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
