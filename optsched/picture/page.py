"""The HTML around the interactive picture: what was solved and how well above it, the jobs below
it."""

from html import escape

from ..duration import human
from ..model.instance import Instance
from ..model.plan import Solution
from ..objectives import SumOfJobs, parse
from .chart import Chart
from .facts import job_facts, level_unit, percent, quantity, totals
from .palette import GRID, INK, LATE, MUTED, job_colour, shade

MOST_ROWS = 1000
STATUS_COLOUR = {"optimal": ("#067647", "#d1fadf"), "feasible": ("#93570b", "#fef0c7")}
STATUS_MEANING = {
    "optimal": "no plan of this instance is better",
    "feasible": "a checked plan, not proven best",
}


def page(instance: Instance, solution: Solution, drawn: Chart, figure: str) -> str:
    """Return the whole document around `figure`, a div with all it needs inside."""
    title = f"{escape(instance.name)}: plan by {escape(solution.solver)}"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{STYLE}</style></head><body>
<header><h1>{escape(instance.name)} {_status(solution)}</h1><p>{_subtitle(instance, solution)}</p></header>
<section class="tiles">{"".join(_tiles(instance, solution, drawn))}</section>
{_remarks(solution)}
<section class="picture"><div class="key">{_key(drawn)}</div>
{figure}</section>
{_table(instance, solution)}
</body></html>
"""  # noqa: E501


def _status(solution: Solution) -> str:
    ink, paper = STATUS_COLOUR.get(solution.status, (INK, GRID))
    meaning = STATUS_MEANING.get(solution.status, "")
    style = f"color:{ink};background:{paper}"
    return f'<span class="pill" style="{style}" title="{meaning}">{solution.status}</span>'


def _subtitle(instance: Instance, solution: Solution) -> str:
    cluster = instance.cluster
    types: dict[str, int] = {}
    for node in cluster.nodes:
        if node.gpus:
            types[node.gpu_type or "GPU"] = types.get(node.gpu_type or "GPU", 0) + node.gpus
    gpus = " + ".join(f"{count} {escape(name)}" for name, count in types.items()) or "no GPUs"
    wall = "" if solution.wall_s is None else f" in {human(solution.wall_s)}"
    nodes = f"{len(cluster.nodes):,} node{'s' if len(cluster.nodes) != 1 else ''}"
    return (
        f"{len(instance.jobs):,} jobs ({len(instance.running):,} running now) on {nodes}, {gpus} "
        f"&middot; planned by <b>{escape(solution.solver)}</b>{wall} &middot; seed {solution.seed} "
        f"&middot; instance {escape(solution.instance_hash)}"
    )


def _tiles(instance: Instance, solution: Solution, drawn: Chart) -> list[str]:
    assert solution.plan is not None
    found = []
    for level, terms in zip(solution.levels, parse(solution.objective).levels, strict=True):
        unit = level_unit(level.name)
        meaning = "; ".join(term.title for _, term in terms)
        length = meaning.split(":")[0]
        if unit == "s" and level.value is not None:
            length = human(level.value) + (
                " in total" if any(isinstance(term, SumOfJobs) for _, term in terms) else ""
            )
        found.append(_tile(f"objective {level.name}", quantity(level.value, unit), length, meaning))
        found.append(
            _tile(
                "proven bound",
                quantity(level.bound, unit),
                f"by {solution.bound_source}" if solution.bound_source else "",
                "no plan can be below this",
            )
        )
        found.append(_tile("gap", percent(level.gap), "", "(value - bound) / |value|"))
    sums = totals(instance, solution.plan, drawn)
    found.append(
        _tile(
            "mean job completion time",
            human(sums.mean_jct_s),
            f"last job done {human(sums.last_s)} from now",
        )
    )
    if sums.gpu_use is not None:
        found.append(
            _tile(
                "GPU use",
                percent(sums.gpu_use),
                f"overheads {human(sums.overhead_gpu_s)} of GPU time",
                "GPU-seconds held over capacity until the last completion",
            )
        )
    late = f"{sums.late} deadline{'s' if sums.late != 1 else ''} missed"
    found.append(
        _tile(
            "preemptions",
            str(sums.preemptions),
            late if any(job.deadline_s is not None for job in instance.jobs) else "",
        )
    )
    return found


def _tile(name: str, value: str, small: str, title: str = "") -> str:
    return (
        '<div class="tile" '
        f'title="{escape(title)}"><span>{escape(name)}</span><b>{escape(value)}</b>'
        f"<small>{escape(small)}</small></div>"
    )


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
    place = {job.id: i for i, job in enumerate(instance.jobs)}
    facts = sorted(
        (job_facts(instance, entry) for entry in solution.plan.jobs),
        key=lambda one: (one.start_s, place[one.id]),
    )
    rows = []
    for one in facts[:MOST_ROWS]:
        late = f" <em>late {human(one.late_s)}</em>" if one.late_s else ""
        where = ", ".join(one.nodes) or "&ndash;" if not one.nodes else escape(", ".join(one.nodes))
        rows.append(
            f'<tr><td><i style="background:{job_colour(place[one.id])}"></i>{escape(one.id)}</td>'
            f'<td>{one.decision}</td><td class="n">{human(one.start_s)}</td>'
            f'<td class="n">{human(one.end_s)}{late}</td>'
            f'<td class="n">{one.gpus or "&ndash;"}</td><td>{where}</td>'
            f'<td class="n">{human(one.waiting_s)}</td>'
            f'<td class="n">{human(one.jct_s)}</td><td class="n">{one.preempted or ""}</td></tr>'
        )
    more = f"<p>and {len(facts) - MOST_ROWS:,} more</p>" if len(facts) > MOST_ROWS else ""
    is_open = " open" if len(facts) <= 40 else ""
    heads = (
        "job",
        "now",
        "starts",
        "ends",
        "GPUs",
        "nodes",
        "waiting",
        "completion time",
        "preempted",
    )
    numeric = {"starts", "ends", "GPUs", "waiting", "completion time", "preempted"}
    head = "".join(f"<th{' class=n' if name in numeric else ''}>{name}</th>" for name in heads)
    return (
        f"<details{is_open}><summary>Jobs by start (times from now)</summary>"
        f"<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table>{more}</details>"
    )


STYLE = f"""
*{{box-sizing:border-box}}
body{{margin:0 auto;max-width:1800px;padding:22px 28px 40px;background:#f4f6f9;color:{INK};
font:14px/1.45 Inter,'Segoe UI','Helvetica Neue','DejaVu Sans',Arial,sans-serif}}
h1{{font-size:23px;margin:0 0 2px;font-weight:650}} header p{{margin:0 0 16px;color:{MUTED}}}
.pill{{font-size:13px;font-weight:600;border-radius:99px;padding:3px 11px;vertical-align:3px;margin-left:6px}}
.tiles{{display:flex;flex-wrap:wrap;gap:12px;margin-bottom:14px}}
.tile{{background:#fff;border:1px solid {GRID};border-radius:10px;padding:10px 16px;flex:1 1 150px}}
.tile span,.tile small{{display:block;color:{MUTED};font-size:12px;min-height:17px}}
.tile b{{font-size:20px;font-weight:620;font-variant-numeric:tabular-nums;white-space:nowrap}}
.remark{{background:#fff8e6;border:1px solid #f5deb0;border-radius:10px;padding:8px 14px;margin:0 0 12px}}
.picture,details{{background:#fff;border:1px solid {GRID};border-radius:10px;padding:14px 12px 6px;
margin-bottom:16px}}
.key{{display:flex;flex-wrap:wrap;gap:4px 20px;color:{MUTED};font-size:12px;padding:0 10px}}
.key span:last-child{{margin-left:auto;font-style:italic}}
.key i{{display:inline-block;width:22px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}}
details{{padding:12px 18px}} summary{{cursor:pointer;font-weight:600}}
table{{border-collapse:collapse;width:100%;margin-top:10px}}
th{{text-align:left;color:{MUTED};font-weight:500}}
td,th{{padding:4px 10px;border-bottom:1px solid {GRID}}}
.n{{text-align:right;font-variant-numeric:tabular-nums}}
td i{{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:8px}}
em{{color:{LATE};font-style:normal}}
"""  # noqa: E501
