"""A headless Chromium, driven by its DevTools protocol over a pipe."""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
PATIENCE_S = 120.0


def high_pipe() -> tuple[int, int]:
    """Return the ends of a pipe that are not 3 and 4, which the browser takes for its own."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """One page of a browser of its own; `errors` are the exceptions and console errors in it."""

    def __init__(self, folder: Path, *, width: int = 1400, height: int = 1000) -> None:
        assert CHROMIUM is not None
        self._in, write_there = high_pipe()
        read_there, self._out = high_pipe()
        self.process = subprocess.Popen(
            [
                "bash",
                "-c",
                f'exec "$0" "$@" 3<&{read_there} 4>&{write_there}',
                CHROMIUM,
                *FLAGS,
                f"--user-data-dir={folder}",
                "about:blank",
            ],
            pass_fds=(read_there, write_there),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read_there)
        os.close(write_there)
        self._read = b""
        self._number = 0
        self._session: str | None = None
        self.errors: list[str] = []
        target = self._waited(lambda: self._page())
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log", "Performance"):
            self.ask(
                f"{domain}.enable",
                **({"timeDomain": "threadTicks"} if domain == "Performance" else {}),
            )
        self.resize(width, height)

    def _page(self) -> str | None:
        targets = self.ask("Target.getTargets")["targetInfos"]
        return next((own["targetId"] for own in targets if own["type"] == "page"), None)

    def ask(self, method: str, **parameters: Any) -> Any:
        """Have the browser do something, and return what it says."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self._note(answer)

    def _next(self) -> Any:
        end_s = time.monotonic() + PATIENCE_S
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end_s - time.monotonic()))
            assert ready, "the browser does not answer"
            part = os.read(self._in, 1 << 20)
            assert part, "the browser has ended"
            self._read += part
        message, _, self._read = self._read.partition(b"\0")
        return json.loads(message)

    def _note(self, event: Any) -> None:
        match event.get("method"), event.get("params"):
            case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                self.errors.append(json.dumps(details))
            case "Log.entryAdded", {"entry": {"level": "error"} as entry}:
                self.errors.append(json.dumps(entry))

    def open(self, url: str) -> None:
        """Go to a page."""
        self.ask("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page, awaited if it is a promise."""
        done = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, (script, done["exceptionDetails"])
        return done["result"].get("value")

    def until(self, script: str) -> None:
        """Wait for an expression to be true in the page."""
        self._waited(
            lambda: self.run(script), lambda: (script, self.run("document.body.innerText")[:1500])
        )

    def _waited(self, there: Any, why: Any = lambda: "it never happened") -> Any:
        end_s = time.monotonic() + PATIENCE_S
        while not (value := there()):
            assert time.monotonic() < end_s, why()
            time.sleep(0.1)
        return value

    def press(self, key: str, code: int = 0, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, text=text
            )

    def resize(self, width: int, height: int, scale: float = 1.0) -> None:
        """Give the page another size."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write what is in view, or the whole page, as PNG."""
        taken = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(taken["data"]))

    def metrics(self) -> dict[str, float]:
        """Return what the page has cost so far, in seconds and bytes."""
        return {own["name"]: own["value"] for own in self.ask("Performance.getMetrics")["metrics"]}

    def close(self) -> None:
        """End the browser with all its processes."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._in)
        os.close(self._out)
