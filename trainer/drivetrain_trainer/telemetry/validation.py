"""One report, checked against the metric schema before anything else sees it."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import TYPE_CHECKING

from drivetrain_api.metrics import Metric, MetricSchema, Owner, Quantity, UnknownMetricError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from drivetrain_api.algorithms import AlgoName

Values = Mapping[str, float | Quantity]
"""Tag -> value in the schema's unit, or with a unit that is checked."""
Part = Mapping[Owner, Values]
"""What was measured, by whoever measured it."""


class MetricReportError(ValueError):
    """A report that breaks the metric schema; a defect of whoever submitted it."""


class DuplicateMetricError(MetricReportError):
    """A tag that two parts of one report both hold."""


class MetricOwnerError(MetricReportError):
    """A tag that somebody else submits."""


class LoggerOwnedMetricError(MetricOwnerError):
    """A tag that the training logger writes itself."""


class MetricUnitError(MetricReportError):
    """A quantity of another unit than the tag's."""


class MetricValueError(MetricReportError):
    """A value that is no number."""


class ReportValidator:
    """Merges the parts of a report; remembers the schema's answer for each tag.

    NaN and infinities are numbers: a diverged loss is news and is passed on as it is.
    """

    def __init__(self, schema: MetricSchema, algo: AlgoName) -> None:
        self._schema = schema
        self._algo = algo
        self._metrics: dict[str, Metric] = {}

    def merge(self, parts: Iterable[Part]) -> dict[str, float]:
        """All parts in one mapping.

        Raises:
            UnknownMetricError: for a tag outside the schema, or of another algorithm.
            DuplicateMetricError: for a tag that is there twice.
            LoggerOwnedMetricError: for a tag that the logger writes itself.
            MetricOwnerError: for a tag of somebody else.
            MetricUnitError: for a quantity of another unit.
            MetricValueError: for anything but an int or a float.
        """
        merged: dict[str, float] = {}
        for part in parts:
            for owner, values in part.items():
                for tag, value in values.items():
                    number = self._checked(owner, tag, value)
                    if tag in merged:
                        raise DuplicateMetricError(
                            f"metric {tag!r} is submitted twice in one report"
                        )
                    merged[tag] = number
        return merged

    def metric(self, tag: str) -> Metric:
        """The schema's row for a tag that may be submitted.

        Raises:
            UnknownMetricError: as for `merge`.
            LoggerOwnedMetricError: as for `merge`.
        """
        found = self._metrics.get(tag)
        if found is None:
            found = self._metrics[tag] = self._lookup(tag)
        return found

    def _lookup(self, tag: str) -> Metric:
        metric = self._schema.lookup(tag)
        if metric.owner is Owner.LOGGER:
            raise LoggerOwnedMetricError(f"metric {tag!r} is written by the logger itself")
        if self._algo not in metric.algorithms:
            owners = ", ".join(sorted(metric.algorithms))
            raise UnknownMetricError(f"metric {tag!r} belongs to {owners}, not to {self._algo}")
        return metric

    def _checked(self, owner: Owner, tag: str, value: object) -> float:
        metric = self.metric(tag)
        if metric.owner != owner:
            raise MetricOwnerError(
                f"metric {tag!r} is submitted by the {metric.owner}, not by the {owner}"
            )
        if isinstance(value, Quantity):
            if value.unit is not metric.unit:
                raise MetricUnitError(
                    f"metric {tag!r} is in {metric.unit}; got {value.value!r} {value.unit}"
                )
            value = value.value
        if isinstance(value, bool) or not isinstance(value, Real):
            raise MetricValueError(
                f"metric {tag!r} is {value!r} ({type(value).__name__}); "
                "submit an int or a float (fetch a tensor's value once, with .item())"
            )
        return float(value)
