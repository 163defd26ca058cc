"""Who is calling, and what they may see and change."""

import hmac
import os
import pwd
from collections.abc import Collection, Mapping

from ...frozen import record
from ..journal.state import LiveJob, State
from ..settings import Settings
from .place import TOKEN, VIEW_TOKEN
from .refusal import HttpError

OWN_HOSTS = ("127.0.0.1", "localhost", "[::1]")
"""Names by which a browser page may call the port; any other is a page whose name was bent to this
host."""


@record
class Caller:
    """A user. `all_jobs`: sees and changes everybody's jobs. `all_output`: also reads what they
    print. `views_only`: changes nothing, and sees no command."""

    uid: int
    name: str
    all_jobs: bool
    all_output: bool
    views_only: bool = False

    def owns(self, job: LiveJob) -> bool:
        """Tell whether it is the caller's own."""
        return job.submission.job.user == self.name

    def sees(self, job: LiveJob) -> bool:
        """Tell whether the caller may know of a job, and change it."""
        return self.all_jobs or self.owns(job)


NOBODY = Caller(-1, "", False, False)
"""Whoever asks for what is public."""

READER = Caller(-1, "", True, False, views_only=True)
"""Whoever has a token that opens less than all, and asks for what it opens."""


class Access:
    """Tells callers: by the credentials of a unix socket's peer, or by the token on a port."""

    def __init__(self, settings: Settings, tokens: Mapping[str, str]) -> None:
        """Take `tokens` by the names of their files; none where there is no port."""
        self.reload(settings)
        self._tokens = tokens
        self.own_uid = os.geteuid()
        self.own_name = user_name(self.own_uid)

    def reload(self, settings: Settings) -> None:
        """Take over who the administrators are."""
        self._administrators = frozenset(settings.api.administrators)

    def of_user(self, uid: int) -> Caller:
        """Return the caller that is this user."""
        name = user_name(uid)
        trusted = uid in (0, self.own_uid)
        return Caller(uid, name, trusted or name in self._administrators, trusted)

    def of_request(
        self, uid: int | None, headers: Mapping[str, str], opened_by: Collection[str] = ()
    ) -> Caller:
        """Return the caller of a request that came from user `uid` over the socket, or None over
        the port, where it needs the token of the controller's user or one that it is `opened_by`.

        Raises HttpError (401, 403).
        """
        if uid is not None:
            return self.of_user(uid)
        host = headers.get("host", "")
        if host.rpartition(":")[0] not in OWN_HOSTS and host not in OWN_HOSTS:
            raise HttpError(
                403, "the Host header names another host; call the port as 127.0.0.1 or localhost"
            )
        kind, _, given = headers.get("authorization", "").partition(" ")
        bearer = kind.lower() == "bearer"
        names = {name for name, token in self._tokens.items() if bearer and _same(given, token)}
        if TOKEN in names:
            return self.of_user(self.own_uid)
        if names & set(opened_by):
            return READER
        if VIEW_TOKEN in names:
            raise HttpError(
                403, "this token is read-only: it opens no actions, outputs or commands"
            )
        raise HttpError(
            401,
            "this needs the header 'Authorization: Bearer TOKEN', with the text of the file "
            "`token` in the controller's state folder",
        )


def visible(state: State, caller: Caller, name: str) -> LiveJob:
    """Return a job that the caller may see. Raises HttpError 404: others are as if not there."""
    job = state.jobs.get(name)
    if job is None or not caller.sees(job):
        raise HttpError(404, f"there is no job {name[:80]!r}")
    return job


def _same(given: str, token: str) -> bool:
    """Tell whether a token is the one that is expected, told in a time that gives nothing away."""
    return hmac.compare_digest(given.strip().encode(errors="replace"), token.encode())


def user_name(uid: int) -> str:
    """Return the name of a user; the number where the host knows none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
