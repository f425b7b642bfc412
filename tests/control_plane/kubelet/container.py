"""One container of a pod: a process that is started, probed, restarted after a back-off, and stopped.

Its states are those of ContainerStatus in the API, kept as they go out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from control_plane.kubelet.backoff import Backoff
from control_plane.kubelet.ending import Ending
from control_plane.kubelet.environment import environment, expand
from control_plane.kubelet.images import ImagePullError, Launch, StartError, search_path
from control_plane.kubelet.placing import PodContext
from control_plane.kubelet.probes import KINDS, Prober, Target, Verdict
from control_plane.kubelet.times import stamp
from serving.engines.spawning import await_exit_noted, spawn

REPOSITORY = Path(__file__).parents[3]  # simulated engines are programs of this tree
SIGNAL_BASE = 128  # a process that ended by signal n is said to have exited with 128 + n
Json = dict[str, Any]


class Container:
    """`gpus` are the devices it was given, `extra` variables that its own may replace."""

    def __init__(
        self, spec: Mapping[str, Any], pod: Mapping[str, Any], place: PodContext, gpus: list[int], extra: Mapping[str, str]
    ) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.restarts = 0
        self.started = False
        self.ready = False
        self.pid: int | None = None
        self.state: Json = _waiting("ContainerCreating")
        self.last_state: Json = {}
        self._policy: str = pod["spec"].get("restartPolicy", "Always")
        self._grace: float = pod["spec"].get("terminationGracePeriodSeconds", 30)
        self._pod, self._place, self._gpus, self._extra = pod, place, gpus, extra
        self._backoff = Backoff(place.pace.first_backoff, place.pace.most_backoff)
        self._ended_at = 0.0
        self._exits: dict[int, int] = {}
        self._probers: list[Prober] = []
        self._ending: Ending | None = None
        self._over = False

    @property
    def log(self) -> Path:
        """The output of the process that runs now, or of the last one."""
        return self._place.directory / self.name / f"{self.restarts}.log"

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Of the last process that ended; None while one runs or before the first."""
        ended = self.state.get("terminated") or ({} if self.running else self.last_state.get("terminated", {}))
        code: int | None = ended.get("exitCode")
        return code

    @property
    def done(self) -> bool:
        """Whether it has ended and will not be started again."""
        return "terminated" in self.state and (self._over or not self._to_be_restarted())

    def step(self) -> None:
        """Notice an end; start what is to be started and may be."""
        now = self._place.clock.now()
        self._notice_end(now)
        if self.running or self._over:
            return
        if self._ended_at == 0:
            self._start(now)
        elif self._to_be_restarted():
            delay = self._backoff.delay(self._ended_at, now)
            if delay > 0:
                self._hold_back(delay)
            else:
                self._backoff.restarted(self._ended_at, now)
                self.restarts += 1
                self._start(now)

    def stop(self, grace_s: float, why: str, *, for_good: bool) -> None:
        """Begin to stop it, or shorten the grace. `for_good`: it is not started again."""
        self._over = self._over or for_good
        if not self.running or self.pid is None:
            return
        if self._ending is not None:
            self._ending.shorten(grace_s)
            return
        self._place.event("Normal", "Killing", why)
        hook = (self.spec.get("lifecycle") or {}).get("preStop")
        pid = self.pid
        self._ending = Ending(
            *(pid, grace_s, hook, self._target(), self._place.clock, lambda: pid not in self._exits),
            lambda detail: self._place.event("Warning", "FailedPreStopHook", f"PreStopHook failed: {detail}"),
        )
        self._ending.start()

    def abandon(self) -> None:
        """Stop asking probes, and wait for what works on the process. To be called when it has been killed."""
        for prober in self._probers:
            prober.stop()
        for thread in (*self._probers, self._ending):
            if thread is not None and thread.is_alive():
                thread.join(10)
        if self.pid is not None:
            await_exit_noted(self.pid)
            self._notice_end(self._place.clock.now())

    def status(self) -> Json:
        """ContainerStatus as the API has it."""
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": "" if self._ended_at == 0 and not self.running else f"process://{self.spec['image']}",
            "containerID": "" if self._ended_at == 0 and not self.running else self._id(),
            "ready": self.ready,
            "started": self.started,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        }

    def _start(self, now: float) -> None:
        try:
            launch, variables = self._launch()
            pid = spawn(launch.command, variables, self.log, self._exits.__setitem__)
        except ImagePullError as failed:
            self._cannot_pull(str(failed))
            return
        except (StartError, ValueError, OSError) as failed:
            self._cannot_start(str(failed), now)
            return
        self._place.guard.watch(pid)
        self.pid = pid
        self.state = {"running": {"startedAt": stamp(now)}}
        self._place.event("Normal", "Started", "Container started")
        probes = {kind: self.spec[f"{kind}Probe"] for kind in KINDS if self.spec.get(f"{kind}Probe")}
        self.started = "startup" not in probes
        self.ready = self.started and "readiness" not in probes
        self._probers = [self._prober(kind, probe) for kind, probe in probes.items()]
        for prober in self._probers:
            prober.start()

    def _launch(self) -> tuple[Launch, dict[str, str]]:
        variables = self._variables()
        command, arguments = (
            [expand(word, variables) for word in self.spec.get(part) or ()] for part in ("command", "args")
        )
        launch = self._place.images.launch(self.spec["image"], command, arguments, self._place.name, self._place.address)
        return launch, {**variables, **launch.environment}

    def _variables(self) -> dict[str, str]:
        place = self._place
        own = environment(self.spec, self._pod, place.node, place.address, place.node_address)
        gpus = ",".join(map(str, self._gpus))
        return {
            "PATH": search_path(),
            "HOME": str(place.directory),
            "HOSTNAME": place.name,
            "PYTHONPATH": str(REPOSITORY),
            "NVIDIA_VISIBLE_DEVICES": gpus or "void",  # as NVIDIA's device plugin sets it
            **self._extra,
            **own,
        }

    def _target(self) -> Target:
        ports = {port["name"]: port["containerPort"] for port in self.spec.get("ports") or () if "name" in port}
        return Target(self._place.address, ports, self._variables())

    def _prober(self, kind: str, probe: Mapping[str, Any]) -> Prober:
        pid = self.pid

        def gate() -> bool:
            # Once it is being stopped, only readiness is still of interest (pkg/kubelet/prober/prober_manager.go).
            return (kind == "startup") != self.started and (self._ending is None or kind == "readiness")

        def tell(kind: str, verdict: Verdict) -> None:
            if pid == self.pid:
                self._heed(kind, verdict)

        def complain(kind: str, detail: str) -> None:
            self._place.event("Warning", "Unhealthy", f"{kind.capitalize()} probe failed: {detail}")

        return Prober(kind, probe, self._target(), gate, tell, complain)

    def _heed(self, kind: str, verdict: Verdict) -> None:
        if kind == "readiness":
            self.ready = verdict.good
        elif verdict.good:
            if kind == "startup":
                self.started, self.ready = True, not self.spec.get("readinessProbe")
        else:
            grace = self.spec[f"{kind}Probe"].get("terminationGracePeriodSeconds", self._grace)
            self.stop(grace, f"Container {self.name} failed {kind} probe, will be restarted", for_good=False)

    def _notice_end(self, now: float) -> None:
        if not self.running or self.pid not in self._exits:
            return
        if self._ending is not None and self._ending.is_alive():
            return  # others of its group are still being killed
        code = self._exits[self.pid]
        self._place.guard.forget(self.pid)
        for prober in self._probers:
            prober.stop()
        code = SIGNAL_BASE - code if code < 0 else code
        self._terminate(code, "Completed" if code == 0 else "Error", self.state["running"]["startedAt"], now)

    def _terminate(self, code: int, reason: str, since: str, now: float, message: str = "") -> None:
        ended = {"exitCode": code, "reason": reason, "startedAt": since, "finishedAt": stamp(now), "containerID": self._id()}
        self.state = {"terminated": {**ended, **({"message": message} if message else {})}}
        self.last_state = dict(self.state)
        self.started = self.ready = False
        self._ended_at, self._ending = now, None

    def _hold_back(self, delay: float) -> None:
        place = self._place
        where = f"{place.name}_{place.namespace}({place.uid})"
        if "terminated" in self.state:
            place.event("Warning", "BackOff", f"Back-off restarting failed container {self.name} in pod {where}")
        message = f"back-off {delay:g}s restarting failed container={self.name} pod={where}"
        self.state = _waiting("CrashLoopBackOff", message)

    def _cannot_pull(self, why: str) -> None:
        if self.state["waiting"]["reason"] == "ContainerCreating":
            self._place.event("Warning", "Failed", f"Failed to pull image: {why}")
            self.state = _waiting("ErrImagePull", why)
        else:
            self.state = _waiting("ImagePullBackOff", f'Back-off pulling image "{self.spec["image"]}": ErrImagePull: {why}')

    def _cannot_start(self, why: str, now: float) -> None:
        """A runtime that cannot start the program ends the container with 128 and this reason."""
        self._place.event("Warning", "Failed", f"Error: {why}")
        self._terminate(SIGNAL_BASE, "StartError", "1970-01-01T00:00:00Z", now, why)

    def _to_be_restarted(self) -> bool:
        ended = self.last_state.get("terminated", {})
        return self._policy == "Always" or (self._policy == "OnFailure" and ended.get("exitCode") != 0)

    def _id(self) -> str:
        return f"process://{self._place.uid}-{self.name}-{self.restarts}"


def _waiting(reason: str, message: str = "") -> Json:
    return {"waiting": {"reason": reason, **({"message": message} if message else {})}}
