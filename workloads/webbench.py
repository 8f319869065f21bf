"""The service webbench: a web server with one page of twelve bytes that a program makes (Apache and PHP)."""

from __future__ import annotations

from typing import Final

from workloads.base import Service

NAME: Final = "webbench"
URL: Final = f"http://{{{NAME}.authority}}/index.php"
"""Where the page is; the worker fills host and port in."""

PAGE_BYTES: Final = len("Hello World!")

WEBBENCH: Final = Service(
    NAME,
    image="weighbridge/webbench",
    command=("serve-webbench",),
    port=80,
    ready=("ready-webbench",),
    binary="apache2",
)

PROGRAMS: Final = {"serve-webbench": "webbench/serve-webbench", "ready-webbench": "webbench/ready-webbench"}
