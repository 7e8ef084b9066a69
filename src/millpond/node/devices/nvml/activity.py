"""How much of a card works: its multiprocessors and its tensor cores, as GPM of NVML counts from Hopper on.

What drivers call utilisation is full as soon as one small kernel runs; these two are not. NVIDIA names them "SM
activity" and "tensor activity" ("NVML API Reference", GPM Functions). The driver counts between two samples, so a
figure is a mean over the last ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from millpond.node.devices.nvml.library import Nvml

_EVERY_S: Final = 10.0
_METRICS: Final = (2, 5)
"""``NVML_GPM_METRIC_SM_UTIL`` and ``NVML_GPM_METRIC_ANY_TENSOR_UTIL`` of nvml.h, in percent."""


class CardActivity(NamedTuple):
    """Parts of the time, 0 to 1000, in which multiprocessors and tensor cores worked, as a mean over them all."""

    sm_milli: int | None = None
    tensor_milli: int | None = None


UNKNOWN: Final = CardActivity()


@dataclass(slots=True)
class _SampledCard:
    """Two samples of the driver, of which the first was taken last."""

    samples: list[Any]
    taken_at: float
    activity: CardActivity = UNKNOWN


class ActivityMeter:
    """Asks for the activity of the same cards again and again."""

    def __init__(self, nvml: Nvml) -> None:
        self._nvml = nvml
        self._cards: dict[str, _SampledCard | None] = {}

    def of(self, uuid: str, handle: Any, now: float) -> CardActivity:
        """Up to ten seconds old; unknown at first, and where the driver does not count it."""
        if uuid not in self._cards:
            self._cards[uuid] = self._first(handle, now)
        card = self._cards[uuid]
        if card is None:
            return UNKNOWN
        if now - card.taken_at >= _EVERY_S:
            self._take(card, handle, now)
        return card.activity

    def _first(self, handle: Any, now: float) -> _SampledCard | None:
        support = self._nvml.ask("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return None
        samples = [self._nvml.ask("nvmlGpmSampleAlloc") for _ in range(2)]
        if None in samples or self._nvml.ask("nvmlGpmSampleGet", handle, samples[0]) is None:
            return None
        return _SampledCard(samples, now)

    def _take(self, card: _SampledCard, handle: Any, now: float) -> None:
        before, after = card.samples
        card.taken_at, card.activity = now, UNKNOWN
        if self._nvml.ask("nvmlGpmSampleGet", handle, after) is None:
            return
        card.samples.reverse()
        card.activity = self._between(before, after)

    def _between(self, before: Any, after: Any) -> CardActivity:
        module = self._nvml.module
        question = module.c_nvmlGpmMetricsGet_t(
            version=module.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(_METRICS), sample1=before, sample2=after
        )
        for place, metric in enumerate(_METRICS):
            question.metrics[place].metricId = metric
        answer = self._nvml.ask("nvmlGpmMetricsGet", question)
        if answer is None:
            return UNKNOWN
        told = [answer.metrics[place] for place in range(len(_METRICS))]
        return CardActivity(*(None if each.nvmlReturn else round(each.value * 10) for each in told))
