"""The dashboard in a headless browser."""

import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from optsched.control.settings import TenantSettings
from tests.browser import CHROMIUM, Browser

from .live import Live

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to show the page in")
HOSTILE = [
    "<img src=x onerror=window.struck=1>",
    "'\"><svg/onload=window.struck=1>",
    "\u202e\u0627\u0644\u0633\u0644\u0627\u0645 abc\u202e",
    "</script><script>window.struck=1</script>",
    "x" * 10_000,
]
TENANTS = [name[:200] for name in HOSTILE]


@pytest.fixture(scope="module")
def busy() -> Iterator[Live]:
    """A controller with 8 GPUs, 3 jobs that run on 7 of them and 60 that wait."""
    with tempfile.TemporaryDirectory(prefix="api") as name:
        Path(name).chmod(0o711)
        tenants = tuple(TenantSettings(name=own) for own in TENANTS)
        live = Live(Path(name), api={"port": 0}, tenants=tenants)
        for i, gpus in enumerate((4, 2, 1)):
            live.submit(5000.0, name=f"runs-{i}", gpus=gpus, tenant=TENANTS[i])
            live.wait(f"runs-{i}", "running")
        for i in range(60):
            tenant = TENANTS[i % len(TENANTS)]
            live.submit(5000.0, name=f"waits-{i:02}", gpus=4, hold=i % 2 == 1, tenant=tenant)
        yield live
        live.close()
        assert live.failed is None


@pytest.fixture(scope="module")
def browser(busy: Live) -> Iterator[Browser]:
    # The processes that it started may still write for a moment after they have been killed.
    with tempfile.TemporaryDirectory(prefix="browser", ignore_cleanup_errors=True) as name:
        browser = Browser(Path(name))
        opened(browser, busy, "token")
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, busy: Live) -> Browser:
    """The page as it is opened first."""
    browser.run("sessionStorage.clear()")
    browser.resize(1400, 1000)
    opened(browser, busy, "token")
    return browser


def opened(browser: Browser, live: Live, token: str) -> None:
    browser.open("about:blank")
    browser.until("location.href === 'about:blank'")
    browser.errors.clear()
    browser.open(f"{live.server.url}/#{(live.settings.state / token).read_text().strip()}")
    browser.until("document.body?.dataset.ready === 'yes'")


def rows(page: Browser) -> list[str]:
    return list(
        page.run("[...document.querySelectorAll('#jobs tbody tr')].map(r => r.dataset.job)")
    )


def filled(page: Browser, box: str, text: str) -> None:
    page.run(
        f"at('{box}').value = {json.dumps(text)},"
        f" at('{box}').dispatchEvent(new Event('input', {{bubbles: true}}))"
    )


def test_the_table_searches_sorts_and_pages(page: Browser, busy: Live) -> None:
    assert len(rows(page)) == 50 and rows(page)[:3] == ["runs-0", "runs-1", "runs-2"]
    assert page.run("document.title") == "cluster: 7 of 8 GPUs"
    assert page.run("document.querySelectorAll('.gpu').length") == 8
    assert page.run("document.querySelectorAll('.gpu[data-job=runs-0]').length") == 4
    page.run("at('next').click()")
    page.until("document.querySelectorAll('#jobs tbody tr').length === 13")
    assert page.run("at('next').disabled") and rows(page)[-1] == "waits-59"
    page.run("at('back').click()")
    page.until("document.querySelectorAll('#jobs tbody tr').length === 50")
    page.run("document.querySelector('th[data-sort=name] button').click()")
    page.until("document.querySelector('th[data-sort=name]').ariaSort === 'ascending'")
    page.run("document.querySelector('th[data-sort=name] button').click()")
    page.until("document.querySelector('#jobs tbody tr').dataset.job === 'waits-59'")
    page.run("document.querySelector('th[data-sort=gpus] button').click()")
    page.until("document.querySelector('#jobs tbody tr').dataset.job === 'runs-2'")
    filled(page, "search", "waits-1")
    page.until("document.querySelectorAll('#jobs tbody tr').length === 10")
    filled(page, "status", "held")
    page.until("document.querySelectorAll('#jobs tbody tr').length === 5")
    filled(page, "tenant", TENANTS[1])
    page.until("document.querySelectorAll('#jobs tbody tr').length === 1")
    assert rows(page) == ["waits-11"]
    page.open(busy.server.url + "/")  # what was chosen and the token outlive a reload
    page.until("document.querySelectorAll('#jobs tbody tr').length === 1")
    assert page.run("location.hash") == "" and page.errors == []


