"""A node of a Kubernetes cluster: it takes the pods that are bound to it and runs the first
container of each.

It does towards the API server what a kubelet with an NVIDIA device plugin does: admits pods while
there is room, hands out GPUs (the lowest that are free, by UUID in NVIDIA_VISIBLE_DEVICES), reports
phases, stops pods that are deleted within their grace period, and says every few seconds that it
lives. Images are not looked at, but none can be pulled from hosts below `.invalid`. Pods are never
restarted.
"""

import http.client
import json
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .kubernetes_api import Api, ApiError
from .kubernetes_container import CannotStartError, Container, quantity

GPU = "nvidia.com/gpu"
HEARTBEAT_S = 5.0
WATCH_S = 40
FORCED_GRACE_S = 2.0
"""What is left to a pod whose object is gone already."""
LOST_STATUS = 255
"""Exit status of a container of which nothing is known, as containerd tells it."""
Pod = dict[str, Any]


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def stamp(at_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def requests(pod: Mapping[str, Any]) -> dict[str, float]:
    """What a pod asks for, all containers together."""
    total: dict[str, float] = {}
    for container in pod["spec"]["containers"]:
        resources = container.get("resources") or {}
        for name, text in {
            **(resources.get("limits") or {}),
            **(resources.get("requests") or {}),
        }.items():
            total[name] = total.get(name, 0.0) + quantity(text)
    return total


def gpu_uuid(node: str, index: int) -> str:
    """A GPU's name, in the form of the driver's."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}"


def pod_path(pod: Pod) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


class Known:
    """A pod on this node: what it was given, and its container while it runs."""

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self.asks = requests(pod)
        self.gpus: list[int] = []
        self.container: Container | None = None
        self.end_s = float("inf")
        self.stopping = self.gone = self.over = False
        self.lock = threading.Lock()


class NodeAgent:
    """Runs pods until it is killed."""

    def __init__(self, api: Api, name: str, folder: Path) -> None:
        self.api, self.name, self.folder = api, name, folder
        self.known: dict[str, Known] = {}
        self.lock = threading.Lock()
        self.allocatable: dict[str, float] = {}

    def run(self) -> None:
        """For ever."""
        self.heartbeat()
        threading.Thread(target=self._beat, daemon=True).start()
        while True:
            try:
                self._follow()
            except (ApiError, OSError, http.client.HTTPException, ValueError):
                time.sleep(0.2)

    def heartbeat(self) -> None:
        """Say that this node is ready. Raises as Api.request."""
        reason = {
            "MemoryPressure": "KubeletHasSufficientMemory",
            "DiskPressure": "KubeletHasNoDiskPressure",
        }
        conditions = [
            {"type": kind, "status": "False", "reason": why, "lastHeartbeatTime": now()}
            for kind, why in reason.items()
        ]
        conditions.append(
            {
                "type": "Ready",
                "status": "True",
                "reason": "KubeletReady",
                "lastHeartbeatTime": now(),
            }
        )
        found = self.api.merge(
            f"/api/v1/nodes/{self.name}/status", {"status": {"conditions": conditions}}
        )
        self.allocatable = {
            name: quantity(text) for name, text in found["status"]["allocatable"].items()
        }

    def _beat(self) -> None:
        while True:
            time.sleep(HEARTBEAT_S)
            self._insist(self.heartbeat)

    def _follow(self) -> None:
        mine = f"spec.nodeName={self.name}"
        listed = self.api.get("/api/v1/pods", fieldSelector=mine)
        pods = {pod["metadata"]["uid"]: pod for pod in listed["items"]}
        for uid in [uid for uid in [*self.known] if uid not in pods]:
            self._gone(uid)
        for pod in pods.values():
            self._seen(pod)
        version = listed["metadata"]["resourceVersion"]
        for event in self.api.watch(
            "/api/v1/pods", fieldSelector=mine, resourceVersion=version, timeoutSeconds=WATCH_S
        ):
            if event["type"] == "ERROR":
                return
            if event["type"] == "DELETED":
                self._gone(event["object"]["metadata"]["uid"])
            elif event["type"] != "BOOKMARK":
                self._seen(event["object"])

    # ---------------------------------------------------------------------------------------------
    # one pod

    def _seen(self, pod: Pod) -> None:
        uid, final = pod["metadata"]["uid"], pod["status"].get("phase") in ("Succeeded", "Failed")
        known = self.known.get(uid)
        if known is None:
            known = Known(pod)
            with self.lock:
                self.known[uid] = known
            known.over = final
            if pod["metadata"].get("deletionTimestamp") is not None:
                known.over = True
            elif pod["status"].get("phase") == "Running":  # it ran before this host crashed
                known.over = True
                self._spawn(self._finish, known, LOST_STATUS, "Unknown", None)
            elif not final:
                refused = self._admit(known)
                self._spawn(self._report, known, refused) if refused else self._spawn(
                    self._run, known
                )
        known.pod = pod
        if pod["metadata"].get("deletionTimestamp") is not None:
            self._end_within(known, float(pod["metadata"].get("deletionGracePeriodSeconds") or 0))

    def _gone(self, uid: str) -> None:
        """Its object is there no more: end what runs of it."""
        known = self.known.get(uid)
        if known is None:
            return
        known.gone = True
        if known.over and known.container is None:
            with self.lock:
                self.known.pop(uid, None)
        else:
            self._end_within(known, FORCED_GRACE_S)

    def _end_within(self, known: Known, grace_s: float) -> None:
        """Stop it, by then; sooner where it was to be stopped later."""
        known.end_s = min(known.end_s, time.monotonic() + grace_s)
        if not known.stopping:
            known.stopping = True
            self._spawn(self._stop, known, grace_s)

    def _admit(self, known: Known) -> dict[str, Any] | None:
        """Take what it asks for; the status of a pod that is refused."""
        with self.lock:
            others = [
                other for other in self.known.values() if other is not known and not other.over
            ]
            for name, asked in {**known.asks, "pods": 1.0}.items():
                used = sum(1.0 if name == "pods" else other.asks.get(name, 0.0) for other in others)
                if asked and used + asked > self.allocatable.get(name, 0.0):
                    known.over = True
                    message = (
                        f"Pod Node didn't have enough resource: {name}, requested: {asked:g}, "
                        f"used: {used:g}, "
                        f"capacity: {self.allocatable.get(name, 0.0):g}"
                    )
                    return {
                        "phase": "Failed",
                        "reason": f"OutOf{name}",
                        "message": message,
                        "startTime": now(),
                    }
            taken = {gpu for other in others for gpu in other.gpus}
            free = [gpu for gpu in range(int(self.allocatable.get(GPU, 0))) if gpu not in taken]
            known.gpus = free[: int(known.asks.get(GPU, 0))]
        return None

    def _run(self, known: Known) -> None:
        spec = known.pod["spec"]["containers"][0]
        log = self.folder / f"{known.pod['metadata']['name']}.log"
        if spec["image"].partition("/")[0].endswith(".invalid"):
            self._report(
                known,
                self._status(
                    known,
                    "Pending",
                    {
                        "waiting": {
                            "reason": "ErrImagePull",
                            "message": f"failed to pull image {spec['image']}: no such host",
                        }
                    },
                ),
            )
            time.sleep(1)
            self._report(
                known,
                self._status(
                    known,
                    "Pending",
                    {
                        "waiting": {
                            "reason": "ImagePullBackOff",
                            "message": f"Back-off pulling image {spec['image']}",
                        }
                    },
                ),
            )
            return
        devices = {
            "NVIDIA_VISIBLE_DEVICES": ",".join(gpu_uuid(self.name, gpu) for gpu in known.gpus)
        }
        try:
            with known.lock:
                if known.stopping:
                    known.over = True
                    return
                known.container = Container(known.pod, spec, devices if known.gpus else {}, log)
        except CannotStartError as error:
            state = {"reason": error.reason, "message": error.message}
            if error.reason == "StartError":
                self._finish(known, 128, error.reason, error.message)
            else:  # the node goes on trying
                self._report(known, self._status(known, "Pending", {"waiting": state}))
            return
        self._report(known, self._status(known, "Running", {"running": {"startedAt": now()}}))
        status = known.container.wait()
        killed = known.container.out_of_memory
        self._finish(
            known, status, "OOMKilled" if killed else "Error" if status else "Completed", None
        )

    def _finish(self, known: Known, status: int, reason: str, message: str | None) -> None:
        """Say how it ended; what it was given is free again."""
        started_s = known.container.started_s if known.container is not None else time.time()
        ended = {
            "exitCode": status,
            "reason": reason,
            "startedAt": stamp(started_s),
            "finishedAt": now(),
        }
        if message is not None:
            ended["message"] = message
        phase = "Failed" if status else "Succeeded"
        self._report(known, self._status(known, phase, {"terminated": ended}))
        with self.lock:
            known.over, known.container, known.gpus = True, None, []
            if known.gone:
                self.known.pop(known.pod["metadata"]["uid"], None)

    def _stop(self, known: Known, grace_s: float) -> None:
        with known.lock:  # it is started by now, or never will be
            container = known.container
        if container is not None:
            if grace_s > 0:
                container.stop()
            while container.ended is None:
                if time.monotonic() >= known.end_s:
                    container.kill()
                time.sleep(0.02)
            while not known.over:
                time.sleep(0.01)
        known.over = True
        if known.gone:
            with self.lock:
                self.known.pop(known.pod["metadata"]["uid"], None)
        else:
            condition = {
                "gracePeriodSeconds": 0,
                "preconditions": {"uid": known.pod["metadata"]["uid"]},
            }
            self._insist(lambda: self.api.delete(pod_path(known.pod), **condition))

    # ------------------------------------------------------------------------------------------ to
    # the server

    def _status(self, known: Known, phase: str, state: dict[str, Any]) -> dict[str, Any]:
        spec, up = known.pod["spec"]["containers"][0], phase == "Running"
        ready = {"status": "True" if up else "False", "lastTransitionTime": now()}
        conditions = {
            "Initialized": {"status": "True", "lastTransitionTime": now()},
            "Ready": ready,
            "ContainersReady": ready,
            "PodScheduled": {"status": "True", "lastTransitionTime": now()},
        }
        return {
            "phase": phase,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "startTime": known.pod["status"].get("startTime") or now(),
            "conditions": [{"type": kind, **condition} for kind, condition in conditions.items()],
            "containerStatuses": [
                {
                    "name": spec["name"],
                    "image": spec["image"],
                    "imageID": "",
                    "restartCount": 0,
                    "ready": up,
                    "started": up,
                    "state": state,
                }
            ],
        }

    def _report(self, known: Known, status: dict[str, Any]) -> None:
        body = {"metadata": {"uid": known.pod["metadata"]["uid"]}, "status": status}
        self._insist(lambda: self.api.merge(f"{pod_path(known.pod)}/status", body))

    def _insist(self, call: Callable[[], Any]) -> None:
        """Until the server has answered."""
        while True:
            try:
                call()
            except ApiError as error:
                if error.status < 500 and error.status not in (
                    401,
                    429,
                ):  # it is gone, or is another one by now
                    if error.status not in (404, 409):
                        print(self.name, error, file=sys.stderr, flush=True)
                    return
            except (OSError, http.client.HTTPException, ValueError):
                pass
            else:
                return
            time.sleep(0.2)

    def _spawn(self, work: Callable[..., None], *arguments: Any) -> None:
        def run() -> None:
            try:
                work(*arguments)
            finally:
                self.api.close()

        threading.Thread(target=run, daemon=True).start()


def main() -> None:
    """What `sys.argv[1]` says, as JSON."""
    given = json.loads(sys.argv[1])
    api = Api(given["server"], Path(given["ca"]), given["token"])
    NodeAgent(api, given["name"], Path(given["folder"])).run()


if __name__ == "__main__":
    main()
