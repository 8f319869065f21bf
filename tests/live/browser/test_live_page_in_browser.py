"""The live page of a real run in a real browser: wide, narrow, dark, by keyboard, with hostile texts, to its end."""

from deadlines import START_S, wait_until
from eyes import NARROW
from live_reader import address_in

from bench_common.stats.reader import StatsFile

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e]]>" + "W" * 400
SCENARIO = {
    "name": HOSTILE[:200],
    "engines": ["native"],
    "repeats": 40,
    "iterations": 40,
    "concurrency": 2,
    "jobs": {
        "nap": {"operations": ["run", "wait", "remove"], "container": {"command": ["sleep", "0.05"]}},
        "fail": {"operations": ["run", {"exec": ["sh", "-c", f"echo '{HOSTILE}' >&2; exit 3"]}, "remove"],
                 "container": {"command": ["sleep", "9"]}},
    },
    "allow_failures": True,
}  # fmt: skip


def test_a_run_is_watched_and_stopped(eyes, workspace):
    program, stats = workspace.start_run(
        workspace.scenario(**SCENARIO), "--web", "127.0.0.1:0", "--web-control", "--progress", "none"
    )
    program.wait_for_output("live page: ", START_S)
    url = address_in(program.err)

    wide = eyes.look(url)
    wide.page.wait_for_selector("#latency path[stroke-dasharray='5 3']", state="attached")
    wide.page.wait_for_selector("#errors tbody tr")
    assert "#" not in wide.page.url  # the token is out of sight
    assert wide.page.text_content("#name").startswith("<script>alert(1)</script>")
    assert wide.page.evaluate("document.querySelectorAll('img, #errors script').length") == 0
    assert "\\u202e" in wide.page.text_content("#errors tbody")
    assert wide.page.get_attribute("#spoken", "aria-live") == "polite"
    assert "local-0" in wide.page.text_content("#hosts")
    wide.assert_clean()
    assert wide.page.evaluate("document.cookie") == ""  # no script reads the cookie

    narrow = eyes.look(url, width=NARROW, dark=True, reduced_motion="reduce")
    narrow.page.wait_for_selector("#rate text")
    narrow.page.wait_for_selector("#errors tbody tr")
    narrow.assert_clean()
    out_of_place = narrow.page.evaluate(
        """() => [...document.querySelectorAll("figure svg")].flatMap((svg) => {
            const frame = svg.getBoundingClientRect();
            return [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()])
                .filter(([, box]) => box.left < frame.left - 1 || box.right > frame.right + 1 || box.height < 11)
                .map(([words]) => words);
        })"""
    )
    assert out_of_place == []
    assert narrow.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"

    pause_and_go_on(narrow)
    stranger = eyes.look(url.partition("#")[0])
    stranger.page.wait_for_selector("#notice:not([hidden])")
    assert "no session" in stranger.page.text_content("#notice")
    assert stranger.page.text_content("#name") == "Live run"

    stop_by_keyboard(wide)
    assert program.wait_for_exit().status == 130
    report = workspace.master("report-scenario", "-s", stats, "-q").out.splitlines()
    assert wide.page.text_content("#answer") == " ".join(report[1:])
    assert wide.page.is_visible("#answer")
    kinds = [block.body["kind"] for block in StatsFile(stats).blocks({"event"})]
    assert kinds.count("stopped-on-page") == 1
    assert kinds.count("watched") >= 2


def pause_and_go_on(sight):
    """A page that is paused asks for nothing, and goes on where it was."""
    sight.page.focus("#pause")
    sight.page.keyboard.press("Enter")
    assert sight.focused() == "Go on"
    assert "Paused" in sight.page.text_content("#connection")
    sight.page.keyboard.press("Space")
    wait_until(lambda: sight.page.text_content("#connection").startswith("Connected"), START_S, "the page goes on")


def stop_by_keyboard(sight):
    """The page is walked through, and the run stopped with a confirmation that begins with what is harmless."""
    assert [sight.press("Tab") for _ in range(3)] == ["Skip to the run", "Pause", "Stop the run ..."]
    sight.page.keyboard.press("Enter")
    sight.page.wait_for_selector("dialog[open]")
    assert sight.focused() == "Let it go on"
    sight.assert_accessible()
    sight.page.keyboard.press("Escape")
    sight.page.wait_for_selector("dialog:not([open])", state="attached")
    assert sight.focused() == "Stop the run ..."
    sight.page.keyboard.press("Enter")
    sight.page.wait_for_selector("dialog[open]")
    assert sight.press("Tab") == "Stop it"
    sight.page.keyboard.press("Enter")
    sight.page.wait_for_selector("#notice:not([hidden])")
    assert sight.page.text_content("#notice").startswith("The run is over (interrupted)")
    assert sight.page.is_disabled("#stop")
    sight.assert_accessible()
    sight.assert_no_complaints()
