"""What a request is answered that is not done."""

from ...errors import OptschedError


class HttpError(OptschedError):
    """An HTTP status, and one sentence that says why."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def unsound(error: OptschedError) -> HttpError:
    """Return that what was asked is not sound, on one line."""
    return HttpError(422, str(error).replace("\n", " "))
