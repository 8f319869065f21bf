"""How an object store is reached and by whom: the names of stores, and what a login needs.

An `Access` is made by the process that uses it, by `find_access`: from a profile of ``stores.yaml``, which only its
owner may read, or from variables of the environment, those of python-swiftclient (``ST_*``, ``OS_*``) and of AWS
(``AWS_*``, with the files that they name). It is in no treatment and in no stats file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from bench_common.errors import UsageError, did_you_mean
from bench_common.files import open_regular
from bench_common.keys import configuration_directory, read_private
from bench_common.secret import NO_SECRET, Secret
from bench_features.objects.common.store_names import store_names
from bench_features.objects.common.variables import INSECURE_VARIABLE, SWIFT_VARIABLES, VERSION_VARIABLES

if TYPE_CHECKING:
    import yaml


def bucket_name(container: str) -> str:
    """Return the bucket that stands for a container under S3, which allows neither underscores nor capitals."""
    return container.lower().replace("_", "-")


class Access(Struct, frozen=True):
    """What a login to a store needs. Empty fields are unknown; a store says which ones it lacks."""

    store: str
    """The store's registered name: its protocol."""
    source: str = ""
    """Where the values come from, for messages: variables, or a profile and its file."""
    endpoints: tuple[str, ...] = ()
    """URLs to send requests to: Swift's storage URLs (its login returns one where none is given), S3's endpoints."""
    region: str = ""
    """The region of the endpoint: in Keystone's catalogue, and in S3's signature."""
    insecure: bool = False
    """Whether the servers' certificates are not verified."""
    ca_file: str = ""
    """The certificates that servers are verified with; those of the system where empty."""

    auth_version: str = ""
    """Swift: ``1`` (TempAuth), ``2`` or ``3`` (Keystone); empty where a token and an endpoint are given."""
    auth_url: str = ""
    """Swift: where to log in."""
    user: str = ""
    """Swift: the user's name; with version 1 ``account:user``. S3: the access key."""
    key: Secret = NO_SECRET
    """Swift: the password. S3: the secret key."""
    token: Secret = NO_SECRET
    """Swift: a token to use as it is. S3: the session token of temporary credentials."""
    user_id: str = ""
    """Keystone: the user's id, where the name is not given."""
    user_domain: str = ""
    """Keystone 3: the name of the user's domain."""
    user_domain_id: str = ""
    """Keystone 3: the id of the user's domain."""
    project: str = ""
    """Keystone: the name of the project (tenant)."""
    project_id: str = ""
    """Keystone: the id of the project (tenant)."""
    project_domain: str = ""
    """Keystone 3: the name of the project's domain."""
    project_domain_id: str = ""
    """Keystone 3: the id of the project's domain."""
    application_credential: str = ""
    """Keystone 3: the name of an application credential, whose secret is then the key."""
    application_credential_id: str = ""
    """Keystone 3: the id of an application credential, whose secret is then the key."""
    interface: str = "public"
    """Keystone: which of the service's endpoints: ``public``, ``internal`` or ``admin``."""
    service_type: str = "object-store"
    """Keystone: the type of the service in the catalogue."""

    def at(self, endpoints: tuple[str, ...]) -> Access:
        """Return this access with other endpoints, where any are given."""
        return replace(self, endpoints=endpoints) if endpoints else self

    def secrets(self) -> tuple[Secret, ...]:
        """Return the secrets that it holds."""
        values = (getattr(self, name) for name in self.__struct_fields__)
        return tuple(value for value in values if isinstance(value, Secret) and value)


def find_access(store: str, profile: str = "", variables: Mapping[str, str] = os.environ) -> Access:
    """Return the access to a store by its name: from a profile, else from the environment.

    Raises `UsageError` for a profile that is not there, cannot be used, or can be read by others. What is missing is
    left empty: the store says so when it is opened.
    """
    if profile:
        return _access_of_profile(store, profile, configuration_directory(variables) / PROFILES_FILE)
    if store == "s3":
        return _access_of_aws(variables)
    return _access_of_swift(store, variables)


