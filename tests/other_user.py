"""What another user of this host sees."""

import json
import os
import pwd
import traceback
from collections.abc import Callable
from typing import Any

import pytest

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
NOBODY = pwd.getpwnam("nobody").pw_uid


def as_user(uid: int, call: Callable[[], Any]) -> Any:
    """What `call` returns in a process of that user."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(uid)
            os.write(writing, json.dumps(call()).encode())
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writing)
    with open(reading, "rb") as file:
        data = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(data)
