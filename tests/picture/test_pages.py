"""The files: offline, whole, safe against names that look like markup, the same bytes each time."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from optsched import Cluster, Instance, Job, Node
from optsched.errors import InputError
from optsched.picture import can_draw
from tests.browser import CHROMIUM, Browser
from tests.clusters import one_node
from tests.list_schedule import list_schedule, solution_of
from tests.picture.cases import busy_morning, shared_gpus
from tests.simulate.test_report import busy, html, simulated

pytest.importorskip("plotly")
pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def solved():
    instance = busy_morning()
    return instance, solution_of(instance, list_schedule(instance, ("long",), ("short", "late")))


class Tags(HTMLParser):
    """Tags and their attributes, outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.seen = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))


def test_page_needs_no_network_and_says_what_matters(solved, tmp_path):
    instance, solution = solved
    path = tmp_path / "plan.html"
    can_draw(path)(instance, solution, path)
    text = path.read_text()
    tags = Tags(text).seen
    assert not [attrs for _, attrs in tags if {"src", "href"} & set(attrs)]
    assert "Plotly.newPlot" in text
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.S)
    for word in (
        "feasible",
        "list",
        solution.instance_hash,
        "nine tenths",
        "10 %",
        "deadline",
        "busy &lt;morning&gt;",
    ):
        assert word in outside
    assert "busy <morning>" not in outside
    rows = re.findall(r"<tr><td>.*?</i>(.*?)</td>", outside)
    assert sorted(rows) == sorted(job.id for job in instance.jobs)


def test_page_is_the_same_each_time(solved, tmp_path):
    for name in ("one.html", "two.html"):
        can_draw(tmp_path / name)(*solved, tmp_path / name)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_names_that_look_like_markup_stay_text(tmp_path):
    bad = "</script><script>alert(1)</script><b>"
    instance = Instance(
        name=bad,
        cluster=one_node("<n>", gpus=1),
        jobs=(Job(id=bad, duration_s=10), Job(id="$x_1$ %{y}", duration_s=10)),
    )
    for kind in ("html", "svg"):
        path = tmp_path / f"plan.{kind}"
        can_draw(path)(instance, solution_of(instance), path)
    assert "<script>alert" not in (tmp_path / "plan.html").read_text()
    ElementTree.parse(tmp_path / "plan.svg")


@pytest.mark.parametrize(
    ("name", "start"), [("p.svg", b"<?xml"), ("p.png", b"\x89PNG"), ("p.pdf", b"%PDF")]
)
def test_figure_is_the_same_each_time(solved, tmp_path, name, start):
    can_draw(tmp_path / name)(*solved, tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(start)
    can_draw(tmp_path / name)(*solved, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first


@pytest.mark.parametrize("kind", ["html", "svg"])
@pytest.mark.parametrize(
    "instance",
    [
        shared_gpus(),
        Instance(name="empty"),
        Instance(
            name="no gpus",
            jobs=(
                Job(id="a", gpus=0, duration_s=3),
                Job(id="b", gpus=0, duration_s=4, after=("a",)),
            ),
        ),
        Instance(
            name="many gpus",
            cluster=Cluster(nodes=tuple(Node(name=f"n{i:03}", gpus=8) for i in range(300))),
            jobs=tuple(Job(id=f"j{i}", gpus=8, duration_s=60 + i) for i in range(30)),
        ),
    ],
    ids=lambda instance: instance.name,
)
def test_every_kind_of_instance_can_be_drawn(tmp_path, kind, instance):
    path = tmp_path / f"plan.{kind}"
    can_draw(path)(instance, solution_of(instance), path)
    assert instance.name in path.read_text() or kind == "svg"


def test_traces_do_not_grow_with_the_jobs():
    from optsched.picture.chart import chart
    from optsched.picture.gantt import figure

    sizes = []
    for count in (5, 60):
        instance = Instance(
            cluster=one_node("a", gpus=8),
            jobs=tuple(Job(id=f"j{i}", duration_s=60 + i) for i in range(count)),
        )
        plan = list_schedule(instance)
        sizes.append(len(figure(instance, plan, chart(instance, plan)).data))
    assert sizes[1] <= sizes[0] + 2


def test_two_objectives_in_order_are_both_shown(solved, tmp_path):
    instance, solution = solved
    both = solution_of(instance, solution.plan, objective="deadline,wct")
    path = tmp_path / "plan.html"
    can_draw(path)(
        instance, replace(both, fallback="cpsat was <not> there", notes=("a note",)), path
    )
    text = path.read_text()
    for word in ("objective deadline", "objective wct", "cpsat was &lt;not&gt; there", "a note"):
        assert word in text


def test_unknown_kind_of_picture(tmp_path):
    with pytest.raises(InputError, match=r"ends in \.html"):
        can_draw(tmp_path / "plan.gif")


def test_full_disk_leaves_one_sentence(solved):
    from optsched.picture.figure import write_svg

    with pytest.raises(InputError, match="cannot be written"):
        write_svg(*solved, "/proc/plan.svg")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here to show pages in")
def test_no_page_is_wider_than_a_phone(solved, tmp_path):
    """Wide tables and figures scroll within their part of the page."""
    plan, run = tmp_path / "plan.html", tmp_path / "run.html"
    can_draw(plan)(*solved, plan)
    run.write_text(html(simulated(busy())))
    browser = Browser(tmp_path / "profile", width=390, height=800)
    try:
        for path in (plan, run):
            browser.open(path.as_uri())
            browser.until("document.querySelector('.plotly-graph-div .main-svg') !== null")
            assert browser.run("document.documentElement.scrollWidth") == 390, path.name
        assert not browser.errors
    finally:
        browser.close()
