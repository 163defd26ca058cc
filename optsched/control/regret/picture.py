"""A picture of a regret: for each hour what the time of its jobs was spent on, and the bound."""

from datetime import datetime

from ...duration import human
from .regret import Regret, Slice

COLOURS = {
    "alone": "#4c78a8",
    "slower": "#9ecae9",
    "waiting": "#f58518",
    "switching": "#e45756",
    "failures": "#b279a2",
    "held": "#bab0ac",
    "after": "#d8d0c8",
}
WORDS = {
    "alone": "work at its fastest",
    "slower": "slower than that",
    "waiting": "waiting for GPUs",
    "switching": "starting, saving, restoring",
    "failures": "failures",
    "held": "on hold",
    "after": "predecessors",
}
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 900, 360, 80, 50, 60


def svg(regret: Regret) -> str:
    """Return the picture as SVG text: a bar for each hour in which jobs were released, a line where
    the bound of its jobs is."""
    slices = regret.slices
    most_s = max(max(hour.mean_s, hour.bound_s) for hour in slices) or 1.0
    tall = HEIGHT - BOTTOM - TOP
    step = (WIDTH - LEFT - 20) / len(slices)
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 '
        f'{WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{LEFT}" y="18" font-size="14">Mean completion time by hour of release: '
        f"{human(regret.mean_s)}, bound "
        f"{human(regret.bound_s)} over all {regret.jobs} jobs</text>",
    ]
    drawn += _key()
    for k in range(5):
        y = HEIGHT - BOTTOM - tall * k / 4
        drawn.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - 20}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        drawn.append(
            f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{human(most_s * k / 4)}</text>'
        )
    every = max(1, round(60 / step))
    for i, hour in enumerate(slices):
        drawn += _bar(hour, LEFT + i * step + step * 0.1, step * 0.8, tall / most_s)
        if i % every == 0:
            x = LEFT + i * step + step / 2
            text = datetime.fromtimestamp(hour.from_s).strftime("%m-%d %H:%M")
            drawn.append(
                f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{text}</text>'
            )
    drawn.append(
        f'<text x="{LEFT}" y="{HEIGHT - 10}" font-size="11">The bound of an hour is that of its '
        "jobs alone on "
        "the cluster; that of all jobs together says more.</text>"
    )
    return "\n".join([*drawn, "</svg>", ""])


def _key() -> list[str]:
    drawn = []
    x = float(LEFT)
    for name, words in WORDS.items():
        drawn.append(f'<rect x="{x:.0f}" y="30" width="10" height="10" fill="{COLOURS[name]}"/>')
        drawn.append(f'<text x="{x + 14:.0f}" y="39" font-size="11">{words}</text>')
        x += 24 + 5.4 * len(words)
    drawn.append(
        f'<line x1="{x:.0f}" y1="35" x2="{x + 12:.0f}" y2="35" stroke="black" stroke-width="2"/>'
    )
    drawn.append(f'<text x="{x + 16:.0f}" y="39" font-size="11">bound</text>')
    return drawn


def _bar(hour: Slice, x: float, wide: float, scale: float) -> list[str]:
    drawn, y = [], float(HEIGHT - BOTTOM)
    for name, seconds in hour.parts_s.items():
        tall = max(0.0, seconds) * scale
        y -= tall
        if tall > 0:
            drawn.append(
                f'<rect x="{x:.1f}" y="{y:.2f}" width="{wide:.1f}" height="{tall:.2f}" '
                f'fill="{COLOURS[name]}">'
                f"<title>{WORDS[name]}: {human(seconds)} of {human(hour.mean_s)} ({hour.jobs} "
                "jobs)</title></rect>"
            )
    y = HEIGHT - BOTTOM - hour.bound_s * scale
    drawn.append(
        f'<line x1="{x:.1f}" y1="{y:.2f}" x2="{x + wide:.1f}" y2="{y:.2f}" stroke="black" '
        'stroke-width="2"/>'
    )
    return drawn