def find_accesses(place: str, variables: Mapping[str, str] = os.environ) -> list[Access]:
    """Return the accesses that a user names: a profile's stores, or a protocol or URL with the environment's login.

    Raises `UsageError` as `find_access` does.
    """
    if "://" in place:
        refuse_userinfo(place, "--store")
        swift = any(variables.get(name) for name in ALL_VARIABLES if name.startswith(("ST_", "OS_")))
        return [find_access("swift" if swift else "s3", variables=variables).at((place,))]
    if place in store_names():
        return [find_access(place, variables=variables)]
    path = configuration_directory(variables) / PROFILES_FILE
    stores = _members(path, _chosen(path, _profiles(path, place), place, "profile"), f"stores of profile {place!r}")
    return [_access_of_profile(store, place, path) for store in stores]


# -- the environment, as python-swiftclient reads it ---------------------------------------------------------------

AWS_VARIABLES: Final = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN"),
    *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"),
)
ALL_VARIABLES: Final = frozenset(
    {
        *("ST_AUTH", "ST_USER", "ST_KEY", INSECURE_VARIABLE, *VERSION_VARIABLES, *AWS_VARIABLES),
        *(name for names in SWIFT_VARIABLES.values() for name in names),
    }
)
"""Every variable that says how a store is reached; no other one goes to a worker on another host."""
_AUTH_TYPES: Final = (
    "password",
    "v2password",
    "v3password",
    "v3applicationcredential",
    "token",
    "v3token",
    "v1password",
)


def _access_of_swift(store: str, variables: Mapping[str, str]) -> Access:
    values = {field: _first(variables, names) for field, names in SWIFT_VARIABLES.items()}
    named = [name for name in (*VERSION_VARIABLES, *ALL_VARIABLES) if name.startswith(("ST_", "OS_"))]
    used = sorted({name for name in named if variables.get(name)})
    if variables.get("OS_CERT"):
        raise UsageError("OS_CERT: certificates of the client are not supported; use a password or a token")
    kind = variables.get("OS_AUTH_TYPE", "")
    if kind and kind not in _AUTH_TYPES:
        raise UsageError(f"OS_AUTH_TYPE={kind}: not supported{did_you_mean(kind, _AUTH_TYPES)}; "
                         f"expected one of {', '.join(_AUTH_TYPES)}")  # fmt: skip
    version = _auth_version(variables, values)
    if version == "1":
        values |= {"auth_url": variables.get("ST_AUTH", ""), "user": variables.get("ST_USER", "")}
        values["key"] = variables.get("ST_KEY", "")
    elif version:
        for field, name in (("auth_url", "ST_AUTH"), ("user", "ST_USER"), ("key", "ST_KEY")):
            values[field] = values[field] or variables.get(name, "")
        if not (values["project"] or values["project_id"]) and ":" in values["user"]:
            values["project"], _, values["user"] = values["user"].partition(":")
    return _access(
        store,
        {**values, "auth_version": version, "insecure": _is_true(variables.get(INSECURE_VARIABLE, ""))},
        f"the environment ({', '.join(used)})" if used else "",
    )


def _auth_version(variables: Mapping[str, str], values: Mapping[str, str]) -> str:
    """Return the version of the login: the one that is named, else the one that the other variables are for."""
    if values["token"] and values["endpoints"]:
        return ""
    named = _first(variables, VERSION_VARIABLES)
    if named:
        return {"1.0": "1", "2.0": "2", "3.0": "3", "v1": "1", "v1.0": "1", "v2.0": "2", "v3": "3"}.get(named, named)
    if variables.get("ST_AUTH") or not values["auth_url"]:
        return "1"
    return "2" if urlsplit(values["auth_url"]).path.rstrip("/").endswith(("/v2.0", "/v2.0/tokens")) else "3"


# -- the environment and the files, as AWS's tools read them -------------------------------------------------------


