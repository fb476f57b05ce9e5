"""What every artifact has in common: snake_case JSON, strict writers, tolerant readers."""

from __future__ import annotations

import json
from typing import Self

from pydantic import ConfigDict, ValidationError

from drivetrain_api.base import ApiModel


class ArtifactError(ValueError):
    """A file that is not the artifact it should be; names the kind and what is wrong."""


class ArtifactModel(ApiModel):
    """Base of the artifacts.

    A writer cannot add a field by accident (unknown ones are refused); a reader tolerates
    those that a later minor version added.
    """

    model_config = ConfigDict(alias_generator=None)

    def to_json(self) -> str:
        """Indented JSON with a final newline, keys in the models' order."""
        return (
            json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False, allow_nan=False)
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read what `to_json` wrote, in this version or a later one that only added fields.

        Raises:
            ArtifactError: naming each field that is missing or wrong.
        """
        try:
            return cls.model_validate_json(text, extra="ignore")
        except ValidationError as error:
            found = "; ".join(
                f"{'.'.join(str(part) for part in detail['loc']) or 'content'}: {detail['msg']}"
                for detail in error.errors(include_url=False)
            )
            raise ArtifactError(f"not a {cls.__name__}: {found}") from error
