"""A hook inside vLLM's workers: counts the tokens that each expert gets, and shows the counts on a local port.

vLLM exports no load of single experts, and its EPLB (expert parallel load balancer) only writes a balance to its log. With
FLEETWARDEN_EXPERTS_PORT in the environment the base class of all routers is wrapped when vLLM imports it: the ids that a
router returns are added up by `scatter_add_` in one tensor that was allocated beforehand on the device, so a CUDA graph
captures it with the rest. Nothing is read there. A scrape of http://127.0.0.1:(port + rank)/metrics is answered by a thread
of its own, with a copy of that tensor. Ids below zero are padding; where EPLB is on, ids are those of physical replicas.

Whatever fails here is said once on stderr and costs the counts, never the engine. Nothing but the standard library is
imported; torch is taken from the process.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

from serving.clock import Clock, SystemClock

PORT_VARIABLE = "FLEETWARDEN_EXPERTS_PORT"
HOST = "127.0.0.1"
ROUTER_MODULE = "vllm.model_executor.layers.fused_moe.router.fused_moe_router"
EPLB_MODULE = "vllm.distributed.eplb.eplb_state"
MOST_LAYERS = 256  # no public model has as many; further ones are not counted
KEPT_S = 0.5  # a copy is shown for so long, however often it is asked for
_PLACE = "_fleetwarden_layer"


def install() -> None:
    """Called in each of vLLM's processes. Does nothing unless FLEETWARDEN_EXPERTS_PORT names a port."""
    port = os.environ.get(PORT_VARIABLE)
    if not port:
        return
    if not port.isdigit() or not 0 < int(port) < 65_536:  # noqa: PLR2004 - the highest port
        say(f"{PORT_VARIABLE} is {port!r}, not a port; experts are not counted")
    elif not _has(ROUTER_MODULE):
        say("this vLLM has no FusedMoERouter (0.32 has), so tokens per expert cannot be counted; all else is as usual")
    else:
        counter = ExpertCounter(int(port), SystemClock())
        after_import(ROUTER_MODULE, counter.wrap_router)
        if _has(EPLB_MODULE):
            after_import(EPLB_MODULE, counter.wrap_balancer)


def say(what: str) -> None:
    """One line in the engine's log."""
    print(f"fleetwarden expert-counter: {what}", file=sys.stderr, flush=True)  # noqa: T201 - the engine's log is its stderr


