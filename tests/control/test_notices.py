"""Notices by webhook and e-mail against real servers of this host, and what they never do."""

import json
import socketserver
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from email import message_from_string
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from optsched import Job
from optsched.control.journal.events import Cancelled, Submitted
from optsched.control.notices import MOST_MAILS, MOST_WAITING, Notices, address_of, mail_of, why_not
from optsched.control.settings import NoticeSettings, read_settings
from optsched.control.submission import Submission
from optsched.errors import InputError

from .hostile import MEMORY, Hostile
from .hostile import settings as cluster_settings

SECRET = "hunter2"


class Web:
    """A web server: `answers` are the statuses of the next posts, the last one of all after."""

    def __init__(self) -> None:
        self.answers, self.posts = [200], list[dict[str, Any]]()
        self.moved: list[str] = []
        web = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                if self.path == "/elsewhere":
                    web.moved.append(self.path)
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = web.answers.pop(0) if len(web.answers) > 1 else web.answers[0]
                web.posts.append(body)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_GET = do_POST

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


class Mail:
    """A mail server that keeps what it is sent; it refuses recipients in `refused`."""

    def __init__(self) -> None:
        self.mails: list[tuple[str, list[str], str]] = []
        self.refused: set[str] = set()
        mail = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                self.wfile.write(b"220 here\r\n")
                sender, recipients = "", list[str]()
                while line := self.rfile.readline().decode().strip():
                    verb, said = line[:4].upper(), b"250 ok\r\n"
                    if verb == "MAIL":
                        sender = line.partition("<")[2].partition(">")[0]
                    elif verb == "RCPT":
                        to = line.partition("<")[2].partition(">")[0]
                        if to in mail.refused:
                            said = b"550 nobody\r\n"
                        else:
                            recipients.append(to)
                    elif verb == "DATA":
                        self.wfile.write(b"354 go on\r\n")
                        lines = list(iter(lambda: self.rfile.readline().decode(), ".\r\n"))
                        mail.mails.append((sender, recipients, "".join(lines)))
                    elif verb == "QUIT":
                        said = b"221 bye\r\n"
                    self.wfile.write(said)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = allow_reuse_address = True

        self.server = Server(("127.0.0.1", 0), Handler)
        self.place = f"127.0.0.1:{self.server.server_address[1]}"


def served(found: Any) -> Iterator[Any]:
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    yield from served(Web())


@pytest.fixture
def mail() -> Iterator[Mail]:
    yield from served(Mail())


def until(there: Callable[[], Any]) -> None:
    end_s = time.monotonic() + 60.0
    while not there():
        assert time.monotonic() < end_s, "it never happened"
        time.sleep(0.01)


class Lab(Hostile):
    """A lab whose controller sends notices."""

    def __init__(self, folder: Path, pauses_s: tuple[float, ...] = (0.01,) * 3, **how: Any) -> None:
        super().__init__(folder)
        self.how = NoticeSettings(**how)
        edited = cluster_settings().model_copy(update={"notices": self.how})
        self.notices = Notices(edited, self.controller.state, pauses_s)
        self.controller.notices = self.notices
        self.controller.listeners.append(self.notices.heard)

    def job(self, name: str, status: int = 0, seconds: float = 5.0, **more: Any) -> None:
        job = Job(id=name, user="ann", gpus=1, duration_s=5.0, command=f"train --key {SECRET}")
        submission = Submission(
            job=job,
            argv=("work", str(seconds), "0", str(status)),
            directory=f"/home/{SECRET}",
            environment={"TOKEN": SECRET},
            **more,
        )
        self.controller.record(Submitted(submission=submission))


@pytest.fixture
def labs() -> Iterator[Callable[..., Lab]]:
    made: list[Lab] = []
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:

        def make(**how: Any) -> Lab:
            made.append(Lab(Path(folder), **how))
            return made[-1]

        yield make
        for lab in made:
            lab.notices.close()
            lab.controller.journal.close()


