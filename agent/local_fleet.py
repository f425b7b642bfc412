"""The local fleet: engines, front door, load and warden on this machine, laid out in one state directory.

Everything runs in detached processes that are described on disk (serving.engines), so that any command finds them again.
"""

import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from runbooks.runbook import Autonomy
from serving.clock import Clock
from serving.engines.engine_process import EngineStatus
from serving.engines.local import LocalEngines
from serving.engines.specs import EngineKind, EngineSpec, require_vllm, simulated_engine, vllm_engine
from serving.engines.tiny_model import make_tiny_model
from serving.faults.faults import Faults
from serving.fleet.fleet_file import EngineEntry, FleetFile, GatewayEntry, NodeEntry, OtlpEntry, ScrapeEntry, TelemetryEntry

HOST = "127.0.0.1"
SIMULATED_EXPERTS = ("--num-experts", "16", "--moe-layers", "2", "--num-experts-per-tok", "2")  # as the tiny real model has
STOPPED_IN_THIS_ORDER = ("warden", "load", "door")  # the warden first: it must not repair what is being stopped
ENGINE_STOP_GRACE_S = 5.0
DETECTORS = """\
# What differs from the built-in parameters (detectors/parameters.yaml) on this fleet.
progress:
  young: 15.0  # these engines compile nothing after their start (simulated, or eager), so a standstill soon means a hang
"""


class LocalFleetError(Exception):
    """The local fleet cannot be laid out or started; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to start. `rps` is the load through the front door in requests per second; 0 starts none.

    `moe`: the engines serve a model with a mixture of experts, and count the tokens of each.
    Ports: the door at `base_port`, its admin routes at +90, traces at +91, the warden at +92, engine n at +1+n, the counter
    of experts of a real engine at +100+n.
    """

    engines: int = 4
    kind: EngineKind = EngineKind.SIMULATED
    base_port: int = 8100
    rps: float = 6.0
    autonomy: Autonomy = Autonomy.AUTO
    slack_webhook_file: Path | None = None
    moe: bool = False

    @property
    def door_url(self) -> str:
        return f"http://{HOST}:{self.base_port}"

    @property
    def admin_port(self) -> int:
        return self.base_port + 90

    @property
    def otlp_port(self) -> int:
        return self.base_port + 91

    @property
    def warden_port(self) -> int:
        return self.base_port + 92

    @property
    def model(self) -> str:
        return ("sim" if self.kind is EngineKind.SIMULATED else "tiny") + ("-moe" if self.moe else "")

    def engine_name(self, number: int) -> str:
        return f"{self.model}-{number}"

    def experts_port(self, number: int) -> int | None:
        """Where engine `number` shows its counter of experts; None where it has none beside its own /metrics."""
        return self.base_port + 100 + number if self.moe and self.kind is EngineKind.VLLM else None

    def ports(self) -> dict[int, str]:
        """Every port that will be listened on, and who will."""
        engines = {self.base_port + 1 + n: f"engine {self.engine_name(n)}" for n in range(self.engines)}
        counters = {self.experts_port(n): f"the experts of {self.engine_name(n)}" for n in range(self.engines)}
        engines |= {port: owner for port, owner in counters.items() if port is not None}
        return engines | {
            self.base_port: "the front door",
            self.admin_port: "the front door's admin routes",
            self.otlp_port: "the warden's trace receiver",
            self.warden_port: "the warden's /metrics",
        }


