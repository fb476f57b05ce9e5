"""A suite of TrainingRuns: one template, its variants, and the seeds of each.

A suite file looks like a manifest (``kind: Suite``) and is read by `parse_suite`; what its
variants and seeds amount to is worked out by `drivetrain suite`. Keys of the search are paths
of the TrainingRun spec, as on the command line of `drivetrain run`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import ConfigDict, Field, JsonValue, ValidationError, model_validator

from drivetrain_api.base import ApiModel, Finite, Name, Path, Seed
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.explain import show

KIND: Final = "Suite"
MAX_SEEDS: Final = 1000
"""Seeds of a suite: a member's number has at most three digits."""
MAX_VARIANTS: Final = 1000
MAX_MEMBERS: Final = 10_000
"""Variants times seeds."""

_UNION_BRANCHES: Final = ("constrained-int", "list[constrained-int]")
"""What pydantic puts into the path of `seeds`, which is one of two kinds."""

SettingPath = Annotated[str, Field(strict=True, min_length=1, max_length=253)]
SearchName = Annotated[
    str,
    Field(
        strict=True,
        min_length=1,
        max_length=63,
        pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
    ),
]
Bound = Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]


class Distribution(ApiModel):
    """Where a random search draws a value from: one of the four."""

    uniform: tuple[Finite, Finite] | None = None
    """Lowest and highest; every value between them is as likely."""
    log_uniform: tuple[Finite, Finite] | None = None
    """Lowest and highest, both above 0; every order of magnitude is as likely."""
    integer: tuple[Bound, Bound] | None = None
    """Lowest and highest whole number, both of them possible."""
    choice: Annotated[list[JsonValue], Field(min_length=1, max_length=MAX_VARIANTS)] | None = None
    """Values of which one is drawn."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise ValueError(f"give one of uniform, logUniform, integer, choice; got {found}")
        for name in ("uniform", "log_uniform", "integer"):
            bounds = getattr(self, name)
            if bounds is not None and bounds[0] >= bounds[1]:
                raise ValueError(f"the lowest value comes first; got {bounds[0]}, {bounds[1]}")
        if self.log_uniform is not None and self.log_uniform[0] <= 0.0:
            raise ValueError(f"logUniform needs values above 0; got {self.log_uniform[0]}")
        if self.uniform is not None and not math.isfinite(self.uniform[1] - self.uniform[0]):
            raise ValueError("uniform spans more than a number holds")
        return self


class ListedVariant(ApiModel):
    """A variant that is written out."""

    name: SearchName
    """Name of its folder and label."""
    overrides: dict[SettingPath, JsonValue] = Field(
        default_factory=dict, alias="set", max_length=64
    )
    """Path of the spec -> value."""


class RandomSearch(ApiModel):
    """Variants that are drawn; more of them leave the first ones as they were."""

    count: Annotated[int, Field(strict=True, ge=1, le=MAX_VARIANTS)]
    """How many."""
    seed: Seed = 0
    """Of the draws; no run's seed."""
    parameters: Annotated[dict[SettingPath, Distribution], Field(min_length=1, max_length=64)]
    """Path of the spec -> where its value is drawn from."""


class SuiteSpec(ApiModel):
    """The spec of a suite."""

    template: dict[str, JsonValue] | None = None
    """The TrainingRun spec that all members share, or `templateFile`."""
    template_file: Path | None = None
    """A TrainingRun manifest beside the suite file, whose spec is the template."""
    root: Path | None = None
    """Folder of the suite's results on the members' storage; `suites/<name>` when unset."""
    seeds: (
        Annotated[int, Field(strict=True, ge=1, le=MAX_SEEDS)]
        | Annotated[list[Seed], Field(min_length=1, max_length=MAX_SEEDS)]
    ) = 1
    """Seeds of each variant: a list, or how many from 0 on."""
    grid: (
        Annotated[
            dict[SettingPath, Annotated[list[JsonValue], Field(min_length=1, max_length=1000)]],
            Field(min_length=1, max_length=64),
        ]
        | None
    ) = None
    """Path of the spec -> values; each combination is a variant."""
    listed: Annotated[list[ListedVariant], Field(min_length=1, max_length=MAX_VARIANTS)] | None = (
        Field(default=None, alias="list")
    )
    """Variants, written out."""
    random: RandomSearch | None = None
    """Variants, drawn."""

    @model_validator(mode="after")
    def _sound(self) -> Self:
        if (self.template is None) == (self.template_file is None):
            raise ValueError("give one of template and templateFile")
        searches = {"grid": self.grid, "list": self.listed, "random": self.random}
        given = [name for name, value in searches.items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other: give one of them")
        if isinstance(self.seeds, list):
            twice = sorted({seed for seed in self.seeds if self.seeds.count(seed) > 1})
            if twice:
                raise ValueError(f"seeds names {', '.join(map(str, twice))} twice")
        return self

    @property
    def seed_list(self) -> tuple[int, ...]:
        """The seeds, by run index."""
        return tuple(range(self.seeds)) if isinstance(self.seeds, int) else tuple(self.seeds)


class SuiteMetadata(ApiModel):
    """The metadata of a suite."""

    model_config = ConfigDict(extra="ignore")

    name: Annotated[
        str,
        Field(strict=True, min_length=1, max_length=50, pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$"),
    ]
    """Name; members' names begin with it, and have at most 50 characters."""
    namespace: Name | None = None
    """Namespace of its TrainingRuns on a cluster."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels of each TrainingRun."""


class Suite(ApiModel):
    """A suite file."""

    api_version: Literal["drivetrain.dev/v1alpha1"] = "drivetrain.dev/v1alpha1"
    """drivetrain.dev/v1alpha1."""
    kind: Literal["Suite"]
    """Suite."""
    metadata: SuiteMetadata
    """Name and labels."""
    spec: SuiteSpec
    """Template, seeds, search."""

    @property
    def root(self) -> str:
        """Folder of the results, relative to the members' storage where it is relative."""
        return self.spec.root or f"suites/{self.metadata.name}"


def parse_suite(document: Mapping[str, Any]) -> Suite:
    """A suite from a document with keys in camelCase or snake_case.

    Raises:
        SpecError: with the path, the value and what is allowed of each refusal.
    """
    try:
        return Suite.model_validate(dict(document))
    except ValidationError as error:
        found: dict[str, Violation] = {}
        for detail in error.errors(include_url=False):
            if _UNION_BRANCHES[0] in detail["loc"] and isinstance(detail["input"], list):
                continue  # the other branch tells what is wrong with the list
            path = ".".join(str(part) for part in detail["loc"] if part not in _UNION_BRANCHES)
            words = detail["msg"].removeprefix("Value error, ")
            got = (
                ""
                if detail["type"] in ("missing", "value_error")
                else f"; got {show(detail['input'])}"
            )
            found.setdefault(path, Violation(path, f"{words}{got}"))
        raise SpecError(tuple(found.values())) from None
