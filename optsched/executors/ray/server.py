"""Ray's head as it answers over HTTP: the Jobs API and the list of nodes. Every call is bounded in
time.

Source: Ray documentation, "Ray Jobs REST API" and "State API" (Ray 2.60). Ray itself need not be
installed here.
"""

import http.client
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...files.regular import read_regular
from ..base import Entry, NoAnswerError, Record

MOST_NODES = 10_000
"""Ray lists no more at once."""
PIECE_BYTES, MOST_BYTES = 1 << 16, 256 << 20
SAID_CHARACTERS = 300


class RejectedError(Exception):
    """The server understood and did not do it; the message is the last thing it said."""


def last_line(lines: Iterable[str]) -> str:
    """Return the last that says something: tracebacks end in lines of one dot."""
    telling = [line.strip() for line in lines if len(line.strip()) > 1]
    return telling[-1][:SAID_CHARACTERS] if telling else ""


class JobServer:
    """The job server of one Ray cluster, at `address` (`http://HOST:8265`).

    `headers` go with each call; the text in `token_file`, read anew for each, goes as a bearer
    token. A call that has not ended after `timeout_s` raises NoAnswerError, as does one whose
    effect nobody knows.
    """

    def __init__(
        self, address: str, headers: Mapping[str, str], token_file: Path | None, timeout_s: float
    ) -> None:
        self.address = address.rstrip("/")
        self._headers = dict(headers)
        self._token_file = token_file
        self._timeout_s = timeout_s

    def nodes(self) -> list[Record]:
        """Return all nodes that Ray knows, dead ones among them. Raises NoAnswerError."""
        try:
            answer = self._call("GET", f"/api/v0/nodes?detail=true&limit={MOST_NODES}")
            return [dict(node) for node in answer["data"]["result"]["result"]]
        except (KeyError, TypeError, ValueError, RejectedError) as error:
            raise self._silence(f"did not list its nodes: {error}") from None

    def jobs(self) -> dict[str, Record]:
        """Return all submitted jobs that Ray keeps, by submission id. Raises NoAnswerError."""
        try:
            answer = self._call("GET", "/api/jobs/")
            return {job["submission_id"]: dict(job) for job in answer if job.get("submission_id")}
        except (AttributeError, KeyError, TypeError, ValueError, RejectedError) as error:
            raise self._silence(f"did not list its jobs: {error}") from None

    def _silence(self, how: str) -> NoAnswerError:
        return NoAnswerError(f"Ray's head at {self.address} {how}")

    def submit(self, job: Entry) -> None:
        """Submit a job; nothing if its submission id is taken. Raises NoAnswerError,
        RejectedError."""
        try:
            self._call("POST", "/api/jobs/", job)
        except (
            NoAnswerError,
            RejectedError,
        ) as error:  # which status it comes with depends on Ray's version
            if f"{job['submission_id']} already exists" not in str(error):
                raise

    def stop(self, submission_id: str) -> None:
        """Have Ray send SIGTERM to a job. Raises NoAnswerError, RejectedError."""
        self._call("POST", f"/api/jobs/{urllib.parse.quote(submission_id, safe='')}/stop")

    def delete(self, submission_id: str) -> None:
        """Have Ray forget a job that has ended. Raises NoAnswerError, RejectedError."""
        self._call("DELETE", f"/api/jobs/{urllib.parse.quote(submission_id, safe='')}")

    def _call(self, method: str, path: str, body: Entry | None = None) -> Any:
        until_s = time.monotonic() + self._timeout_s
        request = urllib.request.Request(
            self.address + path, None if body is None else json.dumps(body).encode(), method=method
        )
        for name, said in self._all_headers().items():  # secrets, which no redirect takes along
            request.add_unredirected_header(name, said)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s) as answer:
                text = bytearray()
                while piece := answer.read1(PIECE_BYTES):
                    text += piece
                    if len(text) > MOST_BYTES:
                        raise self._silence(f"answered more than {MOST_BYTES >> 20} MiB")
                    if time.monotonic() > until_s:
                        raise TimeoutError("timed out")
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", None) or error
            raise self._silence(f"does not answer: {why}") from None
        try:
            return json.loads(text) if text else None
        except (ValueError, RecursionError):
            raise NoAnswerError(
                f"what answers at {self.address} is not a job server of Ray"
            ) from None

    def _refusal(self, error: urllib.error.HTTPError) -> Exception:
        try:
            lines = error.read(1 << 20).decode(errors="replace").splitlines()
        except (OSError, http.client.HTTPException):
            lines = []
        said = last_line(lines) or str(error.reason)
        if error.code in (401, 403):
            return self._silence(f"wants another token ({said}); see token_file in [ray]")
        if 400 <= error.code < 500 and error.code not in (408, 429):
            return RejectedError(said)
        return self._silence(f"answered with status {error.code}: {said}")

    def _all_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "User-Agent": "optsched", **self._headers}
        if self._token_file is not None:
            try:
                token = read_regular(self._token_file).decode().strip()
                headers["Authorization"] = f"Bearer {token}"
            except (OSError, UnicodeDecodeError) as error:
                raise NoAnswerError(
                    f"the token for Ray in {self._token_file} cannot be read: {error}"
                ) from None
        return headers