def test_a_webhook_is_told_what_was_asked_for_and_nothing_secret(labs: Any, web: Web) -> None:
    lab = labs(webhook=web.url)
    lab.job("good", notify=("start", "end"))
    lab.job("bad", status=3, notify=("fail", "end"))
    lab.job("silent")
    lab.run(20)
    until(lambda: len(web.posts) == 3)
    told = {(post["job"], post["event"]): post for post in web.posts}
    assert told.keys() == {("good", "start"), ("good", "end"), ("bad", "fail")}
    assert told["bad", "fail"]["exit_status"] == 3 and told["bad", "fail"]["status"] == "failed"
    assert told["good", "end"]["finished_s"] > told["good", "end"]["started_s"] >= 1000.0
    assert SECRET not in json.dumps(web.posts)
    until(lambda: lab.notices.counts == {("webhook", "sent"): 3})


def test_who_ends_before_anybody_saw_it_run_has_started(labs: Any, web: Web) -> None:
    lab = labs(webhook=web.url)
    lab.job("short", seconds=0.25, notify=("start", "end"))
    lab.run(20)
    until(lambda: len(web.posts) == 2)
    started, ended = web.posts
    assert [started["event"], ended["event"]] == ["start", "end"]
    assert (started["status"], started["finished_s"]) == ("running", None)
    assert started["started_s"] == ended["started_s"] < ended["finished_s"]


def test_operators_hear_of_all_jobs(labs: Any, web: Web) -> None:
    lab = labs(webhook=web.url, events=("fail",))
    lab.job("bad", status=3)
    lab.job("good")
    lab.run(20)
    until(lambda: [post["job"] for post in web.posts] == ["bad"])


def test_a_cancelled_job_has_ended_once(labs: Any, web: Web) -> None:
    lab = labs(webhook=web.url)
    lab.job("waits", notify=("end",), hold=True)
    lab.job("last", notify=("end",))
    lab.controller.record(Cancelled(job="waits", by="me"))
    lab.run(20)
    until(lambda: len(web.posts) == 2)
    assert [(post["job"], post["status"]) for post in web.posts] == [
        ("waits", "cancelled"),
        ("last", "completed"),
    ]


def test_it_is_tried_again_and_then_given_up_and_noted(labs: Any, web: Web) -> None:
    lab = labs(webhook=web.url)
    web.answers = [500, 503, 200]
    lab.job("late", notify=("end",))
    lab.run(20)
    until(lambda: lab.notices.counts["webhook", "sent"] == 1)
    assert len(web.posts) == 3
    web.answers, web.posts = [404], []
    lab.job("never", notify=("end",))
    lab.run(20)
    until(lambda: lab.notices.counts["webhook", "failed"] == 1)
    assert len(web.posts) == 1
    lab.run(1)
    notes = [str(entry.event) for entry in lab.controller.journal.entries()]
    assert any(
        "a notice of never could not be sent (webhook): the webhook" in note for note in notes
    )
    assert not any("/hook" in note for note in notes)


def test_it_follows_no_redirect(labs: Any, web: Web) -> None:
    lab = labs(webhook=web.url)
    web.answers = [302]
    lab.job("moved", notify=("end",))
    lab.run(20)
    until(lambda: lab.notices.counts["webhook", "failed"] == 1)
    assert not web.moved


def test_the_controller_waits_for_nobody(labs: Any) -> None:
    """A server that takes connections and never answers: turns go on, and what is too much is
    dropped."""
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as silent:
        lab = labs(webhook=f"http://127.0.0.1:{silent.server_address[1]}/", timeout=60.0)
        for number in range(MOST_WAITING + 20):
            lab.job(f"j-{number}", notify=("end",), hold=True)
            lab.controller.record(Cancelled(job=f"j-{number}", by="me"))
        assert lab.notices.counts["webhook", "dropped"] >= 19
        lab.job("done")
        lab.run(20)
        assert lab.controller.state.jobs["done"].finished == "completed" and not lab.bugs


