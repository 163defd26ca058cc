"""The dashboard: one page without any other file, joined of those in this folder."""

import base64
import hashlib
from functools import cache
from pathlib import Path

from starlette.responses import Response

SCRIPTS = ("base", "colours", "jobs", "panel", "timeline", "charts", "nodes", "calendar", "main")
"""The scripts, in the order in which they are joined."""


def dashboard() -> Response:
    """Return the page, with headers that let nothing else run in it."""
    page, policy = joined()
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-cache",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
        "cross-origin-opener-policy": "same-origin",
    }
    return Response(page, headers=headers, media_type="text/html")


@cache
def joined() -> tuple[str, str]:
    """Return the page, and the policy by which browsers run its own script and style alone."""
    folder = Path(__file__).parent

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    style = read("style.css")
    script = "".join(read(f"{name}.js") for name in SCRIPTS)
    page = read("page.html").replace("STYLE", style, 1).replace("SCRIPT", script, 1)
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'"
    )
    return page, policy


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
