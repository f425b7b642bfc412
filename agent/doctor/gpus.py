"""What a Prometheus holds of the GPUs themselves: the series of NVIDIA's DCGM exporter."""

from collections.abc import Mapping

from pydantic import SecretStr

from agent.checkup.checkup import in_own_words
from agent.doctor.findings import Check, ok, problem, warning
from serving.clock import Clock
from serving.telemetry.promql import PromqlClient, PromqlError
from serving.telemetry.registry import Job, Registry

CHECK = "store.gpus"
SECONDS = 10.0


def examine(url: str, registry: Registry, clock: Clock, match: Mapping[str, str], token: SecretStr | None) -> list[Check]:
    """Which signals of GPUs are there, under any of their names."""
    wanted = {name: spec.names for name, spec in registry.of_job(Job.GPU).items() if spec.names[0].startswith("DCGM_")}
    series = "|".join(name for names in wanted.values() for name in names)
    labels = "".join(f', {label}="{value}"' for label, value in match.items())
    client = PromqlClient(clock, url, token)
    try:
        told = client.ask(f'group by (__name__) ({{__name__=~"{series}"{labels}}})', SECONDS)
    except PromqlError as failed:
        says = in_own_words(str(failed))
        return [problem(CHECK, "prometheus", says, "ask it yourself on its page /graph, and look at its log")]
    finally:
        client.close()
    present = {labels.get("__name__", "") for labels, _ in told}
    absent = sorted(name for name, names in wanted.items() if present.isdisjoint(names))
    details = {"present": sorted(wanted.keys() - set(absent)), "absent": absent}
    if len(absent) == len(wanted):
        says = "holds no series of the DCGM exporter, so faults of GPUs are seen only in what engines do"
        todo = "install NVIDIA's dcgm-exporter (the GPU operator brings it) and let it be scraped"
        return [warning(CHECK, "prometheus", says, todo, **details)]
    if absent:
        listed = ", ".join(f"{name} ({wanted[name][0]})" for name in absent)
        says = f"holds {len(wanted) - len(absent)} of {len(wanted)} signals of GPUs; absent: {listed}"
        return [warning(CHECK, "prometheus", says, "add these fields to the metrics file of the dcgm-exporter", **details)]
    return [ok(CHECK, "prometheus", f"holds all {len(wanted)} signals of GPUs", **details)]
