"""Hot experts: against peers and past, with enough tokens and for long enough; the model's where all its engines are hot."""

from collections.abc import Callable

import numpy as np
from synthetic import Fleet

from detectors.finding import Finding, Symptom
from serving.fleet.entity import EntityKind
from serving.telemetry.window import Window

Find = Callable[[Window], tuple[Finding, ...]]


class Mixture:
    """A fleet whose engines have experts: an imbalance of about 1.4 and enough tokens, unless a test says otherwise."""

    def __init__(self, engines: int = 3, seconds: float = 240.0, seed: int = 3) -> None:
        self.fleet = Fleet(engines=engines, seconds=seconds, seed=seed)
        rng = np.random.default_rng(seed)
        self.imbalance = 1.4 * np.exp(rng.normal(0.0, 0.08, self.fleet.shape))
        self.tokens = np.full(self.fleet.shape, 60.0)

    def hot(self, *rows: int, seconds: float = 60.0, ratio: float = 6.8) -> "Mixture":
        self.imbalance[np.array(rows)[:, None], np.arange(self.fleet.shape[1])[self.fleet.last(seconds)]] = ratio
        return self

    def window(self) -> Window:
        self.fleet.changed |= {
            "experts.imbalance": self.imbalance,
            "experts.per_expert": self.tokens,
            "experts.layer": np.full(self.fleet.shape, 1.0),
            "experts.expert": np.full(self.fleet.shape, 13.0),
        }
        return self.fleet.window()


def hot_ones(found: tuple[Finding, ...]) -> list[str]:
    return [str(one.entity) for one in found if one.symptom is Symptom.EXPERTS_HOT]


def test_a_hot_expert_on_one_engine_is_found_there_and_named_with_the_traffic(findings: Find) -> None:
    mixture = Mixture().hot(1)
    mixture.fleet.arrivals[1, mixture.fleet.last(60)] *= 4.0
    (found,) = [one for one in findings(mixture.window()) if one.symptom is Symptom.EXPERTS_HOT]
    assert str(found.entity) == "engine/e-1"
    assert 0.4 < found.severity < 0.9
    says = [evidence.says for evidence in found.evidence]
    assert says[0].startswith("expert 13 of layer 1 gets 6.8 times its share of tokens, its peers' 1.")
    assert "requests a second arrive there, before" in says[1]
    assert "tokens" in says[2]


def test_health_raises_nothing_however_often_it_is_looked_at(findings: Find) -> None:
    for seed in range(30):
        assert hot_ones(findings(Mixture(engines=4, seed=seed).window())) == []


def test_more_work_that_is_as_mixed_as_before_raises_nothing(findings: Find) -> None:
    mixture = Mixture()
    mixture.fleet.arrivals[1, mixture.fleet.last(60)] *= 6.0
    mixture.tokens[1, mixture.fleet.last(60)] *= 10.0
    assert hot_ones(findings(mixture.window())) == []


def test_all_engines_hot_alike_are_one_finding_on_the_model(findings: Find) -> None:
    found = [one for one in findings(Mixture().hot(0, 1, 2).window()) if one.symptom is Symptom.EXPERTS_HOT]
    assert [one.entity.kind for one in found] == [EntityKind.MODEL]
    assert "on 3 of 3 engines alike" in found[0].evidence[0].says


def test_most_engines_of_a_model_are_enough_for_that(findings: Find) -> None:
    assert hot_ones(findings(Mixture(engines=5).hot(0, 1, 3).window())) == ["model/m-0"]


def test_a_moment_is_not_enough(findings: Find) -> None:
    assert hot_ones(findings(Mixture().hot(1, seconds=12.0).window())) == []


def test_few_tokens_say_nothing(findings: Find) -> None:
    mixture = Mixture().hot(1)
    mixture.tokens[1] = 3.0
    assert hot_ones(findings(mixture.window())) == []


def test_a_model_that_is_uneven_by_nature_is_not_hot(findings: Find) -> None:
    mixture = Mixture()
    mixture.imbalance *= 3.0
    assert hot_ones(findings(mixture.window())) == []


def test_a_long_hot_time_does_not_become_the_norm(findings: Find) -> None:
    assert hot_ones(findings(Mixture(seconds=600.0).hot(1, seconds=400.0).window())) == ["engine/e-1"]


def test_an_engine_that_was_hot_when_it_was_first_seen_is_found_by_its_peers(findings: Find) -> None:
    assert hot_ones(findings(Mixture(seconds=40.0).hot(1, seconds=40.0).window())) == ["engine/e-1"]


def test_an_engine_without_peers_is_held_against_its_past(findings: Find) -> None:
    assert hot_ones(findings(Mixture(engines=1).hot(0).window())) == ["engine/e-0"]


def test_a_fleet_without_experts_is_not_looked_at(findings: Find) -> None:
    assert hot_ones(findings(Fleet().window())) == []
