"""Where an archive is: a folder, with SQLite in it, or a PostgreSQL database with the folder of its stats files.

::

    /srv/archive                                           a folder
    sqlite:////srv/archive/archive.db                      the same
    postgresql+psycopg://user@host/bench?objects=/srv/archive&schema=weighbridge

Passwords are taken from the URL, or as every client of PostgreSQL takes them (``PGPASSWORD``, ``~/.pgpass``), and
are never printed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from bench_common.errors import UsageError, closest_match, did_you_mean
from bench_common.safe_text import one_line

VARIABLE: Final = "WEIGHBRIDGE_ARCHIVE"
"""Names the archive where no option does."""
DATABASE: Final = "archive.db"
DEFAULT_SCHEMA: Final = "weighbridge"
POSTGRESQL: Final = "postgresql+psycopg"
BUILT_SUFFIX: Final = "_new"
"""After its name: the schema in which a rebuild makes the new index."""
_SCHEMES: Final = ("postgresql+psycopg", "postgresql", "postgres", "sqlite")
_HARMLESS: Final = frozenset(
    (
        *("application_name", "channel_binding", "connect_timeout", "gssencmode", "host", "hostaddr", "keepalives"),
        *("keepalives_idle", "keepalives_interval", "passfile", "port", "service", "sslcert", "sslcrl", "sslkey"),
        *("sslmode", "sslrootcert", "target_session_attrs", "tcp_user_timeout", "user"),
    )
)
"""The parameters of libpq that hold no secret (PostgreSQL's documentation, "Parameter Key Words")."""
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,40}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where an archive is."""

    folder: Path
    """The folder of its stats files and annotations; SQLite's file is in it, too."""
    url: str | None = field(default=None, repr=False)
    """The PostgreSQL URL for SQLAlchemy, credentials included; None for SQLite."""
    schema: str | None = None
    """The schema in PostgreSQL."""

    @property
    def database(self) -> Path:
        """SQLite's file."""
        return self.folder / DATABASE

    @property
    def shown(self) -> str:
        """How messages name the archive, without user, password or parameters."""
        if self.url is None:
            return one_line(str(self.folder))
        parts = urlsplit(self.url)
        host = parts.hostname or "local socket"
        return one_line(f"postgresql://{host}{parts.path} (schema {self.schema}, files in {self.folder})")


def default_folder() -> Path:
    """Return the folder of the archive that nobody named: ``weighbridge`` in the XDG data directory."""
    data = os.environ.get("XDG_DATA_HOME") or ""
    if data.startswith("/"):
        return Path(data) / "weighbridge"
    try:
        return Path.home() / ".local" / "share" / "weighbridge"
    except RuntimeError as error:
        raise UsageError(
            f"no archive is named, and this user has no home folder for one; name it with --archive or {VARIABLE}"
        ) from error


def find_address(given: str | None) -> Address:
    """Return the address that an option, the environment or the default names; raise `UsageError` for a wrong one."""
    text = given if given is not None else os.environ.get(VARIABLE) or None
    if text is None:
        return Address(default_folder())
    where = "--archive" if given is not None else VARIABLE
    if not text.strip():
        raise UsageError(f"{where}: empty; expected a folder, or a URL such as {_example()}")
    if "://" in text or text.startswith("sqlite:"):
        return _of_url(text, where)
    if re.match(r"postgres\w*(\+\w+)?:", text) is not None:
        # It can have a password in it, so it is not shown.
        raise UsageError(f"{where}: a URL has // after its first colon; expected {_example()}")
    return _of_folder(_expanded(text, where), where)


def password_of(text: str) -> str:
    """Return the password in an archive's URL as it is written there; empty if there is none."""
    _, found, rest = text.partition("://")
    user, found, _ = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@") if found else ("", "", "")
    return user.partition(":")[2] if found else ""


