"""The variables of the environment that say how a store is reached, as python-swiftclient reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SWIFT_VARIABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "auth_url": ("OS_AUTH_URL",),
    "user": ("OS_USERNAME",),
    "key": ("OS_PASSWORD", "OS_APPLICATION_CREDENTIAL_SECRET"),
    "token": ("OS_AUTH_TOKEN",),
    "endpoints": ("OS_STORAGE_URL",),
    "user_id": ("OS_USER_ID",),
    "user_domain": ("OS_USER_DOMAIN_NAME", "OS_DOMAIN_NAME"),
    "user_domain_id": ("OS_USER_DOMAIN_ID", "OS_DOMAIN_ID"),
    "project": ("OS_PROJECT_NAME", "OS_TENANT_NAME"),
    "project_id": ("OS_PROJECT_ID", "OS_TENANT_ID"),
    "project_domain": ("OS_PROJECT_DOMAIN_NAME",),
    "project_domain_id": ("OS_PROJECT_DOMAIN_ID",),
    "application_credential": ("OS_APPLICATION_CREDENTIAL_NAME",),
    "application_credential_id": ("OS_APPLICATION_CREDENTIAL_ID",),
    "region": ("OS_REGION_NAME",),
    "interface": ("OS_ENDPOINT_TYPE", "OS_INTERFACE"),
    "service_type": ("OS_SERVICE_TYPE",),
    "ca_file": ("OS_CACERT",),
}
"""The variables of each field, of which the first that is set counts; version 1 has ST_AUTH, ST_USER and ST_KEY."""
VERSION_VARIABLES: Final = ("ST_AUTH_VERSION", "OS_AUTH_VERSION", "OS_IDENTITY_API_VERSION")
INSECURE_VARIABLE: Final = "SWIFTCLIENT_INSECURE"
