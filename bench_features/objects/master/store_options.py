"""The options that say how an object store is reached: python-swiftclient's and ssbench's letters and names.

What they give becomes variables of this process's environment, which local workers inherit. It is in no other
program's arguments, and nothing that a run writes has it: the arguments that a stats file keeps are masked here, and
so are those that the system shows of this process.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping, MutableSequence
from typing import Annotated, Any, Final

from msgspec import Struct

from bench_common.errors import UsageError
from bench_common.options import Option
from bench_common.safe_text import without_userinfo
from bench_common.secret import MASK, Secret, hide_from_system
from bench_common.streams import tell
from bench_features.objects.common.variables import INSECURE_VARIABLE, SWIFT_VARIABLES, VERSION_VARIABLES

STORE_OPTIONS: Final = "object stores (else: variables ST_*, OS_* and AWS_*, or a profile)"
"""The heading of the options."""
_FLAGS: Final = (
    (
        ("-V", "--auth-version"),
        "ST_AUTH_VERSION",
        "VERSION",
        "version of the login: 1, 2 or 3 (default: by what is given)",
    ),
    (("-A", "--auth", "--auth-url"), "ST_AUTH", "URL", "where to log in"),
    (("-U", "--user"), "ST_USER", "USER", "user: ACCOUNT:USER with version 1"),
    (("-K", "--key"), "ST_KEY", "KEY", "the user's key; better set ST_KEY, which no other user of this host sees"),
    (("-S", "--storage-url"), "OS_STORAGE_URL", "URL", "storage URL in the place of the login's; repeatable"),
    (("-T", "--auth-token"), "OS_AUTH_TOKEN", "TOKEN", "use this token and do not log in; needs -S"),
)
_OS_FLAGS: Final = (
    *("username", "password", "user-id", "user-domain-name", "user-domain-id", "tenant-name", "tenant-id"),
    *("project-name", "project-id", "project-domain-name", "project-domain-id", "auth-url", "auth-token"),
    *("storage-url", "region-name", "service-type", "endpoint-type", "cacert"),
    *("application-credential-id", "application-credential-name", "application-credential-secret"),
)
"""Options ``--os-X``, also ``--os_X``, for the variable ``OS_X``."""
_SECRET: Final = frozenset({"ST_KEY", "OS_AUTH_TOKEN", "OS_PASSWORD", "OS_APPLICATION_CREDENTIAL_SECRET"})
_OUTDONE: Final = {
    "ST_AUTH": SWIFT_VARIABLES["auth_url"],
    "ST_USER": (*SWIFT_VARIABLES["user"], *SWIFT_VARIABLES["user_id"]),
    "ST_KEY": SWIFT_VARIABLES["key"],
    "OS_AUTH_URL": ("ST_AUTH",),
    "OS_USERNAME": ("ST_USER",),
    "OS_PASSWORD": ("ST_KEY",),
    "ST_AUTH_VERSION": VERSION_VARIABLES[1:],
    "OS_TENANT_NAME": ("OS_PROJECT_NAME",),
    "OS_TENANT_ID": ("OS_PROJECT_ID",),
}
"""Variables of the environment that an option takes the place of, beside its own."""
_LOGIN: Final = frozenset({"ST_AUTH", "ST_USER", "ST_KEY", "OS_AUTH_URL", "OS_USERNAME", "OS_PASSWORD"})


class _SetVariable(argparse.Action):
    """Keeps an option's value under the name of its variable, `const`."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, *_: Any) -> None:
        del parser
        value = "true" if values == [] else str(values)
        setattr(namespace, self.dest, (*getattr(namespace, self.dest), (self.const, Secret(value))))


def _options() -> Iterator[Option]:
    """Yield an option for each variable."""
    for names, variable, metavar, text in _FLAGS:
        spelling = f"{', '.join(names)} {metavar}"
        yield Option(spelling, f"{text} ({variable})", action=_SetVariable, const=variable)
    shown = f"Keystone's user; likewise {', '.join(f'--os-{name}' for name in _OS_FLAGS[1:])}: each as OS_..."
    for name in _OS_FLAGS:
        under = name.replace("-", "_")
        for flag, text in (
            (f"--os-{name}", shown if name == _OS_FLAGS[0] else argparse.SUPPRESS),
            (f"--os_{under}", argparse.SUPPRESS),
        ):
            yield Option(f"{flag} X", text, action=_SetVariable, const=f"OS_{under.upper()}")
    text = f"do not verify the certificates of the store and of its login ({INSECURE_VARIABLE})"
    yield Option("--store-insecure", text, action=_SetVariable, const=INSECURE_VARIABLE, nargs=0)


class StoreFlags(Struct, frozen=True):
    """What the command line says of the store, by the names of variables."""

    store_values: Annotated[tuple[tuple[str, Secret], ...], *_options()] = ()
    """Variables and their values, in the order of the arguments."""

    @property
    def variables(self) -> dict[str, str]:
        """The variables and their values; several storage URLs are one value. Not to be shown or written."""
        found: dict[str, str] = {}
        for name, secret in self.store_values:
            value = secret.reveal()
            several = name == "OS_STORAGE_URL" and name in found
            found[name] = f"{found[name]} {value}" if several else value
        return found

    def apply(
        self,
        environ: MutableMapping[str, str] = os.environ,
        arguments: MutableSequence[str] = sys.argv,
        *,
        quiet: bool = False,
    ) -> None:
        """Put the values into the environment, and take the secret ones out of the arguments of this process.

        Raises `UsageError` for a token without a storage URL, and for a URL with a password in it.
        """
        given = self.variables
        if given:
            _refuse_passwords(given)
        for name in given:
            for other in _OUTDONE.get(name, ()):
                if other not in given:
                    environ.pop(other, None)
        if _LOGIN & set(given) and "OS_AUTH_TOKEN" not in given:
            environ.pop("OS_AUTH_TOKEN", None)
        environ.update(given)
        if "OS_AUTH_TOKEN" in given and not environ.get("OS_STORAGE_URL"):
            raise UsageError("-T: a token is of use with a storage URL only: add -S URL")
        arguments[:] = map(without_userinfo, arguments)
        # The longest first: one may be the end of another.
        secrets = sorted((value for name, value in given.items() if name in _SECRET and value), key=len, reverse=True)
        if secrets:
            arguments[:] = [masked(argument, secrets) for argument in arguments]
            hide_from_system(secrets)
            if not quiet:
                tell(
                    "a key, password or token was given on the command line: other users of this host could see it "
                    "until now, and your shell may keep it; set ST_KEY, OS_PASSWORD or OS_AUTH_TOKEN instead, or use "
                    "a profile (docs/objects.rst)"
                )


def _refuse_passwords(given: Mapping[str, str]) -> None:
    """Raise `UsageError` for a URL with a password in it."""
    from bench_features.objects.common.access import refuse_userinfo

    for name in ("ST_AUTH", "OS_AUTH_URL", "OS_STORAGE_URL"):
        for url in given.get(name, "").split():
            refuse_userinfo(url, "the command line")


def masked(argument: str, secrets: list[str]) -> str:
    """Return an argument without the first of the secrets that it is, or that it ends with as an option."""
    for secret in secrets:
        if argument == secret:
            return MASK
        if argument.startswith("-") and argument.endswith(secret):
            return argument.removesuffix(secret) + MASK
    return argument