def test_a_job_is_explained_and_changed_by_keys_alone(page: Browser, busy: Live) -> None:
    busy.submit(5000.0, name="doomed", hold=True)
    page.press("/", 191, "/")
    assert page.run("document.activeElement.id") == "search"
    page.ask("Input.insertText", text="doomed")
    page.until("document.querySelectorAll('#jobs tbody tr').length === 1")
    page.run("document.querySelector('#jobs tbody tr').focus()")
    page.press("Enter", 13)
    page.until("at('panel').innerText.includes('doomed is on hold')")
    press = "document.querySelector('#panel [data-change={}]').click()"
    page.run(press.format("release"))
    busy.wait("doomed", "running")
    page.until("document.querySelector('#panel [data-change=hold]') !== null")
    page.run(press.format("cancel"))
    assert busy.ask("GET", "/v1/jobs/doomed")[1]["job"]["status"] == "running"  # not yet
    page.run(press.format("cancel"))
    busy.wait("doomed", "cancelled")
    page.until("at('panel').innerText.includes('cancelled')")
    page.press("Escape", 27)
    assert page.run("at('panel').hidden") and page.errors == []


def test_the_timeline_moves_and_zooms(page: Browser) -> None:
    page.run("frame.scrollIntoView({behavior: 'instant'}), frame.focus({preventScroll: true})")
    page.until("Number(canvas.dataset.bars) >= 7")
    assert page.run("view.end_s") is None
    length_s = page.run("view.length_s")
    page.press("+", 187, "+")
    assert page.run("view.length_s") == length_s / 2 and page.run("view.end_s") is None
    page.press("ArrowLeft", 37)
    assert page.run("now_s - view.end_s") == pytest.approx(length_s / 8, rel=0.5)
    page.press("End", 35)
    assert page.run("view.end_s") is None
    box = page.run("(b => [b.x + b.width / 2, b.y + 60])(canvas.getBoundingClientRect())")
    where = {"x": box[0], "y": box[1]}
    page.ask(
        "Input.dispatchMouseEvent", type="mouseWheel", deltaX=0, deltaY=-100, modifiers=2, **where
    )
    page.until(f"view.length_s < {length_s / 2}")
    button = {"button": "left", "clickCount": 1}
    page.ask("Input.dispatchMouseEvent", type="mousePressed", **where, **button)
    page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + 200, y=box[1], **button)
    page.ask("Input.dispatchMouseEvent", type="mouseReleased", x=box[0] + 200, y=box[1], **button)
    page.until("view.end_s !== null")
    page.run("look(30 * 86400, null)")
    page.until("reach_s === 168 * 3600")  # as far as the controller tells
    assert page.errors == []


def test_names_never_become_html(page: Browser) -> None:
    """Of jobs, users, tenants, nodes, reasons and capacities, whatever they are called."""
    page.run(f"globalThis.hostile = {json.dumps(HOSTILE)}")
    page.run("clearTimeout(timer), turn = () => {}")
    page.run(
        "showJobs({jobs: hostile.map(text => ({...listed.jobs[0], id: text, user: text,"
        " tenant: text, reason: text, command: text, status: 'running'})), total: 5, next: null})"
    )
    page.run(
        "shownNodes = hostile.map(text => ({...shownNodes[0], name: text, gpu_type: text,"
        " reason: text, usable: false,"
        " holders: [{job: text, gpus: 1, cpus: 0, gpu_ids: [text]}]})), showNodes(new Set())"
    )
    page.run("showPrices(hostile.map(name => ({name, used: 1, capacity: 2, price: 3})))")
    page.run(
        "stays.clear(), hostile.forEach(text => stays.set(text, {job: text, attempt: 1,"
        " started_s: now_s - 900, work_from_s: now_s - 890, asked_s: null, ended_s: null,"
        " why: null, placement: [{node: text, gpus: 1, gpu_ids: [text]}]})),"
        " layOut(shownNodes), draw()"
    )
    page.run(
        "opened = hostile[0], at('panel').replaceChildren(el('button')),"
        " showPanel({...listed.jobs[0], after: hostile}, hostile, hostile[0])"
    )
    page.run(
        "used = {...used, shares: hostile.map(name => ({name, gpus: [1, 2], waiting: [3, 4]}))},"
        " showUse()"
    )
    page.run(
        "globalThis.asking = ask, ask = async () => ({half_life_s: 9, rows: hostile.map(tenant =>"
        " ({tenant, level: 1, entitled: 0.2, used_gpu_s: 5}))}), refreshShares()"
    )
    assert page.run("document.querySelectorAll('#shares td').length") == 20
    page.run("shownState = {...shownState, cluster: hostile[0]}, showFacts(shownState)")
    page.run(
        "windows = hostile.map((name, i) => ({name, nodes: i ? [name] : [], users: [name],"
        " from_s: now_s + 3600 * (i - 1), to_s: i ? now_s + 9000 * i : null, tenants: [name],"
        " resources: {[name]: 5}, quotas: {[name]: 2}, jobs_there: 1, jobs: [name]})),"
        " showWindows(), draw()"
    )
    said = page.run("document.querySelector('.window p').innerText")
    assert "at most 2 GPUs" in said and "nobody" not in said and "only for" not in said
    assert page.run("document.querySelectorAll('.window').length") == 5
    assert page.run("[0, 0.0224, 0.9996, 9.94, 59].map(human)") == [
        *("0 s", "22 ms", "1.0 s", "9.9 s", "59 s")
    ]
    assert page.run("canvas.dataset.bars") == "5"
    assert page.run("globalThis.struck") is None
    assert page.run("document.querySelectorAll('img, #jobs script, main script').length") == 0
    shown = page.run("document.querySelector('#jobs tbody').innerText")
    assert HOSTILE[0] in shown and HOSTILE[2] in shown
    assert page.run("document.documentElement.scrollWidth <= innerWidth")
    page.resize(390, 844)
    assert page.run("document.documentElement.scrollWidth <= 390")
    assert page.run("document.querySelector('#jobs tbody').innerText.length") < 20_000
    assert page.errors == []


