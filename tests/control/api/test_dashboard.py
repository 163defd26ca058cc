"""The dashboard without a browser: what is sent, what its token opens, and what it adds up."""

import base64
import hashlib
import os
import pwd
import re
from itertools import combinations
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optsched.control.api import dashboard
from optsched.control.api.routes import ROUTES
from optsched.control.api.usage import _means

from .live import Live, work

FOLDER = Path(dashboard.__file__).parent
SCRIPT = "".join((FOLDER / f"{name}.js").read_text() for name in dashboard.SCRIPTS)
STYLE = (FOLDER / "style.css").read_text()


def test_the_page_is_whole_and_runs_nothing_but_its_own_script(live: Live) -> None:
    with urlopen(f"{live.server.url}/", timeout=60) as answer:
        page, policy = answer.read().decode(), answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules.pop("default-src") == rules.pop("frame-ancestors") == "'none'"
    for tag in ("script", "style"):
        (inside,) = re.findall(f"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert rules.pop(f"{tag}-src") == f"'sha256-{digest}'"
    assert "unsafe" not in policy and rules.pop("connect-src") == "'self'"
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)
    html = page.partition("<script>")[0].partition("<style>")[0] + page.partition("</style>")[2]
    assert not re.search(r"<[^>]*\s(on\w+|style)=", html.partition("<script>")[0])
    assert {path.stem for path in FOLDER.glob("*.js")} == set(dashboard.SCRIPTS)


def test_no_text_becomes_html() -> None:
    """Nor is a text run: the browser refuses both anyway (trusted types), which would be seen."""
    makers = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|srcdoc"
    assert not re.findall(makers, SCRIPT)


def _linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def _contrast(one: str, other: str) -> float:
    light, dark = sorted(_linear(c) @ (0.2126, 0.7152, 0.0722) for c in (one, other))[::-1]
    return float((light + 0.05) / (dark + 0.05))


def _oklab(linear: np.ndarray) -> np.ndarray:
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    axes = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return axes @ np.cbrt(cones @ np.clip(linear, 0, 1))


SEEN_AS = {
    "all cones": np.eye(3),
    "no red": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
"""Machado, Oliveira and Fernandes (2009), on linear RGB."""


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_apart_and_texts_read(theme: int) -> None:
    block = re.findall(r":root[^{]*{(.*?)}", STYLE, re.S)[theme]
    colours = dict(re.findall(r"--(\w+): (#\w+)", block))
    for short in [name for name, own in colours.items() if len(own) == 4]:
        colours[short] = "#" + "".join(2 * digit for digit in colours[short][1:])
    hues = [colours[f"c{i}"] for i in range(8)]
    for eyes, seen in SEEN_AS.items():
        for one, other in combinations(hues, 2):
            apart = np.linalg.norm(_oklab(seen @ _linear(one)) - _oklab(seen @ _linear(other)))
            assert apart > 0.11, (eyes, one, other)
    for hue in hues:
        assert _contrast(hue, colours["paper"]) >= 3, hue  # WCAG 1.4.11
    for ink in ("ink", "muted", "bad", "accent"):
        for ground in ("paper", "back"):
            assert _contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)  # WCAG 1.4.3


def test_the_view_token_opens_what_can_be_looked_at_and_nothing_else(live: Live) -> None:
    token = (live.settings.state / "view-token").read_text().strip()
    assert token != (live.settings.state / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    secret = "--key=hunter2"
    live.submit(
        1000.0,
        name="looked-at",
        environment={"TOKEN": secret},
        argv=["work", "1000", "0", "0", secret],
    )
    opened = set()
    for route in ROUTES:
        if route.public:
            continue
        path = route.path.replace("{job}", "looked-at")
        if route.media_type == "application/json":
            query = "?all" if path == "/v1/jobs" and route.method == "GET" else ""
            status, answer = live.ask(route.method, path + query, None, headers, port=True)
            assert secret not in str(answer), route.name
            assert status == (200 if route.opened_by else 403), (route.name, answer)
            opened |= {route.name} if status == 200 else set()
    assert opened >= {"jobs", "explain", "nodes", "rounds", "state", "history", "usage"}
    assert not opened & {"job", "output", "openapi"}
    assert all(route.method == "GET" for route in ROUTES if route.opened_by)
    assert live.ask("GET", "/v1/state", headers=headers, port=True)[1]["views_only"] is True
    assert live.ask("GET", "/v1/state")[1]["views_only"] is False
    (job,) = live.ask("GET", "/v1/jobs?all&name=looked-at", headers=headers, port=True)[1]["jobs"]
    assert job["status"] in ("waiting", "starting", "running") and job["command"] is None
    assert live.ask("POST", "/v1/jobs", work(), headers, port=True)[0] == 403
    assert live.ask("POST", "/v1/jobs/looked-at/cancel")[0] == 200


def test_use_adds_up_to_what_attempts_held(live: Live) -> None:
    """Over all intervals: the GPU-seconds of the attempts, and the seconds that jobs waited."""
    live.submit(0.4, name="used-1", gpus=4)
    live.submit(0.4, name="used-2", gpus=8, min_nodes=2)
    for name in ("used-1", "used-2"):
        live.wait(name, "completed")
    for job in live.ask("GET", "/v1/jobs?all")[1]["jobs"]:
        live.ask("POST", f"/v1/jobs/{job['id']}/cancel")
        live.wait(job["id"], "cancelled")
    held_s = waited_s = 0.0
    for job in live.loop.ask(lambda controller: list(controller.state.jobs.values())):
        assert job.finished_s is not None
        waited_s += job.finished_s - job.submit_s
        for attempt in job.attempts:
            lasted_s = attempt.end_s - attempt.intended_s
            held_s += lasted_s * sum(slot.gpus for slot in attempt.placement)
            waited_s -= lasted_s
    assert held_s > 0.4 * 12
    for by, name in (("tenant", None), ("user", pwd.getpwuid(os.geteuid()).pw_name)):
        for intervals in (1, 7):
            answer = live.ask("GET", f"/v1/usage?hours=1&intervals={intervals}&by={by}")[1]
            (share,) = answer["shares"]
            assert share["name"] == name and answer["step_s"] == 3600 / intervals
            assert sum(share["gpus"]) * answer["step_s"] == pytest.approx(held_s, abs=0.5)
            assert sum(share["waiting"]) * answer["step_s"] == pytest.approx(waited_s, abs=0.5)


@given(
    stretches=st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 100), st.integers(0, 64)), max_size=8
    ),
    intervals=st.integers(1, 9),
)
def test_means_are_those_of_each_interval(
    stretches: list[tuple[float, float, int]], intervals: int
) -> None:
    from_s = 30.0
    edges = np.arange(intervals + 1) * (60.0 / intervals)
    means = _means(stretches, from_s, edges)
    for i, mean in enumerate(means):
        low, high = from_s + edges[i], from_s + edges[i + 1]
        area = sum(
            amount * max(0.0, min(end, high) - max(begin, low)) for begin, end, amount in stretches
        )
        assert mean == pytest.approx(area / (high - low), abs=1e-3)
