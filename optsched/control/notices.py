"""Notices of jobs that start and end: a webhook and e-mail, from threads that the controller never
waits for."""

import json
import queue
import smtplib
import ssl
import threading
import urllib.error
import urllib.request
from collections import Counter, deque
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

from ..duration import human
from ..executors.base import JOB_NAME
from ..files.regular import read_regular
from ..picture.text import printable
from .journal.events import AttemptEnded, AttemptRunning, Cancelled, Cleared, Event
from .journal.state import ENDED_AS, LiveJob, State
from .settings import ADDRESS, NoticeEvent, NoticeSettings, Settings

MOST_WAITING = 1000
"""At most so many notices wait in the queue of each way; more are dropped."""
PAUSES_S = (1.0, 4.0, 16.0, 60.0)
"""The pause before each further try."""
MOST_MAILS = 100
"""So many e-mails are sent for one user in an hour."""
MOST_REASON = 300
Post = Callable[["Notice", NoticeSettings], None]
Notice = dict[str, Any]
"""What is told of a job, as it is posted."""


class UnsendableError(Exception):
    """What will not be sent however often it is tried."""


class Notices:
    """Hears what happens to jobs, and tells those who asked for it.

    `heard` only puts a notice into a bounded queue; a thread for each way of sending takes it from
    there, tries a few times, and gives up. What waits when the controller ends is not sent.
    `counts` are of ways and outcomes ("sent", "failed", "dropped").
    """

    def __init__(
        self, settings: Settings, state: State, pauses_s: tuple[float, ...] = PAUSES_S
    ) -> None:
        self._state = state
        self._pauses_s = pauses_s
        self._stopping = threading.Event()
        self._mails: Counter[tuple[str, int]] = Counter()
        self._troubles: deque[str] = deque(maxlen=10)
        self.counts: Counter[tuple[str, str]] = Counter()
        self._ways = {name: Way(name, self, post) for name, post in POSTS.items()}
        self.reload(settings)

    def reload(self, settings: Settings) -> None:
        """Take over where notices go."""
        self._cluster, self.settings = settings.name, settings.notices

    def heard(self, at_s: float, event: Event) -> None:
        """Put what is to be told of an event where it is sent from."""
        if self.settings.webhook is None and self.settings.smtp is None:
            return
        if not isinstance(event, AttemptRunning | AttemptEnded | Cleared | Cancelled):
            return
        job = self._state.jobs.get(event.job)
        for what in () if job is None else _happened(job, event):
            assert job is not None
            asked = what in job.submission.notify
            if not asked and what not in self.settings.events:
                continue
            notice = self._notice(job, what)
            if self.settings.webhook is not None:
                self._ways["webhook"].put(notice)
            address = address_of(self.settings, job.submission.notify_to, job.submission.job.user)
            if asked and self.settings.smtp is not None and address is not None:
                self._mail(notice, address, at_s)
            return  # one notice an event, of the more special kind

    def _notice(self, job: LiveJob, what: NoticeEvent) -> Notice:
        """Return what is told: no command, no variables, no paths."""
        last = job.attempts[-1] if job.attempts else None
        started = (attempt.started_s for attempt in job.attempts)
        return {
            "event": what,
            "cluster": self._cluster,
            "job": job.id,
            "user": job.submission.job.user,
            "tenant": job.submission.job.tenant,
            "status": job.status,
            "reason": None if job.reason is None else job.reason[:MOST_REASON],
            "exit_status": None if last is None or last.ended is None else last.ended.exit_status,
            "submit_s": job.submit_s,
            "started_s": next((at_s for at_s in started if at_s is not None), None),
            "finished_s": job.finished_s,
        }

    def _mail(self, notice: Notice, address: str, at_s: float) -> None:
        hour = notice["user"] or "", int(at_s // 3600)
        self._mails[hour] += 1
        if self._mails[hour] == 1:  # those of hours before count no more
            self._mails = Counter({own: n for own, n in self._mails.items() if own[1] == hour[1]})
        if self._mails[hour] > MOST_MAILS:
            self.counts["email", "dropped"] += 1
        else:
            self._ways["email"].put({**notice, "to": address})

    def troubles(self) -> Iterator[str]:
        """Yield what has gone wrong since this was last asked."""
        while self._troubles:
            yield self._troubles.popleft()

    def send(self, way: str, post: Post, notice: Notice) -> None:
        """Send a notice, again after pauses where that may help. On the thread of a way."""
        why = ""
        for pause_s in (0.0, *self._pauses_s):
            if self._stopping.wait(pause_s):
                return
            try:
                post(notice, self.settings)
            except UnsendableError as error:
                why = str(error)
                break
            except Exception as error:
                why = f"{type(error).__name__}: {error}"
            else:
                self.counts[way, "sent"] += 1
                return
        self.counts[way, "failed"] += 1
        said = f"a notice of {notice['job']} could not be sent ({way}): {why[:MOST_REASON]}"
        self._troubles.append(said)

    def close(self) -> None:
        """Send no more."""
        self._stopping.set()
        for way in self._ways.values():
            way.put(None)


class Way:
    """A queue of notices and the thread that sends them, begun with the first."""

    def __init__(self, name: str, notices: Notices, post: Post) -> None:
        self._name, self._notices, self._post = name, notices, post
        self._waiting: queue.Queue[Notice | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None

    def put(self, notice: Notice | None) -> None:
        """Have a notice sent, None to have the thread end; it is dropped where too many wait."""
        if self._thread is None and notice is not None:
            self._thread = threading.Thread(
                target=self._run, name=f"notices by {self._name}", daemon=True
            )
            self._thread.start()
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._notices.counts[self._name, "dropped"] += 1

    def _run(self) -> None:
        while (notice := self._waiting.get()) is not None:
            self._notices.send(self._name, self._post, notice)


def address_of(settings: NoticeSettings, asked: str | None, user: str | None) -> str | None:
    """Return where e-mail for a job goes: where its user wants it, else to the user at the first
    domain; None where the operator allows neither."""
    if not settings.email_domains:
        return None
    address = f"{user}@{settings.email_domains[0]}" if asked is None else asked
    allowed = {domain.lower() for domain in settings.email_domains}
    sound = ADDRESS.fullmatch(address) and address.rpartition("@")[2].lower() in allowed
    return address if sound else None


def why_not(settings: NoticeSettings, notify: tuple[str, ...], to: str | None) -> str | None:
    """Return why a job cannot have the notices that it asks for; None where it can."""
    if to is not None and not notify:
        return "notify_to: says where notices go, and notify asks for none; give notify"
    if not notify:
        return None
    if settings.webhook is None and settings.smtp is None:
        return (
            "notify: this controller sends no notices; an administrator can have it do so "
            "([notices] in cluster.toml)"
        )
    if to is not None and settings.smtp is None:
        return "notify_to: this controller sends no e-mail; leave it out"
    if to is not None and address_of(settings, to, None) is None:
        domains = ", ".join(settings.email_domains) or "no domain"
        return f"notify_to: e-mail goes to addresses of {domains} only; give such a one"
    return None


def _happened(job: LiveJob, event: Event) -> Iterator[NoticeEvent]:
    """Yield what an event means for its job, the more special first."""
    if isinstance(event, AttemptRunning):
        if all(attempt.started_s is None for attempt in job.attempts[: event.number - 1]):
            yield "start"
    elif job.finished is not None:
        if job.finished == "failed":
            yield "fail"
        yield "end"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The operator named this address, and no other."""

    def redirect_request(self, *_: Any) -> None:
        return None


OPENER = urllib.request.build_opener(_NoRedirects)


def post_webhook(notice: Notice, settings: NoticeSettings) -> None:
    """Post a notice as JSON. Raises OSError, UnsendableError where it is refused for good."""
    if settings.webhook is None:
        raise UnsendableError("there is no webhook any more")
    request = urllib.request.Request(
        settings.webhook,
        json.dumps(notice).encode(),
        {"Content-Type": "application/json", "User-Agent": "optsched"},
        method="POST",
    )
    try:
        OPENER.open(request, timeout=settings.timeout).close()
    except urllib.error.HTTPError as error:
        error.close()
        # Its address may be a secret, so it is not in the sentence.
        if error.code in (408, 425, 429) or error.code >= 500:
            raise OSError(f"the webhook answered {error.code}") from None
        raise UnsendableError(f"the webhook answered {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(f"the webhook cannot be reached: {error.reason}") from None


def send_mail(notice: Notice, settings: NoticeSettings) -> None:
    """Send a notice by SMTP. Raises OSError and smtplib.SMTPException, UnsendableError where it is
    refused for good."""
    if settings.smtp is None or settings.smtp_from is None:
        raise UnsendableError("there is no mail server any more")
    message = mail_of(notice, settings.smtp_from)
    host, _, port = settings.smtp.partition(":")
    try:
        with smtplib.SMTP(host, int(port or 25), timeout=settings.timeout) as server:
            if settings.smtp_starttls:
                server.starttls(context=ssl.create_default_context())
            if settings.smtp_user is not None and settings.smtp_password_file is not None:
                password = read_regular(settings.smtp_password_file).decode().strip()
                server.login(settings.smtp_user, password)
            server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        codes = [code for code, _ in error.recipients.values()]
        kind = UnsendableError if all(code >= 500 for code in codes) else OSError
        raise kind(f"the mail server refused the address ({codes[0]})") from None


def mail_of(notice: Notice, sender: str) -> EmailMessage:
    """Return a notice as e-mail: nothing of a job gets into its headers but its name."""
    if not JOB_NAME.fullmatch(notice["job"]):
        raise UnsendableError("its job has no name that could be a subject")
    said = ENDED_AS.get(notice["status"], "has started")
    message = EmailMessage()
    message["Subject"] = f"{notice['job']} {said}"
    message["From"], message["To"] = sender, notice["to"]
    message["Date"] = formatdate(localtime=True)
    message["Message-ID"] = make_msgid(domain=sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    lines = [f"{notice['job']} {said} on {notice['cluster']}."]
    if notice["reason"]:
        lines.append(printable(notice["reason"]) + ".")
    if notice["exit_status"] is not None:
        lines.append(f"Exit status: {notice['exit_status']}.")
    if notice["started_s"] is not None and notice["finished_s"] is not None:
        lines.append(
            f"From its first start to its end: {human(notice['finished_s'] - notice['started_s'])}."
        )
    lines.append(f"optsched explain {notice['job']} says more.")
    message.set_content("\n".join(lines) + "\n")
    return message


POSTS: dict[str, Post] = {"webhook": post_webhook, "email": send_mail}