class LocalFleet:
    """One local fleet under `directory`."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self.engines = LocalEngines(directory, clock)
        self.services = LocalEngines(directory / "services", clock)

    @property
    def fleet_file(self) -> Path:
        return self.directory / "fleet.yaml"

    @property
    def warden_file(self) -> Path:
        return self.directory / "warden.yaml"

    @property
    def door_file(self) -> Path:
        return self.directory / "door.json"

    @property
    def detectors_file(self) -> Path:
        return self.directory / "detectors.yaml"

    def lay_out(self, plan: Plan) -> None:
        """Write the fleet file, the warden's settings and how each process is started. Starts nothing.

        Raises LocalFleetError when a fleet already runs here or a port is taken.
        """
        running = self.running()
        if running:
            raise LocalFleetError(f"a local fleet runs already ({', '.join(running)}); `fleetwarden down` stops it")
        if plan.engines + 1 >= plan.admin_port - plan.base_port:
            raise LocalFleetError(f"{plan.engines} engines are too many for one machine's plan; at most 88")
        for port, owner in plan.ports().items():
            if not is_free(port):
                raise LocalFleetError(
                    f"port {port} is taken, and {owner} needs it; stop what listens there (`ss -ltnp sport = :{port}`) "
                    "or choose another range with --base-port"
                )
        self.directory.mkdir(parents=True, exist_ok=True)
        engines, services = self._engine_specs(plan), self._service_specs(plan)
        self.door_file.unlink(missing_ok=True)  # what an earlier door was ordered says nothing about these engines
        _fleet(plan, engines).dump(self.fleet_file)
        self.detectors_file.write_text(DETECTORS)
        self.warden_file.write_text(yaml.safe_dump(self._warden_settings(plan), sort_keys=False))
        _record(self.engines, engines)
        _record(self.services, services)

    def start(self, service: str) -> None:
        """Start `door`, `load` or `warden` unless it runs."""
        self.services.start(service)

    def running(self) -> list[str]:
        """Names of all processes of this fleet that run."""
        return [
            name
            for keeper in (self.services, self.engines)
            for name in keeper.names()
            if keeper.state(name).status is EngineStatus.RUNNING
        ]

    def stop(self) -> Iterator[str]:
        """Stop everything, the warden first so that it does not repair what is being stopped; yields each name when gone.

        Faults at work are taken back last: a load on an engine ends with it, and what was killed is not started again.
        """
        for name in STOPPED_IN_THIS_ORDER:
            if name in self.services.names():
                self.services.stop(name, grace_s=ENGINE_STOP_GRACE_S)
                yield name
        for name in self.engines.names():
            self.engines.stop(name, grace_s=1.0)
            yield name
        for cleared in Faults(self.directory, self.engines, self._clock).clear("all"):
            yield f"fault {cleared.injection.id}"

    def _engine_specs(self, plan: Plan) -> list[EngineSpec]:
        traces = f"http://{HOST}:{plan.otlp_port}/v1/traces"
        ports = range(plan.base_port + 1, plan.base_port + 1 + plan.engines)
        if plan.kind is EngineKind.SIMULATED:
            return [
                simulated_engine(
                    *(plan.engine_name(n), port),
                    model=plan.model,
                    seed=n,
                    otlp_endpoint=traces,
                    extra=SIMULATED_EXPERTS if plan.moe else (),
                )
                for n, port in enumerate(ports)
            ]
        require_vllm()
        model = make_tiny_model(self.directory / ("tiny-moe-model" if plan.moe else "tiny-model"), moe=plan.moe)
        return [
            vllm_engine(
                *(plan.engine_name(n), port, model),
                model=plan.model,
                otlp_endpoint=traces,
                experts_port=plan.experts_port(n),
            )
            for n, port in enumerate(ports)
        ]

    def _service_specs(self, plan: Plan) -> list[EngineSpec]:
        python = sys.executable
        door = (
            *(python, "-m", "serving.gateway", "--fleet", str(self.fleet_file), "--port", str(plan.base_port)),
            *("--admin-port", str(plan.admin_port), "--state", str(self.door_file)),
        )
        warden = (python, "-m", "agent.cli", "warden", "--config", str(self.warden_file))
        specs = [_service("door", door, plan.base_port), _service("warden", warden, plan.warden_port)]
        if plan.rps > 0:
            load = (
                *(python, "-m", "serving.load", "--url", plan.door_url, "--model", plan.model, "--rps", str(plan.rps)),
                *("--pattern", "steady", "--seconds", "86400"),
            )
            specs.append(_service("load", load, plan.base_port))
        return specs

    def _warden_settings(self, plan: Plan) -> dict[str, object]:
        settings: dict[str, object] = {
            "state_dir": str(self.directory.absolute()),
            "detectors": str(self.detectors_file.absolute()),
            "http": {"host": HOST, "port": plan.warden_port},
            "policy": {"cell": "local", "autonomy": str(plan.autonomy)},
        }
        if plan.slack_webhook_file is not None:
            settings["sinks"] = {"slack": {"webhook_url_file": str(plan.slack_webhook_file.absolute())}}
        return settings


def wait_until(ready: Callable[[], bool], clock: Clock, seconds: float, poll_s: float = 0.2) -> bool:
    """Ask `ready` until it is True or `seconds` have passed; says which."""
    until = clock.monotonic() + seconds
    while not ready():
        if clock.monotonic() >= until:
            return False
        clock.sleep(poll_s)
    return True


def _fleet(plan: Plan, specs: Sequence[EngineSpec]) -> FleetFile:
    nodes = [f"node-{chr(ord('a') + n % 26)}" for n in range(len(specs))]
    return FleetFile(
        fleet="local",
        cell="local",
        nodes=[NodeEntry(name=node) for node in dict.fromkeys(nodes)],
        engines=[
            EngineEntry(
                name=spec.name,
                url=spec.url,
                model=spec.model,
                node=node,
                hardware=spec.hardware,
                extra_metrics=[f"http://{HOST}:{port}/metrics"] if (port := plan.experts_port(n)) is not None else [],
            )
            for n, (spec, node) in enumerate(zip(specs, nodes, strict=True))
        ],
        gateway=GatewayEntry(name="door", url=plan.door_url, admin_url=f"http://{HOST}:{plan.admin_port}"),
        telemetry=TelemetryEntry(scrape=ScrapeEntry(), otlp=OtlpEntry(host=HOST, port=plan.otlp_port)),
    )


def _record(keeper: LocalEngines, specs: Sequence[EngineSpec]) -> None:
    """Keep these specs and no others: what an earlier plan had and this one has not must not be started again."""
    for stale in set(keeper.names()) - {spec.name for spec in specs}:
        keeper.remove(stale)
    for spec in specs:
        keeper.add(spec)


def _service(name: str, command: tuple[str, ...], port: int) -> EngineSpec:
    return EngineSpec(name=name, kind=EngineKind.PROGRAM, command=command, port=port, model="-")


def is_free(port: int) -> bool:
    """Whether a process may listen on this port of the loopback."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
