"""What an administrator sets: each setting is a flag and an environment variable.

The fields below are the one list of them: flags, variables, bounds, the help text and the
table in the documentation are made from it.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from drivetrain_operator.manifests.settings import Settings as ManifestSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic.fields import FieldInfo

ENV_PREFIX: Final = "DRIVETRAIN_OPERATOR_"
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class LogLevel(StrEnum):
    """The least severe messages that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a log line is written."""

    JSON = "json"
    CONSOLE = "console"


class SettingsError(ValueError):
    """Settings that cannot be worked with; each line names the flag, the value, what is allowed."""


def _namespace_list(value: object) -> object:
    """Names in a comma list, each once; anything but a string is left for the model to judge."""
    if not isinstance(value, str):
        return value
    names = dict.fromkeys(name.strip() for name in value.split(",") if name.strip())
    for name in names:
        if _LABEL.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no namespace name")
    return tuple(names)


Port = Annotated[int, Field(ge=0, le=65_535)]
Namespaces = Annotated[
    tuple[str, ...],
    BeforeValidator(_namespace_list),
    Field(json_schema_extra={"allowed": "names, with commas between"}),
]
Quantity = Annotated[
    str,
    Field(
        pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$",
        json_schema_extra={"allowed": "a quantity such as 512Mi or 2Gi"},
    ),
]


class OperatorSettings(BaseModel):
    """Everything that can be set; a field's description ends with what changing it costs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    namespaces: Namespaces = Field(
        default=(),
        description="Namespaces to work in; empty for the whole cluster. Each one costs five"
        " watches of its own, and needs a Role instead of the ClusterRole.",
    )
    trainer_image: str = Field(
        default=ManifestSettings.image,
        min_length=1,
        description="Image of runs that name none. A change reaches a run with its next attempt.",
    )
    shm_size: Quantity = Field(
        default=ManifestSettings.shm_size,
        description="Size of /dev/shm in a pod. It counts in the trainer's memory limit: more"
        " leaves less for the trainer, too little ends it with a bus error.",
    )
    run_as_user: int = Field(
        default=ManifestSettings.user,
        ge=1,
        le=2**31 - 1,
        description="User, group and fsGroup of the pods. Files of earlier attempts stay with"
        " the user that wrote them: with another one a resume may find them closed.",
    )
    toleration_seconds: int = Field(
        default=ManifestSettings.toleration_seconds,
        ge=0,
        le=86_400,
        description="How long pods stay bound to a node that is not ready. Less restarts for"
        " a short outage of the network, more leaves a lost node's run standing for longer.",
    )
    rendezvous_port: int = Field(
        default=ManifestSettings.rendezvous_port,
        ge=1024,
        le=65_535,
        description="Port by which the ranks find each other. Network policies must let it pass.",
    )
    workers: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Runs that are worked on at the same time. More shortens a burst until the"
        " API server's limits are met, and costs it more requests at once.",
    )
    resync_seconds: int = Field(
        default=300,
        ge=1,
        le=86_400,
        description="How often all TrainingRuns are listed, which finds what a watch missed."
        " Less costs the API server a full list each time; more finds a dead watch later.",
    )
    progress_interval_seconds: int = Field(
        default=10,
        ge=0,
        le=3600,
        description="Shortest time between two status writes that bring newer figures alone."
        " Less costs a write for each run and wakes everybody who watches it; more shows"
        " older figures. Conditions are always written at once.",
    )
    watch_silence_seconds: int = Field(
        default=70,
        ge=5,
        le=3600,
        description="After how long without a word a watch counts as dead and is opened anew."
        " The server says something every 60 s: below that, sound watches are torn down"
        " all the time; more finds a dead one later.",
    )
    stuck_seconds: int = Field(
        default=120,
        ge=1,
        le=3600,
        description="After how long a pass that does not end, or runs that wait while none ends,"
        " make the operator unhealthy. Less restarts it while the API server is merely slow.",
    )
    health_port: Port = Field(
        default=8081,
        description="Port of /livez and /readyz; 0 takes a free one and logs it.",
    )
    metrics_port: Port = Field(
        default=8080,
        description="Port of /metrics; 0 takes a free one and logs it.",
    )
    leader_elect: bool = Field(
        default=True,
        json_schema_extra={"allowed": "true or false"},
        description="Whether a Lease decides who works. Without it two replicas would work"
        " on the same runs at once: only for a single replica that is stopped before the next.",
    )
    lease_namespace: str = Field(
        default="",
        json_schema_extra={"allowed": "a namespace; empty for the operator's own"},
        description="Namespace of the Lease. All replicas must agree on it.",
    )
    lease_name: str = Field(
        default="drivetrain-operator",
        min_length=1,
        max_length=253,
        description="Name of the Lease. Operators that work in different namespaces need"
        " different names, or only one of them works.",
    )
    log_level: LogLevel = Field(
        default=LogLevel.INFO,
        description="The least severe messages that are logged. debug tells of each pass.",
    )
    log_format: LogFormat = Field(
        default=LogFormat.JSON,
        description="json: an object a line, for machines; console: for a person's terminal.",
    )
    kubeconfig: Path | None = Field(
        default=None,
        json_schema_extra={"allowed": "a file"},
        description="Kubeconfig to connect with. Unset: the pod's own account in a cluster,"
        " else $KUBECONFIG, else ~/.kube/config.",
    )
    context: str | None = Field(
        default=None,
        json_schema_extra={"allowed": "a name in the kubeconfig"},
        description="Context of the kubeconfig. Unset: its current one.",
    )

    @property
    def manifests(self) -> ManifestSettings:
        """What the builders of a run's objects take."""
        return ManifestSettings(
            image=self.trainer_image,
            user=self.run_as_user,
            shm_size=self.shm_size,
            toleration_seconds=self.toleration_seconds,
            rendezvous_port=self.rendezvous_port,
        )

    @property
    def watched(self) -> tuple[str | None, ...]:
        """What each watch is opened in: a namespace, or None for the whole cluster."""
        return self.namespaces or (None,)

    @classmethod
    def read(cls, given: Mapping[str, object]) -> OperatorSettings:
        """Settings from flags and variables; what is None was not given.

        Raises:
            SettingsError: a value is not allowed.
        """
        try:
            return cls.model_validate({k: v for k, v in given.items() if v is not None})
        except ValidationError as error:
            lines = (_complaint(cast("str", e["loc"][0]), e["input"]) for e in error.errors())
            raise SettingsError("\n".join(dict.fromkeys(lines))) from error


