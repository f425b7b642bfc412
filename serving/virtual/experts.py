"""Experts as columns: which share of an engine's tokens goes to which expert, and what an uneven share costs.

A router sends each token to some of its layer's experts. Mixed prompts spread them nearly evenly; prompts that repeat one
token send all of them to the same few. Tokens of one expert are computed by one rank: where experts are spread over ranks,
the rank of a hot one makes the others wait.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from serving.telemetry.experts import HALF_LIFE
from serving.virtual.plan import FleetPlan

Floats = NDArray[np.float64]
Rows = NDArray[np.intp]

UNEVEN = 0.14  # scatter of healthy shares: maximum over mean is then 1.3, as seen on a real two-layer engine with 16 experts
ACTIVE = 2


class Experts:
    """`repeated`: the share of each engine's tokens that repeat one another. `spread`: how many ranks share the experts."""

    def __init__(self, plan: FleetPlan, rng: np.random.Generator) -> None:
        rows = len(plan.engine_names)
        models = [plan.models[number] for number in plan.engine_model.tolist()]
        self.count = max(1, *(model.experts for model in models))
        self.present = np.array([model.experts > 0 for model in models])
        self.repeated = np.zeros(rows)
        self.spread = np.array([max(1, model.tp) for model in models], dtype=np.float64)
        self.balanced = np.zeros(rows, dtype=np.bool_)  # hot experts were given replicas
        even = 1.0 + rng.uniform(-UNEVEN, UNEVEN * 2, (rows, self.count))
        self._usual = even / even.sum(axis=1, keepdims=True)
        hot = np.zeros((rows, self.count))
        np.put_along_axis(
            hot, rng.permuted(np.tile(np.arange(self.count), (rows, 1)), axis=1)[:, :ACTIVE], 1.0 / ACTIVE, axis=1
        )
        self._hot = hot
        self.tokens = np.zeros((rows, self.count))
        self.rebalance_seconds = np.zeros(rows)  # how long the last rebalance stopped the engine
        self._lately = np.zeros((rows, self.count))

    def shares(self) -> Floats:
        """The share of tokens of each expert, (engines, experts). Replicas of a hot one share its tokens evenly."""
        repeated = np.where(self.balanced, 0.0, self.repeated)[:, None]
        return np.asarray((1.0 - repeated) * self._usual + repeated * self._hot)

    def imbalance(self) -> Floats:
        """Maximum over mean of the shares."""
        return np.asarray(self.shares().max(axis=1) * self.count)

    def slowdown(self) -> Floats:
        """How many times as long a step takes: the rank of the hottest expert against an even share."""
        if not self.present.any():
            return np.ones(len(self.repeated))
        excess = np.where(self.balanced, 0.0, np.maximum(self.imbalance() - 1.5, 0.0))
        return np.where(self.present & (self.spread > 1), 1.0 + 0.25 * excess, 1.0)

    def tick(self, tokens: Floats, seconds: float) -> None:
        """Count the tokens of a tick that lasted so long."""
        if self.present.any():
            counted = (tokens * ACTIVE)[:, None] * self.shares()
            self.tokens += counted
            self._lately = self._lately * 0.5 ** (seconds / HALF_LIFE) + counted

    def forget(self, rows: Rows) -> None:
        """A new process counts anew."""
        self.tokens[rows] = self._lately[rows] = self.rebalance_seconds[rows] = 0.0
        self.balanced[rows] = False

    def shown(self) -> Mapping[str, Floats]:
        """The signals that the counters reduce to, as serving.telemetry.experts reduces them. Empty without experts."""
        if not self.present.any():
            return {}
        total = self._lately.sum(axis=1)
        counting = self.present & (total > 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            uneven = self._lately.max(axis=1) * self.count / total
        return {
            "experts.tokens": np.where(self.present, self.tokens.sum(axis=1), np.nan),
            "experts.imbalance": np.where(counting, uneven, np.nan),
            "experts.per_expert": np.where(counting, total / self.count, np.nan),
            "experts.layer": np.where(counting, 0.0, np.nan),
            "experts.expert": np.where(counting, self._lately.argmax(axis=1).astype(np.float64), np.nan),
            "experts.balancing": np.where(self.present, 1.0, np.nan),
            "experts.rebalance_seconds": np.where(self.present, self.rebalance_seconds, np.nan),
        }
