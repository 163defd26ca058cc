"""Reading what jobs print, without being led to a file that is not theirs."""

import codecs
import errno
import os
import stat

from .refusal import HttpError

MOST_BYTES = 1 << 20
"""So much is read at once."""


def read_output(
    path: str, owner_uid: int, *, tail_bytes: int, start: int | None
) -> tuple[str, int, int, int]:
    """Return text, its first byte, the byte after it, and the size of the file: its last
    `tail_bytes`, or all from `start`, at most 1 MiB. Ends at a whole character; bytes that are no
    UTF-8 are replaced.

    A user may put a link in the place of a file: only a regular file of `owner_uid` with one name
    is read. Raises HttpError 404.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENOENT:
            raise HttpError(404, "nothing has been printed yet, or it has been removed") from None
        raise HttpError(404, f"its output cannot be read: {error.strerror}") from None
    with open(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != owner_uid or about.st_nlink != 1:
            raise HttpError(404, "its output is no longer the file that was made for it")
        size = about.st_size
        first = min(size, max(0, size - tail_bytes) if start is None else start)
        file.seek(first)
        data = file.read(min(MOST_BYTES, size - first))
    if start is None and first:
        begun = next((i for i, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
        first, data = first + begun, data[begun:]
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    text = decoder.decode(data)
    pending = len(decoder.getstate()[0])
    return text, first, first + len(data) - pending, size