def test_jobs_that_run_at_once_share_no_mark_and_keep_theirs(page: Browser) -> None:
    page.run("clearTimeout(timer), turn = () => {}")
    page.run("globalThis.names = [...Array(48).keys()].map(i => `train-${i}`)")
    looks = "names.map(job => Object.values(mark(job)).join())"
    page.run("marks.clear(), markJobs(names.slice(0, 9), [])")
    first = page.run(looks)[:9]
    assert [int(look[0]) for look in first] == page.run("names.map(job => hashed(job) % 8)")[:9]
    page.run("markJobs(names, [])")
    assert len(set(page.run(looks))) == 48 and page.run(looks)[:9] == first
    page.run("markJobs(names.slice(40), names.slice(0, 2))")
    assert page.run("marks.size") == 10  # those that are gone are forgotten


def test_a_fault_of_the_page_is_not_laid_to_the_controller(page: Browser) -> None:
    page.run("clearTimeout(timer), turn = () => {}, failing(new TypeError('x is undefined'))")
    assert page.run("at('fault').innerText").startswith("This page has a fault: x is undefined")


def test_it_fits_a_phone_and_both_themes(page: Browser) -> None:
    page.resize(390, 844)
    for theme in ("light", "dark"):
        media = [{"name": "prefers-color-scheme", "value": theme}]
        page.ask("Emulation.setEmulatedMedia", features=media)
        page.until(f"document.documentElement.dataset.theme === '{theme}'")
        assert page.run("document.documentElement.scrollWidth") <= 390
    widths = "[...document.querySelectorAll('section, .fact, #jobs tr, #timeline canvas')]"
    assert page.run(f"Math.max(...{widths}.map(e => e.getBoundingClientRect().right))") <= 390


def test_the_view_token_offers_no_actions(page: Browser, busy: Live) -> None:
    opened(page, busy, "view-token")
    assert not page.run("at('views-only').hidden")
    page.run("openPanel('runs-0')")
    page.until("at('panel').innerText.includes('runs-0 has been running for')")
    assert page.run("document.querySelectorAll('#panel [data-change], #panel pre').length") == 0
    assert page.errors == []


def test_a_wrong_token_is_asked_for_again(page: Browser, busy: Live) -> None:
    page.run("token = 'wrong', void turn()")
    page.until("at('ask').open")
    page.run(f"at('token').value = {json.dumps((busy.settings.state / 'token').read_text())}")
    page.run("document.querySelector('#ask button').click()")
    page.until("!at('ask').open && failures === 0")


def test_it_says_that_the_controller_does_not_answer_and_recovers(page: Browser) -> None:
    page.run(
        "globalThis.real = fetch, globalThis.fetch = () => Promise.reject(new TypeError('no')),"
        " void turn()"
    )
    page.until("!at('fault').hidden")
    fault = page.run("at('fault').innerText")
    assert re.match(r"The controller does not answer\. What is shown is \d+(\.\d)? \w+", fault)
    assert page.run("document.body.classList.contains('stale')") and len(rows(page)) == 50
    page.run("globalThis.fetch = globalThis.real, failures = 1, void turn()")
    page.until("at('fault').hidden")
    assert not page.run("document.body.classList.contains('stale')") and page.errors == []


def test_refreshing_for_hours_grows_nothing(page: Browser) -> None:
    """What the page keeps (elements, attempts, marks) is the same after 12 more refreshes."""
    kept = "[document.querySelectorAll('*').length, stays.size, marks.size, fills.size]"
    again = (
        "(async () => { for (let i = 0; i < {}; i++)"
        " { fresh.all_s = fresh.use_s = 0; await refresh(); draw(); } })()"
    )
    page.run(again.replace("{}", "3"))
    before = page.run(kept)
    page.ask("HeapProfiler.collectGarbage")
    nodes = page.metrics()["Nodes"]
    page.run(again.replace("{}", "12"))
    page.ask("HeapProfiler.collectGarbage")
    assert page.run(kept) == before
    assert page.metrics()["Nodes"] <= nodes * 1.1
