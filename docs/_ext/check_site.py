"""Check a built site: every internal link leads to a page and a place on it, and nothing is loaded from elsewhere.

    python docs/_ext/check_site.py build/docs

Each link of each page is followed in the files, without a network; addresses elsewhere are not fetched.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

LOADS: Final = {"script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""Elements whose address the browser loads by itself."""
LINKS_THAT_LOAD: Final = frozenset({"stylesheet", "icon", "preload", "manifest", "shortcut"})


@dataclass
class Page(HTMLParser):
    """The ids of a page, the addresses that it links to, and those that it loads."""

    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of an element."""
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and LINKS_THAT_LOAD & set(values.get("rel", "").split()):
            self.loaded.append(values.get("href", ""))
        elif tag in LOADS and values.get(LOADS[tag]):
            self.loaded.append(values[LOADS[tag]])


def read(path: Path) -> Page:
    """Return what a page has."""
    page = Page()
    page.feed(path.read_text("utf-8"))
    return page


def faults(site: Path) -> list[str]:
    """Return what is wrong in a site, one line each."""
    site = site.resolve()
    pages = {path: read(path) for path in sorted(site.rglob("*.html"))}
    if not pages:
        return [f"{site}: no pages"]
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        found += [f"{name}: loads {one}, which is elsewhere" for one in page.loaded if _is_elsewhere(one)]
        for link in dict.fromkeys([*page.links, *page.loaded]):
            parts = urlsplit(link)
            if _is_elsewhere(link) or parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            place = unquote(parts.fragment)
            if not target.is_file():
                found.append(f"{name}: {link} leads to no file")
            elif site not in target.parents:
                found.append(f"{name}: {link} leads out of the site")
            elif place and target in pages and place not in pages[target].ids:
                found.append(f"{name}: {link} leads to no place on that page")
    return found


def _is_elsewhere(link: str) -> bool:
    parts = urlsplit(link)
    return bool(parts.netloc or parts.scheme not in ("", "data"))


def main() -> int:
    """Print the faults of the site that the command line names; return the exit code."""
    found = faults(Path(sys.argv[1]))
    sys.stdout.write("".join(f"{line}\n" for line in found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