def _expanded(text: str, where: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise UsageError(f"{where} {one_line(text)}: the home folder is not known; name the whole path") from error


def _of_folder(folder: Path, where: str) -> Address:
    if folder.exists() and not folder.is_dir():
        hint = f"; name its folder: {where} {folder.parent}" if folder.name == DATABASE else "; name a folder"
        raise UsageError(f"{where} {folder}: is a file, and an archive is a folder{hint}")
    return Address(folder.absolute())


def _of_url(text: str, where: str) -> Address:
    parts, shown = _parts(text, where), one_line(text.split("?", maxsplit=1)[0])
    if parts.scheme not in _SCHEMES:
        hint = did_you_mean(parts.scheme, _SCHEMES)
        raise UsageError(
            f"{where} {shown}: unknown kind of database {one_line(parts.scheme)!r}{hint}; expected a folder, or "
            f"{_example()}"
        )
    if parts.scheme == "sqlite":
        path = Path(parts.path.removeprefix("/"))
        if path.name != DATABASE or parts.netloc:
            raise UsageError(f"{where} {shown}: expected sqlite:///FOLDER/{DATABASE}, or just the folder")
        return _of_folder(path.parent, where)
    values = dict(parse_qsl(parts.query, keep_blank_values=True))
    objects, schema = values.pop("objects", ""), values.pop("schema", DEFAULT_SCHEMA)
    if not objects:
        meant = next((name for name in values if closest_match(name, ["objects"])), None)
        hint = f" (did you mean 'objects' by {one_line(meant)!r}?)" if meant else ""
        raise UsageError(
            f"{where} {shown}: does not say where the stats files are kept{hint}; add ?objects=/FOLDER, a folder "
            "that all hosts of the team mount"
        )
    _refuse_secrets(values, f"{where} {shown}")
    if not objects.startswith("/"):
        raise UsageError(f"{where} {shown}: objects={one_line(objects)}: expected a path that begins with /")
    if not parts.path.strip("/"):
        raise UsageError(f"{where} {shown}: names no database; expected {_example()}")
    if _NAME.fullmatch(schema) is None:
        raise UsageError(
            f"{where} {shown}: schema={one_line(schema)}: expected lower-case letters, digits and _, at most 41"
        )
    if schema.endswith(BUILT_SUFFIX):
        raise UsageError(
            f"{where} {shown}: schema={schema}: rebuilds use names that end in {BUILT_SUFFIX}; choose another"
        )
    url = urlunsplit((POSTGRESQL, parts.netloc, parts.path, urlencode(values), ""))
    return Address(Path(objects), url, schema)


def _refuse_secrets(parameters: Iterable[str], shown: str) -> None:
    """Raise `UsageError` for a parameter that is not known to hold no secret: they stay in the run's command line."""
    for name in parameters:
        if name == "password":
            raise UsageError(
                f"{shown}: a password after ? would be kept with the run's command line; put it before the @, or "
                "into PGPASSWORD or ~/.pgpass"
            )
        if name not in _HARMLESS:
            hint = did_you_mean(name, (*_HARMLESS, "schema"))
            raise UsageError(
                f"{shown}: parameter {one_line(name)!r}{hint} is not taken, for it would be kept with the run's "
                f"command line; expected objects, schema, {', '.join(sorted(_HARMLESS))}; others belong into a "
                "service file (service=NAME, ~/.pg_service.conf)"
            )


def _parts(text: str, where: str) -> SplitResult:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise _unclear(where) from error
    userinfo = text.partition("://")[2].partition("objects=")[0].rpartition("@")[0]
    if re.search(r"[@/?#]", userinfo) is not None:
        raise _unclear(where)
    return parts


def _unclear(where: str) -> UsageError:
    """Return the error of a URL of which nothing is shown: what looks like a host may be of a password."""
    return UsageError(
        f"{where}: not a URL, or its user or password has characters that mean something in one; in those, write @ "
        "as %40, / as %2F, ? as %3F, # as %23 and : as %3A, or put the password into PGPASSWORD; a port is a number; "
        f"expected {_example()}"
    )


def _example() -> str:
    return f"{POSTGRESQL}://USER@HOST/DATABASE?objects=/FOLDER"
