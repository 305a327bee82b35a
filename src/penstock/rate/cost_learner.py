"""Learns the cost of batches in the presence of noise, drift, outliers and steps.

Each batch is judged in turn:

- It fits the model: the model learns from it.
- It is a surprise (3 standard deviations off): either an outlier, such as a pause of the machine,
  or the job has changed. A *rival* model is created that fits the batch. The next batch that can
  distinguish the two models decides which one stays.
- Surprises that are not outliers, but all have the same sign, show an error of the model: its
  uncertainty is raised, so that it adapts quickly.

The noise of batches is learned as well, from the variance of the surprises.

Prior art: Kalman filters with innovation gating, and with fading memory.
"""

from __future__ import annotations

import math

from penstock.rate.cost_model import CostModel

_SURPRISE_SD = 3.0
_LEARNING_BATCHES = 3
"""A model of fewer batches gives way to a faster batch (a cold start)."""
_FIRST_NOISE, _MIN_NOISE, _MAX_NOISE = 0.1, 0.02, 0.3
_NOISE_MEMORY = 0.9
_BIAS_MEMORY = 0.7
_MAX_BIAS = 1.0
"""Surprises of this average size in one direction are not noise."""


class CostLearner:
    """A cost model that follows the batches.

    Args:
        batch_interval_ms: length of a batch.
    """

    def __init__(self, batch_interval_ms: float) -> None:
        self._interval_ms = batch_interval_ms
        self.model: CostModel | None = None
        """The current model; None before the first batch."""
        self.rival: CostModel | None = None
        """The model in case the last surprise was a change and not an outlier."""
        self.learned = 0
        """The number of batches that the model has learned from."""
        self.noise = _FIRST_NOISE
        """Standard deviation of batch times, relative to them."""
        self._bias = 0.0  # mean of the last surprises: how far the model lags behind

    def learn(self, count: int, delay_ms: int, *, used_limit: bool) -> None:
        """Learn from a finished batch.

        Args:
            count: how many records it had, above 0.
            delay_ms: its processing delay, above 0.
            used_limit: whether its size was close to its limit.
        """
        if self.model is None:
            self._adopt(CostModel.first(count, delay_ms, self.noise), batches=1)
            return
        if self.rival is not None:
            kept = self._settle(self.model, self.rival, count, delay_ms, used_limit)
            if kept is None:
                return
            self.model, self.rival = kept, None
        self._update(self.model, count, delay_ms)

    def _settle(
        self, model: CostModel, rival: CostModel, count: int, delay_ms: int, used_limit: bool
    ) -> CostModel | None:
        """Choose between the model and its rival by a batch; None if it cannot decide.

        A small batch may say nothing about the cost of a larger one: it fits both models. A batch
        that used its limit has the relevant size, so it decides.
        """
        expected_ms, rival_ms = model.predict_ms(count), rival.predict_ms(count)
        alike = abs(math.log(expected_ms / rival_ms)) < _SURPRISE_SD * self.noise
        fits = abs(model.surprise(count, delay_ms, self.noise)) <= _SURPRISE_SD
        if alike and fits and not used_limit:
            return None
        if abs(math.log(delay_ms / expected_ms)) <= abs(math.log(delay_ms / rival_ms)):
            return model
        self._bias = 0.0
        self.learned = _LEARNING_BATCHES
        return rival

    def _update(self, model: CostModel, count: int, delay_ms: int) -> None:
        """Let the model learn from a batch, or create a rival if it does not fit."""
        aged = model.aged(self._interval_ms)
        if abs(self._bias) > _MAX_BIAS:
            aged, self._bias = aged.doubted(self._interval_ms), 0.0
        learned = aged.updated(count, delay_ms, self.noise)
        surprise = aged.surprise(count, delay_ms, self.noise)
        # Costs may not be negative, so even an uncertain model can fail to adapt.
        left = (delay_ms - learned.predict_ms(count)) / learned.noise_ms(count, self.noise)
        if max(abs(surprise), abs(left)) <= _SURPRISE_SD:
            self._learn_noise(surprise)
            self._adopt(learned, batches=self.learned + 1)
            return
        self._learn_noise(math.copysign(_SURPRISE_SD, surprise))
        if surprise < 0 and self.learned < _LEARNING_BATCHES:
            self._adopt(CostModel.first(count, delay_ms, self.noise), batches=1)
            return
        self.rival = aged.doubted(self._interval_ms).updated(count, delay_ms, self.noise)

    def _adopt(self, model: CostModel, *, batches: int) -> None:
        self.model, self.learned = model, batches

    def _learn_noise(self, surprise: float) -> None:
        """Update noise and bias; a surprise of 1 equals the noise so far."""
        scatter = (surprise - self._bias) ** 2
        noise = self.noise * math.sqrt(_NOISE_MEMORY + (1 - _NOISE_MEMORY) * scatter)
        self.noise = min(max(noise, _MIN_NOISE), _MAX_NOISE)
        self._bias = _BIAS_MEMORY * self._bias + (1 - _BIAS_MEMORY) * surprise
