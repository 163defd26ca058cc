"""Colours of jobs, and of everything else in a picture."""

import math
from functools import cache

INK, MUTED, GRID, PAPER = "#1f2430", "#667085", "#e4e7ec", "#ffffff"
BANDS = "#f8fafc", "#eef2f6"
"""Behind the rows of a node, in turns."""
LATE, NOW, WORK, OVERHEAD = "#d92d20", "#1f2430", "#7aa7d9", "#33475b"
FADE = {"past": 1.7, "work": 1.0, "setup": 0.74, "save": 0.74}
"""Shades of a job's colour by kind of bar."""
USE = {"at work": WORK, "start, restore, checkpoint": OVERHEAD}
QUEUE = {
    "no GPU": "#cfd8e3",
    "1 GPU": "#b9d9f0",
    "2-3 GPUs": "#86bbe3",
    "4-7 GPUs": "#4d93cc",
    "8 GPUs or more": "#1f5f9e",
    "waits for other jobs": "#e9c46a",
}


@cache
def job_colour(position: int) -> str:
    """Colour of the job at `position`: hues by the golden angle so that neighbours differ, in OKLCH
    so that all are light enough for dark text (Ottosson, 2020)."""
    lightness = (0.79, 0.72, 0.85)[position % 3]
    return _hex(lightness, 0.105, math.radians((position * 137.508 + 245) % 360))


@cache
def shade(colour: str, factor: float) -> str:
    """Return the colour darkened (factor below 1) or lightened towards white (above 1)."""
    parts = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    if factor <= 1:
        parts = [round(part * factor) for part in parts]
    else:
        parts = [round(255 - (255 - part) * (2 - factor)) for part in parts]
    return "#" + "".join(f"{part:02x}" for part in parts)


def _hex(lightness: float, chroma: float, hue: float) -> str:
    a, b = chroma * math.cos(hue), chroma * math.sin(hue)
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{round(255 * _gamma(min(1.0, max(0.0, part)))):02x}" for part in linear)


def _gamma(part: float) -> float:
    return 12.92 * part if part <= 0.0031308 else 1.055 * part ** (1 / 2.4) - 0.055