class ExpertCounter:
    """The counts of one process. `port` is that of rank 0; each further rank listens on the one after."""

    def __init__(self, port: int, clock: Clock) -> None:
        self.port = port
        self._clock = clock
        self._off = False
        self._sizes: list[int] = []  # experts of each layer
        self._rows: Sequence[Any] = ()
        self._one: Any = None
        self._counts: Any = None
        self._rank = 0
        self._balancing = False
        self._rebalance_s = 0.0
        self._lock = threading.RLock()  # a copy off the device must not fall into the capture of a CUDA graph
        self._shown: tuple[float, str] | None = None
        self._prefixes: list[list[str]] = []

    def wrap_router(self, module: ModuleType) -> None:
        """Wrap `FusedMoERouter.select_experts` of vLLM's module."""
        base: Any = getattr(module, "FusedMoERouter", None)
        original = getattr(base, "select_experts", None)
        if base is None or original is None:
            say("vLLM's FusedMoERouter.select_experts is gone, so tokens per expert cannot be counted; all else is as usual")
            return
        is_compiling = sys.modules["torch"].compiler.is_compiling

        def select_experts(router: Any, *args: Any, **named: Any) -> Any:
            chosen = original(router, *args, **named)
            if not is_compiling():  # a compiler that traces this far leaves the routing as it is, uncounted
                self.count(router, chosen[1])
            return chosen

        base.select_experts = select_experts

    def wrap_balancer(self, module: ModuleType) -> None:
        """Measure how long EPLB's rearrangements stop the engine."""
        balancer = getattr(module, "EplbState", None)
        original = getattr(balancer, "rearrange", None)
        if balancer is None or original is None:
            return

        def rearrange(state: Any, *args: Any, **named: Any) -> Any:
            begin = self._clock.monotonic()
            try:
                return original(state, *args, **named)
            finally:
                self._rebalance_s = self._clock.monotonic() - begin

        balancer.rearrange = rearrange

    def count(self, router: Any, ids: Any) -> None:
        """Add the ids (tokens, experts chosen) that one router returned. On the hot path: three small operations."""
        if self._off:
            return
        try:
            layer = router.__dict__.get(_PLACE)
            if layer is None:
                layer = self._meet(router, ids)
            if layer >= 0:
                row = self._rows[layer]
                index = (ids.reshape(-1).long() + 1).clamp_(0, row.shape[0] - 1)
                row.scatter_add_(0, index, self._one.expand(index.shape[0]))
        except Exception as failed:  # noqa: BLE001 - whatever it is, the engine goes on without counts
            self._off = True
            say(f"counting ended, the engine goes on: {type(failed).__name__}: {failed}")

    def text(self) -> str:
        """The counts so far, as Prometheus reads them."""
        now = self._clock.monotonic()
        with self._lock:
            if self._shown is None or now - self._shown[0] >= KEPT_S:
                self._shown = (now, self._written())
            return self._shown[1]

    def _meet(self, router: Any, ids: Any) -> int:
        """Give a router that is met for the first time the next layer's place; the first one brings the device."""
        torch = sys.modules["torch"]
        if ids.is_cuda and torch.cuda.is_current_stream_capturing():
            return -1  # what is allocated now would belong to the graph; vLLM runs each layer once before
        if self._counts is None:
            self._begin(torch, router, ids)
        place = len(self._sizes) if len(self._sizes) < MOST_LAYERS else -1
        if place >= 0:
            size = min(_experts_of(router), self._counts.shape[1] - 2)
            name = "fleetwarden:expert_tokens_total"
            with self._lock:
                self._prefixes.append(
                    [f'{name}{{layer="{place}",expert="{expert}",rank="{self._rank}"}} ' for expert in range(size)]
                )
                self._sizes.append(size)
        state = getattr(router, "eplb_state", None)
        self._balancing = self._balancing or getattr(state, "expert_load_view", None) is not None
        router.__dict__[_PLACE] = place
        return place

    def _begin(self, torch: Any, router: Any, ids: Any) -> None:
        spread = torch.distributed.is_available() and torch.distributed.is_initialized()
        self._rank = torch.distributed.get_rank() if spread else 0
        # A column before the experts takes padding, one behind them what is beyond (shared experts, odd ids).
        with torch.inference_mode(mode=False):
            self._counts = torch.zeros((MOST_LAYERS, _experts_of(router) + 2), dtype=torch.int64, device=ids.device)
            self._one = torch.ones(1, dtype=torch.int64, device=ids.device)
        self._rows = self._counts.unbind(0)
        if ids.is_cuda:
            hold_while_capturing(torch.cuda.graph, self._lock)
        try:
            serve(self.port + self._rank, self.text)
        except OSError as taken:
            say(f"port {self.port + self._rank} cannot be had, so counts are not shown: {taken}")

    def _copied(self) -> list[list[int]]:
        """The counts on the host, by a stream of their own where they are on a GPU."""
        counts: Any = self._counts[: len(self._sizes)]
        if counts.is_cuda:
            torch = sys.modules["torch"]
            with torch.cuda.device(counts.device), torch.cuda.stream(torch.cuda.Stream()):
                counts = counts.cpu()
        copied: list[list[int]] = counts.tolist()
        return copied

    def _written(self) -> str:
        about = "Tokens that each expert got, by layer among those with experts."
        name = "fleetwarden:expert_tokens_total"
        lines = [f"# HELP {name} {about}\n# TYPE {name} counter\n"]
        for prefixes, row in zip(self._prefixes, self._copied(), strict=True):
            lines += [f"{prefix}{count}\n" for prefix, count in zip(prefixes, row[1:], strict=False)]
        for part, value, says in (
            ("expert_balancing", int(self._balancing), "1 where EPLB spreads experts anew by itself."),
            ("expert_rebalance_seconds", self._rebalance_s, "How long EPLB's last rearrangement took; 0 before the first."),
        ):
            lines.append(f"# HELP fleetwarden:{part} {says}\n# TYPE fleetwarden:{part} gauge\n")
            lines.append(f'fleetwarden:{part}{{rank="{self._rank}"}} {value}\n')
        return "".join(lines)


def serve(port: int, text: Callable[[], str]) -> ThreadingHTTPServer:
    """Answer /metrics on the loopback by a daemon thread. Raises OSError when the port is taken."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.split("?")[0] == "/metrics"
            body = (text() if found else "only /metrics is here\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are no news."""

    server = ThreadingHTTPServer((HOST, port), Answering)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="fleetwarden-experts", daemon=True).start()
    return server


def hold_while_capturing(graph: Any, lock: threading.RLock) -> None:
    """Make `torch.cuda.graph` hold the lock while it captures: a copy by another thread would spoil the capture."""
    enter, leave = graph.__enter__, graph.__exit__

    def entered(self: Any) -> Any:
        lock.acquire()
        try:
            return enter(self)
        except BaseException:
            lock.release()
            raise

    def left(self: Any, *raised: Any) -> Any:
        try:
            return leave(self, *raised)
        finally:
            lock.release()

    graph.__enter__, graph.__exit__ = entered, left


def after_import(name: str, change: Callable[[ModuleType], None]) -> None:
    """Call `change` with the module of this name: now if it is there, else once it is imported, also in a forked child."""
    if name in sys.modules:
        change(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Awaiting(name, change))


class _Awaiting(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Lets the usual loader load one module, then changes it."""

    def __init__(self, name: str, change: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._change = change
        self._usual: Any = None

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name != self._name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None:
            self._usual, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: Any) -> ModuleType | None:
        made: ModuleType | None = self._usual.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._usual.exec_module(module)
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        try:
            self._change(module)
        except Exception as failed:  # noqa: BLE001 - a module that changed its shape must still be importable
            say(f"{self._name} could not be watched: {type(failed).__name__}: {failed}")


def _has(module: str) -> bool:
    """Whether the installed vLLM has this module, found out without importing anything."""
    package, *parts = module.split(".")
    spec = importlib.util.find_spec(package)
    roots = spec.submodule_search_locations if spec is not None else None
    return any(Path(root, *parts).with_suffix(".py").is_file() for root in roots or ())


def _experts_of(router: Any) -> int:
    return max(1, int(router.global_num_experts))