def test_e_mail_reaches_the_user(labs: Any, mail: Mail) -> None:
    how = {"smtp": mail.place, "smtp_from": "sched@example.org", "email_domains": ("example.org",)}
    lab = labs(**how)
    lab.job("default", notify=("end",))
    lab.job("named", status=3, notify=("fail",), notify_to="boss@Example.org")
    lab.job("silent")
    lab.run(20)
    until(lambda: len(mail.mails) == 2)
    by_address = {to[0]: (sender, text) for sender, to, text in mail.mails}
    assert by_address.keys() == {"ann@example.org", "boss@Example.org"}
    sender, text = by_address["boss@Example.org"]
    message = message_from_string(text)
    assert sender == "sched@example.org" and message["Subject"] == "named failed"
    assert "Exit status: 3." in text and SECRET not in text
    assert message["Auto-Submitted"] == "auto-generated"
    mail.refused = {"ann@example.org"}
    lab.job("refused", notify=("end",))
    lab.run(20)
    until(lambda: lab.notices.counts["email", "failed"] == 1)
    assert lab.notices.counts["email", "sent"] == 2


def test_nobody_is_flooded_with_e_mail(labs: Any, mail: Mail) -> None:
    how = {"smtp": mail.place, "smtp_from": "sched@example.org", "email_domains": ("example.org",)}
    lab = labs(**how)
    for number in range(MOST_MAILS + 5):
        lab.job(f"j-{number}", notify=("end",), hold=True)
        lab.controller.record(Cancelled(job=f"j-{number}", by="me"))
    assert lab.notices.counts["email", "dropped"] == 5
    until(lambda: lab.notices.counts["email", "sent"] == MOST_MAILS)


@pytest.mark.parametrize(
    "address",
    ["a@evil.org", "a@example.org\nBcc: b@evil.org", "a b@example.org", "@example.org",
     "<a>@example.org", "a@example.org,b@evil.org", "a@evil.org@example.org", "é@example.org",
     "-oQ/tmp@example.org", "a" * 65 + "@example.org"],
)  # fmt: skip
def test_addresses_of_others_are_refused(address: str) -> None:
    how = NoticeSettings(smtp="h:25", smtp_from="s@example.org", email_domains=("example.org",))
    assert address_of(how, address, "ann") is None
    assert why_not(how, ("end",), address) is not None
    assert address_of(how, None, "ann") == "ann@example.org"
    assert address_of(how, None, "ann\nTo: x") is None
    assert address_of(NoticeSettings(), None, "ann") is None


def test_headers_take_nothing_else() -> None:
    with pytest.raises(Exception, match="no name that could be a subject"):
        mail_of({"job": "a\nBcc: b@evil.org", "status": "failed"}, "s@example.org")


def test_what_is_asked_for_in_vain_is_refused() -> None:
    assert why_not(NoticeSettings(), (), None) is None
    assert "sends no notices" in str(why_not(NoticeSettings(), ("end",), None))
    web_only = NoticeSettings(webhook="http://host/")
    assert "sends no e-mail" in str(why_not(web_only, ("end",), "a@b.org"))
    assert "notify asks for none" in str(why_not(web_only, (), "a@b.org"))


@pytest.mark.parametrize(
    ("line", "where"),
    [
        ('webhook = "file:///etc/passwd"', "notices.webhook"),
        ('webhook = "http://"', "notices.webhook"),
        ('webhook = ""', "notices.webhook"),
        ('webhook = "https://[bad"', "notices.webhook"),
        ('webhook = "https://host:99999/"', "notices.webhook"),
        ('webhook = "https://host/a b"', "notices.webhook"),
        ("timeout = 0", "notices.timeout"),
        ('smtp = "a b"', "notices.smtp"),
        ('smtp = "mail:99999"', "notices.smtp: 'mail:99999' is not a mail server"),
        ('smtp = "mail:25"', "notices.smtp_from"),
        ('smtp_user = "me"', "notices"),
        ('email_domains = ["@"]', "notices.email_domains[0]"),
        ('events = ["always"]', "notices.events"),
    ],
)
def test_faults_of_the_file_are_told(tmp_path: Path, line: str, where: str) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(f'format = "optsched-cluster/1"\n[notices]\n{line}\n')
    with pytest.raises(InputError) as told:
        read_settings(path)
    assert where in str(told.value)