def _access_of_aws(variables: Mapping[str, str]) -> Access:
    given = {
        "user": variables.get("AWS_ACCESS_KEY_ID", ""),
        "key": variables.get("AWS_SECRET_ACCESS_KEY", ""),
        "token": _first(variables, ("AWS_SESSION_TOKEN", "AWS_SECURITY_TOKEN")),
    }
    profile = _first(variables, ("AWS_PROFILE", "AWS_DEFAULT_PROFILE"))
    home = Path(variables.get("HOME") or Path.home()) / ".aws"
    credentials = Path(variables.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials")
    settings = Path(variables.get("AWS_CONFIG_FILE") or home / "config")
    name = profile or "default"
    section = name if name == "default" else f"profile {name}"
    kept = {**_section(settings, section), **_section(credentials, name)}
    if profile and not kept:
        raise UsageError(f"AWS_PROFILE={profile}: neither {credentials} nor {settings} has this profile")
    source = "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)" if given["user"] or given["key"] else ""
    if not source and kept:
        given = {
            "user": kept.get("aws_access_key_id", ""),
            "key": kept.get("aws_secret_access_key", ""),
            "token": kept.get("aws_session_token", ""),
        }
        source = f"profile {name!r} of {credentials}"
        indirect = next((key for key in _INDIRECT if key in kept), None)
        if not given["user"] and indirect is not None:
            raise UsageError(
                f"profile {name!r} of {settings}: {indirect} is not supported; set AWS_ACCESS_KEY_ID, "
                "AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, which `aws configure export-credentials` prints"
            )
    values = {
        **given,
        "region": _first(variables, ("AWS_REGION", "AWS_DEFAULT_REGION")) or kept.get("region", ""),
        "endpoints": _first(variables, ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")) or kept.get("endpoint_url", ""),
        "ca_file": variables.get("AWS_CA_BUNDLE", "") or kept.get("ca_bundle", ""),
    }
    return _access("s3", values, source)


_INDIRECT: Final = ("role_arn", "sso_session", "sso_start_url", "credential_process", "web_identity_token_file")


def _section(path: Path, name: str) -> Mapping[str, str]:
    """Return a section of one of AWS's files; empty where there is none. Its values appear in no error."""
    import configparser

    parser = configparser.RawConfigParser(strict=False, default_section="\0")
    try:
        with open_regular(path) as file:
            parser.read_string(file.read().decode("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{path}: cannot be read as AWS's tools do") from None
    except configparser.Error as error:
        line = getattr(error, "lineno", None) or (getattr(error, "errors", None) or [(0, "")])[0][0]
        raise UsageError(
            f"{path}:{line}:1: this is no file of AWS's tools: expected [NAME] and KEY = VALUE"
        ) from None
    return dict(parser[name]) if parser.has_section(name) else {}


# -- profiles ------------------------------------------------------------------------------------------------------

PROFILES_FILE: Final = "stores.yaml"
"""The file of the profiles, in the directory of this user's settings."""
_ALIASES: Final[Mapping[str, Mapping[str, str]]] = {
    "swift": {"storage_url": "endpoints"},
    "s3": {"endpoint": "endpoints", "access_key": "user", "secret_key": "key", "session_token": "token"},
}
"""The keys of a profile that are called otherwise than the field."""
_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "s3": ("endpoint", "access_key", "secret_key", "session_token", "region", "insecure", "ca_file"),
    "swift": (
        *("auth_version", "auth_url", "user", "key", "token", "storage_url", "user_id", "user_domain"),
        *("user_domain_id", "project", "project_id", "project_domain", "project_domain_id", "application_credential"),
        *("application_credential_id", "region", "interface", "service_type", "insecure", "ca_file"),
    ),
}


def profile_keys(store: str) -> tuple[str, ...]:
    """Return the keys that a profile may have for a store."""
    own = tuple(name for name in Access.__struct_fields__ if name not in ("store", "source"))
    return _KEYS.get(store, own)


def _profiles(path: Path, profile: str) -> dict[str, tuple[str, yaml.Node]]:
    """Return the profiles of a file, in which one is looked for."""
    import yaml  # most processes need none of it

    if not path.exists():
        raise UsageError(f"{path}: not found; profile {profile!r} is expected there, in a file of mode 600")
    text = read_private(path, kind="file of stores")
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UsageError(f"{path}{place}: not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise UsageError(f"{path}: not YAML") from None
    return _members(path, root, "profiles by name")


def _access_of_profile(store: str, profile: str, path: Path) -> Access:
    profiles = _profiles(path, profile)
    stores = _members(path, _chosen(path, profiles, profile, "profile"), f"stores of profile {profile!r}")
    known = profile_keys(store)
    values: dict[str, Any] = {}
    for key, (at, node) in _members(path, _chosen(path, stores, store, "store"), f"keys of {store}").items():
        if key not in known:
            raise UsageError(f"{at}: key {key!r} is not known{did_you_mean(key, known)}; expected {', '.join(known)}")
        values[_ALIASES.get(store, {}).get(key, key)] = _value(path, node, key)
    if store == "swift" and "auth_version" not in values:
        values["auth_version"] = _guess_version(values)
    return _access(store, values, f"profile {profile!r} of {path}")


def _guess_version(values: Mapping[str, Any]) -> str:
    if values.get("token") and values.get("endpoints"):
        return ""
    path = urlsplit(str(values.get("auth_url", ""))).path
    return "1" if "/auth/v1" in path else "2" if "/v2.0" in path else "3" if "/v3" in path else (
        "3" if {"project", "project_id", "user_domain", "application_credential_id"} & set(values) else "1"
    )  # fmt: skip


def _members(path: Path, node: yaml.Node | None, what: str) -> dict[str, tuple[str, yaml.Node]]:
    """Return the keys of a mapping, each with its place and value."""
    import yaml

    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{_place(path, node)}: expected {what}")
    return {str(key.value): (_place(path, key), value) for key, value in node.value}


def _chosen(path: Path, members: Mapping[str, tuple[str, yaml.Node]], name: str, what: str) -> yaml.Node:
    if name not in members:
        has = f"; it has: {', '.join(members)}" if members else ""
        raise UsageError(f"{path}: there is no {what} {name!r}{did_you_mean(name, members)}{has}")
    return members[name][1]


def _value(path: Path, node: yaml.Node, key: str) -> str | bool | tuple[str, ...]:
    import yaml

    if key in ("endpoint", "endpoints", "storage_url") and isinstance(node, yaml.SequenceNode):
        return tuple(str(_value(path, each, "")) for each in node.value)
    if not isinstance(node, yaml.ScalarNode) or not node.value:
        raise UsageError(f"{_place(path, node)}: {key}: expected a text")
    return _is_true(node.value) if key == "insecure" else str(node.value)


def _place(path: Path, node: yaml.Node | None) -> str:
    return f"{path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}" if node is not None else str(path)


# -- what they have in common --------------------------------------------------------------------------------------


def _access(store: str, values: Mapping[str, Any], source: str) -> Access:
    """Return an access with the values that are not empty, in the types of their fields."""
    found = {field: value for field, value in values.items() if value}
    for field in ("key", "token"):
        if field in found:
            found[field] = Secret(str(found[field]))
    if isinstance(found.get("endpoints"), str):
        found["endpoints"] = tuple(found["endpoints"].split())
    for url in _urls(found):
        refuse_userinfo(url, source or store)
    return Access(store, source, **{name: found[name] for name in found})


def _urls(values: Mapping[str, Any]) -> Iterator[str]:
    yield from values.get("endpoints", ())
    if values.get("auth_url"):
        yield values["auth_url"]


def refuse_userinfo(url: str, where: str) -> None:
    """Raise `UsageError` for a URL with a user or a password in it, which it does not repeat."""
    authority = url.partition("://")[2].partition("/")[0]
    if "@" in authority:
        raise UsageError(f"{where}: a URL holds a user or password, which would show in files and logs: leave it out")


def _first(variables: Mapping[str, str], names: Sequence[str]) -> str:
    return next((variables[name] for name in names if variables.get(name)), "")


def _is_true(text: str) -> bool:
    return text.strip().lower() in ("1", "true", "yes", "on", "y", "t")
