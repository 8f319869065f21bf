"""How tests look at a page: in Debian's Chromium, at a width, dark or printed, with axe-core's judgement.

`Eyes.look` opens a file or an address in a context of its own and returns a `Sight`, which has noted every request,
message and error since before the page began. All that a page must always keep is one call: `Sight.assert_clean`.
"""

import shutil
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from deadlines import END_S

WIDE, NARROW = 1200, 400
"""The widths of a desk and of a telephone, in pixels."""
DEADLINE_MS = 1000 * END_S
"""Of each step in the browser: beside other tests a second may take a minute."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def find_chromium():
    """Return the path of Debian's Chromium, or of another; None if there is none."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@cache
def axe_script():
    """Return axe-core, which a Python package carries: its own binding adds nothing that we need."""
    return (Path(find_spec("axe_playwright_python").origin).parent / "axe.min.js").read_text("utf-8")


class Eyes:
    """A browser that opens pages."""

    def __init__(self, browser):
        self._browser = browser
        self._contexts = []

    def look(self, target, *, width=WIDE, height=1600, dark=False, scripts=True, printed=False, **options):
        """Open a file or an address and wait until it has loaded; other options are those of a context."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            java_script_enabled=scripts,
            **options,
        )
        context.set_default_timeout(DEADLINE_MS)
        self._contexts.append(context)
        sight = Sight(context.new_page())
        if printed:
            sight.page.emulate_media(media="print")
        address = str(target)
        sight.page.goto(address if "://" in address else Path(address).resolve().as_uri())
        return sight

    def close(self):
        """Close all that was opened."""
        for context in self._contexts:
            context.close()


class Sight:
    """A page that was opened, and what it did."""

    def __init__(self, page):
        self.page = page
        self.requests, self.complaints = [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", self._note_failure)

    def _note_failure(self, request):
        # What the page itself gave up, such as the events of a run that is over, is no failure.
        if request.failure != "net::ERR_ABORTED":
            self.complaints.append(f"{request.url[:200]}: {request.failure}")

    def assert_clean(self):
        """Assert all that holds for each page, live or not."""
        self.assert_no_complaints()
        self.assert_loads_only_its_own()
        self.assert_no_sideways_scroll()
        self.assert_accessible()

    def assert_no_complaints(self):
        """No message on the console, no error, no request that failed."""
        assert self.complaints == []

    def assert_loads_only_its_own(self):
        """A file asks for nothing but itself; a page of a server for nothing of another."""
        own = urlsplit(self.page.url)
        foreign = [url[:200] for url in self.requests if urlsplit(url)[:2] != own[:2]]
        assert foreign == []
        if own.scheme == "file":
            assert [url[:200] for url in self.requests] == [self.page.url]

    def assert_no_sideways_scroll(self):
        """The page is no wider than its window; tables and commands scroll in regions of their own."""
        excess = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert excess <= 0, f"{excess} px wider than the window: {self.widest()}"

    def widest(self):
        """Return what reaches furthest to the right, and how far."""
        return self.page.evaluate(
            """() => [...document.body.querySelectorAll("*")]
                .filter(each => !each.closest("svg *") && !each.closest(".scroll *, pre *"))
                .map(each => [each.getBoundingClientRect().right, each.outerHTML.slice(0, 120)])
                .sort((a, b) => b[0] - a[0]).slice(0, 3)"""
        )

    def assert_accessible(self):
        """axe-core finds no violation of WCAG 2.0 to 2.2 (A, AA) and of its best practices."""
        self.page.evaluate(axe_script())
        # Of what passes it would make a path to each element, and send all of that here.
        found = self.page.evaluate(
            """async rules => {
                const options = {runOnly: rules, resultTypes: ["violations"], selectors: false};
                const found = await axe.run(document, options);
                return {passes: found.passes.length, violations: found.violations};
            }""",
            RULES,
        )
        assert found["passes"], "axe-core checked nothing"
        assert [
            (each["id"], each["impact"], each["help"], [node["html"][:200] for node in each["nodes"][:3]])
            for each in found["violations"]
        ] == []

    def press(self, key, times=1):
        """Press a key, and return the text of what has the focus then."""
        for _ in range(times):
            self.page.keyboard.press(key)
        return self.focused()

    def focused(self):
        """Return the text of the element that has the focus."""
        return self.page.evaluate(
            "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent || '').trim()"
        )
