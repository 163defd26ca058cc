"""The HTML around the interactive picture: what was solved and how well above it, the jobs below
it."""

from collections.abc import Iterator
from html import escape

from ..duration import human
from ..model import Instance, Solution
from ..noun import number_of
from ..objectives import SumOfJobs, parse
from .chart import Chart
from .facts import job_facts, level_unit, percent, quantity, totals
from .html import document, folding, gpus_by_type, table, tiles
from .palette import GRID, INK, LATE, job_colour, shade

MOST_ROWS = 1000
STATUS_COLOUR = {"optimal": ("#067647", "#d1fadf"), "feasible": ("#93570b", "#fef0c7")}
STATUS_MEANING = {
    "optimal": "no plan of this instance is better",
    "feasible": "a checked plan, not proven best",
}


def page(instance: Instance, solution: Solution, drawn: Chart, figure: str) -> str:
    """Return the whole document around `figure`, a div with all it needs inside."""
    title = f"{escape(instance.name)} {_status(solution)}"
    header = f"<h1>{title}</h1><p>{_subtitle(instance, solution)}</p>"
    body = f"""{tiles(_tiles(instance, solution, drawn))}
{_remarks(solution)}
<section class="picture"><div class="key">{_key(drawn)}</div>
{figure}</section>
{_table(instance, solution)}"""
    return document(f"{instance.name}: plan by {solution.solver}", header, body)


def _status(solution: Solution) -> str:
    ink, paper = STATUS_COLOUR.get(solution.status, (INK, GRID))
    meaning = STATUS_MEANING.get(solution.status, "")
    style = f"color:{ink};background:{paper}"
    return f'<span class="pill" style="{style}" title="{meaning}">{solution.status}</span>'


def _subtitle(instance: Instance, solution: Solution) -> str:
    cluster = instance.cluster
    wall = "" if solution.wall_s is None else f" in {human(solution.wall_s)}"
    jobs = number_of(len(instance.jobs), "job")
    nodes = number_of(len(cluster.nodes), "node")
    return (
        f"{jobs} ({len(instance.running):,} running now) on {nodes}, "
        f"{gpus_by_type(cluster)} &middot; planned by <b>{escape(solution.solver)}</b>{wall} "
        f"&middot; seed {solution.seed} &middot; instance {escape(solution.instance_hash)}"
    )


def _tiles(
    instance: Instance, solution: Solution, drawn: Chart
) -> Iterator[tuple[str, str, str, str]]:
    assert solution.plan is not None
    for level, terms in zip(solution.levels, parse(solution.objective).levels, strict=True):
        unit = level_unit(level.name)
        meaning = "; ".join(term.title for _, term in terms)
        length = meaning.split(":")[0]
        if unit == "s" and level.value is not None:
            length = human(level.value) + (
                " in total" if any(isinstance(term, SumOfJobs) for _, term in terms) else ""
            )
        yield f"objective {level.name}", quantity(level.value, unit), length, meaning
        source = f"by {solution.bound_source}" if solution.bound_source else ""
        yield "proven bound", quantity(level.bound, unit), source, "no plan can be below this"
        yield "gap", percent(level.gap), "", "(value - bound) / |value|"
    sums = totals(instance, solution.plan, drawn)
    last = f"last job done {human(sums.last_s)} from now"
    yield "mean job completion time", human(sums.mean_jct_s), last, ""
    if sums.gpu_use is not None:
        overheads = f"overheads {human(sums.overhead_gpu_s)} of GPU time"
        meaning = "GPU-seconds held over capacity until the last completion"
        yield "GPU use", percent(sums.gpu_use), overheads, meaning
    late = f"{number_of(sums.late, 'deadline')} missed"
    due = any(job.deadline_s is not None for job in instance.jobs)
    yield "preemptions", str(sums.preemptions), late if due else "", ""


def _remarks(solution: Solution) -> str:
    lines = [f"Fallback: {solution.fallback}"] if solution.fallback else []
    lines += solution.notes
    return "".join(f'<p class="remark">{escape(line)}</p>' for line in lines)


def _key(drawn: Chart) -> str:
    colour = job_colour(0)
    dark = shade(colour, 0.74)
    stripes = f"repeating-linear-gradient(135deg,{dark} 0 3px,#fff 3px 5px)"
    crosses = f"repeating-linear-gradient(45deg,{dark} 0 3px,transparent 3px 5px),{stripes}"
    kinds = {bar.kind for bar in drawn.bars}
    parts = [f'<i style="background:{colour}"></i>at work (one colour a job)']
    if "past" in kinds:
        parts.append(f'<i style="background:{shade(colour, 1.7)}"></i>ran before now')
    if "setup" in kinds:
        parts.append(f'<i style="background:{stripes}"></i>start-up, restore')
    if "save" in kinds:
        parts.append(f'<i style="background:{crosses}"></i>checkpoint before it stops')
    if drawn.pauses:
        parts.append("&#9632; &#8943; &#9654; preempted, back later")
    if drawn.late:
        parts.append(
            f'<i style="background:{colour};outline:2px solid {LATE}"></i>misses its deadline'
        )
    parts.append("drag to zoom, double-click to return, point at a bar for its job")
    return "".join(f"<span>{part}</span>" for part in parts)


def _table(instance: Instance, solution: Solution) -> str:
    assert solution.plan is not None
    place = instance.position
    facts = sorted(
        (job_facts(instance, entry) for entry in solution.plan.jobs),
        key=lambda job: (job.start_s, place[job.id]),
    )
    lines = []
    for job in facts[:MOST_ROWS]:
        late = f" <em>late {human(job.late_s)}</em>" if job.late_s else ""
        lines.append(
            (
                f'<i style="background:{job_colour(place[job.id])}"></i>{escape(job.id)}',
                job.decision,
                human(job.start_s),
                human(job.end_s) + late,
                str(job.gpus or "&ndash;"),
                escape(", ".join(job.nodes)) or "&ndash;",
                human(job.waiting_s),
                human(job.jct_s),
                str(job.preempted or ""),
            )
        )
    more = f"<p>and {len(facts) - MOST_ROWS:,} more</p>" if len(facts) > MOST_ROWS else ""
    jobs = table(HEADS, lines, (2, 3, 4, 6, 7, 8))
    is_open = " open" if len(facts) <= 40 else ""
    return folding("Jobs by start (times from now)", jobs + more, is_open)


HEADS = ("job", "now", "starts", "ends", "GPUs", "nodes", "waiting", "completion time", "preempted")
