"""The frozen model base and the named, bounded scalar types of the contract.

Every field of the contract uses one of these types, so that a boolean is never taken
for an integer, ``"1"`` never for ``1``, and NaN never for a number.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP = "drivetrain.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "TrainingRun"

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


class ApiModel(BaseModel):
    """Frozen, unknown keys refused; snake_case in Python, camelCase on the wire."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        use_attribute_docstrings=True,
        protected_namespaces=(),
    )


def _no_number(value: object) -> object:
    if isinstance(value, int | float):
        raise ValueError("must be a date and time of ISO 8601, not a number")  # noqa: TRY004 - content
    return value


AnyInt = Annotated[int, Field(strict=True, ge=-(2**63), le=INT64_MAX)]
PositiveInt = Annotated[int, Field(strict=True, ge=1, le=INT32_MAX)]
NonNegativeInt = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
StepCount = Annotated[int, Field(strict=True, ge=1, le=INT64_MAX)]
StepOffset = Annotated[int, Field(strict=True, ge=0, le=INT64_MAX)]
Seed = Annotated[int, Field(strict=True, ge=0, le=2**32 - 1)]
Seconds = Annotated[int, Field(strict=True, ge=0, le=INT32_MAX)]
Flag = Annotated[bool, Field(strict=True)]
Finite = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Probability = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0, le=1.0)]
LearningRate = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0, le=1.0)]
PositiveFloat = Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0.0, le=1e9)]
NonNegativeFloat = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0, le=1e9)]
SignedFloat = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=-1e9, le=1e9)]
Measure = Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0.0)]
Moment = Annotated[datetime, BeforeValidator(_no_number)]
"""A date and time; ISO 8601 in JSON, where a bare number is none."""
ShortText = Annotated[str, Field(strict=True, max_length=253)]
Text = Annotated[str, Field(strict=True, max_length=1024)]
Name = Annotated[str, Field(strict=True, min_length=1, max_length=63)]
Sha256 = Annotated[str, Field(strict=True, max_length=64, pattern=r"^[0-9a-f]{64}$")]
Path = Annotated[str, Field(strict=True, min_length=1, max_length=1024)]