def flag(name: str) -> str:
    """The flag of a setting."""
    return f"--{name.replace('_', '-')}"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return f"{ENV_PREFIX}{name.upper()}"


def allowed(field: FieldInfo) -> str:
    """The values that a setting takes, in words."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "allowed" in extra:
        return str(extra["allowed"])
    if isinstance(field.annotation, type) and issubclass(field.annotation, StrEnum):
        return " or ".join(field.annotation)
    bounds = {name: value for m in field.metadata for name, value in _bounds(m)}
    if "ge" in bounds:
        return f"{bounds['ge']} to {bounds['le']}"
    return "a name" if "max_length" in bounds else "a text"


def default_text(field: FieldInfo) -> str:
    """The default as it would be written in an environment variable."""
    value = field.default
    if value is None or value == ():
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def settings_table() -> str:
    """The table of all settings for the documentation, as Markdown."""
    lines = ["| Flag | Variable | Default | Allowed | Meaning, and what changing it costs |"]
    lines.append("|---|---|---|---|---|")
    for name, field in OperatorSettings.model_fields.items():
        default = default_text(field)
        cells = (
            f"`{flag(name)}`",
            f"`{variable(name)}`",
            f"`{default}`" if default else "",
            allowed(field),
            field.description,
        )
        lines.append(f"| {' | '.join(str(cell) for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _complaint(name: str, value: object) -> str:
    field = OperatorSettings.model_fields.get(name)
    if field is None:
        return f"there is no setting {name!r}"
    return f"{flag(name)} ({variable(name)}): {value!r} is not allowed; allowed: {allowed(field)}"


def _bounds(constraint: object) -> list[tuple[str, Any]]:
    names = ("ge", "le", "max_length")
    return [(name, getattr(constraint, name)) for name in names if hasattr(constraint, name)]
