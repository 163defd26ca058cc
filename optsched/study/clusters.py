"""Clusters that execute runs of a study: Ray and Dask."""

import contextlib
import os
import queue
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ..errors import InputError

CONNECT_S = 30
EMPTY_S = 120.0
"""How long a cluster may be without any worker."""
LOOK_S = 5.0
ADDRESSES = (
    "ray://HOST:PORT of a Ray Client server, HOST:PORT of a Ray cluster that this machine is part "
    "of, ray://local, or tcp://HOST:PORT of a Dask scheduler"
)

Carried = Callable[[dict[str, Any], bytes], dict[str, Any]]


class Cluster(Protocol):
    """What a study asks of a cluster."""

    def cores(self) -> int: ...
    def share(self, data: bytes) -> Any:
        """Return bytes that many tasks take, sent once."""
        ...

    def submit(self, errand: dict[str, Any], shared: Any) -> Any: ...
    def next_done(self, pending: Sequence[Any]) -> Any:
        """Wait for a task of these; None where none ended for some seconds."""
        ...

    def result(self, task: Any) -> dict[str, Any]:
        """Return what a task that ended returned; raises whatever became of it otherwise."""
        ...

    def cancel(self, pending: Sequence[Any]) -> None: ...


class Watch:
    """Notices that a cluster stays without workers."""

    def __init__(self) -> None:
        self._empty_since_s: float | None = None

    def see(self, cores: int) -> None:
        """Raise InputError where there were none for `EMPTY_S`."""
        now_s = time.monotonic()
        if cores:
            self._empty_since_s = None
        elif self._empty_since_s is None:
            self._empty_since_s = now_s
        elif now_s - self._empty_since_s > EMPTY_S:
            raise InputError(
                f"the cluster has had no worker for {EMPTY_S:.0f} s; what is finished is kept, and "
                "the same command goes on"
            )


def carried() -> Carried:
    """Return what a worker executes. It is sent whole, not by name, so that a worker without
    optsched can say so."""

    def run(errand: dict[str, Any], instance: bytes) -> dict[str, Any]:
        try:
            from optsched.study.worker import run_errand
        except ImportError as error:
            import socket

            return {
                "unfit": f"worker {socket.gethostname()} has no optsched that runs studies "
                f"({error}); install there what is installed here"
            }
        return run_errand(errand, instance)

    return run


@contextlib.contextmanager
def connected(on: str) -> Iterator[Cluster]:
    """Yield the cluster at `ray://HOST:PORT` (a Ray Client server), `HOST:PORT` (of Ray, from one
    of its machines), `ray://local` or `tcp://HOST:PORT` (a Dask scheduler; `tls://` too).

    Raises InputError for another address, a missing library, and a cluster that cannot be reached.
    """
    scheme, _, place = on.rpartition("://")
    if (
        not (re.fullmatch(r".+:\d+", place) and scheme in ("", "ray", "tcp", "tls"))
        and on != "ray://local"
    ):
        raise InputError(f"--on {on}: is {ADDRESSES}")
    open_cluster = ray_cluster if scheme in ("", "ray") else dask_cluster
    with open_cluster(on) as cluster:
        yield cluster


class RayCluster:
    """Tasks of one core on Ray."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        # A study tries a lost run again itself.
        self._run = ray.remote(carried()).options(num_cpus=1, max_retries=0)
        self._watch = Watch()

    def cores(self) -> int:
        return int(self._ray.cluster_resources().get("CPU", 1))

    def share(self, data: bytes) -> Any:
        return self._ray.put(data)

    def submit(self, errand: dict[str, Any], shared: Any) -> Any:
        return self._run.remote(errand, shared)

    def next_done(self, pending: Sequence[Any]) -> Any:
        done, _ = self._ray.wait(list(pending), num_returns=1, timeout=LOOK_S)
        if done:
            return done[0]
        self._watch.see(int(self._ray.cluster_resources().get("CPU", 0)))
        return None

    def result(self, task: Any) -> dict[str, Any]:
        return dict(self._ray.get(task))

    def cancel(self, pending: Sequence[Any]) -> None:
        for task in pending:
            with contextlib.suppress(Exception):
                self._ray.cancel(task, force=True)


class DaskCluster:
    """Tasks of one thread on Dask."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._run = carried()
        self._watch = Watch()

    def cores(self) -> int:
        return sum(self._client.ncores().values())

    def share(self, data: bytes) -> Any:
        # A task, not scattered: what is scattered is lost with its worker, and cannot be where
        # there is none just now.
        return self._client.submit(bytes, data, pure=False)

    def submit(self, errand: dict[str, Any], shared: Any) -> Any:
        task = self._client.submit(self._run, errand, shared, pure=False)
        task.add_done_callback(self._done.put)
        return task

    def next_done(self, pending: Sequence[Any]) -> Any:
        with contextlib.suppress(queue.Empty):
            return self._done.get(timeout=LOOK_S)
        if self._client.status not in ("running", "connecting"):
            raise InputError(
                "the Dask scheduler is gone; what is finished is kept, and the same command goes on"
            )
        self._watch.see(self.cores())
        return None

    def result(self, task: Any) -> dict[str, Any]:
        return dict(task.result())

    def cancel(self, pending: Sequence[Any]) -> None:
        with contextlib.suppress(Exception):
            self._client.cancel(list(pending))


@contextlib.contextmanager
def ray_cluster(on: str) -> Iterator[RayCluster]:
    """Yield the Ray cluster at `ray://HOST:PORT`; `ray://local` is that of this machine, started
    where there is none."""
    os.environ.setdefault(
        "RAY_USAGE_STATS_ENABLED", "0"
    )  # Ray reports its use to its makers unless told otherwise
    try:
        import ray
    except ImportError:
        raise InputError(f"--on {on}: Ray is not installed; pip install 'optsched[ray]'") from None
    known = ray.is_initialized()
    if not known:
        try:
            if on == "ray://local":
                ray.init(log_to_driver=False, logging_level="ERROR")
            else:
                ray.init(on, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            raise InputError(f"--on {on}: cannot be reached: {_ray_fault(error)}") from None
    try:
        yield RayCluster(ray)
    finally:
        if not known:
            ray.shutdown()


def _ray_fault(error: BaseException) -> str:
    """Return the first line of the message; where a token is wanted, that."""
    causes: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        causes.append(str(cause))
        cause = cause.__cause__ or cause.__context__
    if any("InvalidAuthToken" in text for text in causes):
        return "it asks for a token; set RAY_AUTH_MODE=token, with the token in RAY_AUTH_TOKEN or ~/.ray/auth_token"  # noqa: E501
    if "ray client connection timeout" in causes[0]:
        return (
            "no answer of a Ray Client server; where it asks for a token, set RAY_AUTH_MODE=token"
        )
    return causes[0].strip().splitlines()[0]


@contextlib.contextmanager
def dask_cluster(on: str) -> Iterator[DaskCluster]:
    """Yield the Dask cluster whose scheduler is at `tcp://HOST:PORT`."""
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            f"--on {on}: Dask is not installed; pip install 'optsched[dask]'"
        ) from None
    try:
        client = Client(on, timeout=CONNECT_S, set_as_default=False)
    except Exception as error:
        raise InputError(
            f"--on {on}: cannot be reached: {str(error).strip().splitlines()[0]}"
        ) from None
    with client:
        yield DaskCluster(client)
