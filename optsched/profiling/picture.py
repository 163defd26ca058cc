"""Small pictures of rate against cores."""

from html import escape

from ..picture.palette import GRID, INK, MUTED, PAPER, WORK
from .cores import CoreSweep

BAR = 40
"""Characters of the longest bar."""


def bars(sweep: CoreSweep) -> list[str]:
    """A bar for each count, as long as its rate; the smallest count on the plateau is marked."""
    wide = len(str(sweep.counts[-1].cpus_per_gpu))
    lines = []
    for one in sweep.counts:
        mark = "  <- smallest on the plateau" if one.cpus_per_gpu == sweep.smallest else ""
        filled = "█" * max(1, round(BAR * one.rate))
        lines.append(f"{one.cpus_per_gpu:>{wide}} {filled:<{BAR}} {one.rate:.2f}{mark}")
    return lines


def svg(sweep: CoreSweep, title: str, unit: str) -> str:
    """An SVG of rate against cores: medians joined by a line, whiskers from the least to the most
    repeat, and the line that counts on the plateau reach. `unit` says what the cores are for, as
    "cores for each GPU"."""
    width, height, left, right, top, bottom = 560, 320, 64, 24, 44, 52
    most = max(one.most_rate for one in sweep.counts) * 1.08
    step = (width - left - right) / len(sweep.counts)

    def x(i: int) -> float:
        return left + step * (i + 0.5)

    def y(value: float) -> float:
        return height - bottom - (height - top - bottom) * value / most

    unsure = "" if sweep.sure else "; repeats disagree"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 '
        f'{width} {height}" '
        'role="img" font-family="system-ui, sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="{PAPER}"/>',
        f'<text x="{left}" y="22" fill="{INK}" font-size="14" '
        f'font-weight="600">{escape(shortened(title))}</text>',
    ]
    for tick in ticks(most):
        parts.append(
            f'<line x1="{left}" x2="{width - right}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" '
            f'stroke="{GRID}"/>'
            f'<text x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end" '
            f'fill="{MUTED}">{tick:g}</text>'
        )
    line = y(1 - sweep.within)
    parts.append(
        f'<line x1="{left}" x2="{width - right}" y1="{line:.1f}" y2="{line:.1f}" stroke="{MUTED}" '
        f'stroke-dasharray="4 4"/>'
    )
    points = " ".join(f"{x(i):.1f},{y(one.rate):.1f}" for i, one in enumerate(sweep.counts))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{WORK}" stroke-width="2"/>')
    for i, one in enumerate(sweep.counts):
        chosen = one.cpus_per_gpu == sweep.smallest
        parts.append(
            f'<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="{y(one.least_rate):.1f}" '
            f'y2="{y(one.most_rate):.1f}" '
            f'stroke="{INK}"/>'
            f'<circle cx="{x(i):.1f}" cy="{y(one.rate):.1f}" r="{6 if chosen else 4}" '
            f'fill="{INK if chosen else WORK}"/>'
            f'<text x="{x(i):.1f}" y="{height - bottom + 18}" text-anchor="middle" fill="{INK}" '
            f'font-weight="{700 if chosen else 400}">{one.cpus_per_gpu}</text>'
        )
    parts.append(
        f'<text x="{(left + width - right) / 2:.0f}" y="{height - 10}" text-anchor="middle" '
        f'fill="{MUTED}">'
        f"{escape(unit)}; {sweep.smallest} is the smallest on the plateau{unsure}</text>"
        f'<text transform="translate(16 {(top + height - bottom) / 2:.0f}) rotate(-90)" '
        'text-anchor="middle" '
        f'fill="{MUTED}">rate, 1 on the plateau</text></svg>'
    )
    return "\n".join(parts) + "\n"


def ticks(most: float) -> list[float]:
    """Four to nine round numbers from 0 to `most`."""
    unit = 10.0
    while unit * 4 > most:
        unit /= 10
    while unit * 40 <= most:
        unit *= 10
    spacing = next(unit * times for times in (1, 2, 5, 10) if most / (unit * times) < 9)
    return [round(i * spacing, 12) for i in range(int(most / spacing) + 1)]


def shortened(text: str, most: int = 64) -> str:
    """A text that fits a line."""
    return text if len(text) <= most else text[: most - 3] + "..."
