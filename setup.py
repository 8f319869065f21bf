"""What pyproject.toml cannot say: the page on a package index, where links to files of the repository lead nowhere.

With ``WEIGHBRIDGE_URL``, the address of the repository, they lead there, and the index shows the address; without it
they are plain text. Everything else about the package is in pyproject.toml.
"""

import os
import re
from pathlib import Path

from setuptools import setup

README = Path(__file__).parent / "README.rst"
RELATIVE_LINK = re.compile(r"`([^`<]+?)\s*<(?![a-z]+:)([^>`]+)>`_")


def index_page(text: str, url: str) -> str:
    """Return a document with its relative links below `url`, or as plain text where that is empty."""

    def link(found: re.Match[str]) -> str:
        return f"`{found[1]} <{url}/blob/main/{found[2]}>`_" if url else found[1]

    return RELATIVE_LINK.sub(link, text)


def main() -> None:
    """Build or install the package."""
    url = os.environ.get("WEIGHBRIDGE_URL", "").rstrip("/")
    setup(
        long_description=index_page(README.read_text(encoding="utf-8"), url),
        long_description_content_type="text/x-rst",
        project_urls={"Source": url, "Changes": f"{url}/blob/main/CHANGELOG.rst"} if url else {},
    )


if __name__ == "__main__":
    main()
