"""A suite expanded into members, and each of them composed and checked."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from drivetrain_api import labels
from drivetrain_api.algorithms import ALGO_LOG_NAMES
from drivetrain_api.artifacts.suite_record import SuiteMember
from drivetrain_api.base import API_VERSION, KIND
from drivetrain_api.errors import SpecError, Violation
from drivetrain_api.overrides import apply_overrides
from drivetrain_api.suite import MAX_MEMBERS, MAX_SEEDS
from drivetrain_operator.cli.making import checked
from drivetrain_operator.cli.refusal import Refusal
from drivetrain_operator.suite.search import (
    DEFAULT,
    short_hash,
    variants_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from drivetrain_api.tasks import TaskSpec
    from drivetrain_api.trainingrun import TrainingRun, TrainingRunSpec
    from drivetrain_operator.suite.search import Variant
    from drivetrain_operator.suite.suite_file import SuiteFile

NAME_LIMIT: Final = 50
"""Characters of a TrainingRun's name."""
_NUMBER: Final = len(f"-s{MAX_SEEDS - 1}")
"""Characters of the run index in a member's name."""
_NAMED: Final = 3
"""Members that an error names; the others are counted."""
_UNCHECKED: Final = "unchecked"
"""Stands for the invocation while the suite is checked."""
RESULT_SECTIONS: Final = (
    "algo",
    "task",
    "sim",
    "seed",
    "env",
    "training",
    "evaluator",
    "checkpoint",
    "topology",
    "experiment",
)
"""Sections of a spec that decide what is trained; the others decide where and how."""


@dataclass(frozen=True)
class Checked:
    """A member that nothing speaks against, wherever it may run."""

    member: SuiteMember
    run: TrainingRun
    document: Mapping[str, Any]
    """Its manifest."""
    task: TaskSpec
    composed: TrainingRunSpec

    @property
    def digest(self) -> str:
        """SHA-256 of what decides its result; see `spec_digest`."""
        return spec_digest(self.composed)


@dataclass(frozen=True)
class _Draft:
    """What a member's manifest is made of: its algorithm and task are known once it is read."""

    name: str
    variant: str
    overrides: Mapping[str, Any]
    seed: int
    run_idx: int
    run_directory: str

    @classmethod
    def of(cls, member: SuiteMember) -> _Draft:
        return cls(
            member.name,
            member.variant,
            member.overrides,
            member.seed,
            member.run_idx,
            member.run_directory,
        )


def spec_digest(composed: TrainingRunSpec) -> str:
    """SHA-256 of `RESULT_SECTIONS` of a composed spec."""
    content = composed.model_dump(mode="json", include=set(RESULT_SECTIONS))
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def outline(file: SuiteFile) -> tuple[SuiteMember, ...]:
    """The members, none of them started: variant by variant, the seeds of each in order.

    Raises:
        Refusal: where the search, a name or a variant's configuration is not possible.
    """
    try:
        variants = variants_of(file.suite.spec)
        names = _names(file.name, variants)
    except SpecError as error:
        raise Refusal([f"{file.source.place(v.path)}: {v}" for v in error.violations]) from None
    seeds = file.suite.spec.seed_list
    if len(variants) * len(seeds) > MAX_MEMBERS:
        words = f"{len(variants)} variants x {len(seeds)} seeds are more than {MAX_MEMBERS} members"
        raise Refusal([f"{file.source.source}: {words}"])
    specs = _variant_specs(file, variants, names)
    members = []
    for variant in variants:
        spec = specs[variant.name]
        folder = PurePosixPath(ALGO_LOG_NAMES[spec.algo.name], spec.task.name)
        if len(variants) > 1:
            folder = variant.name / folder
        members += [
            SuiteMember(
                name=f"{names[variant.name]}-s{index}",
                variant=variant.name,
                overrides=dict(variant.overrides),
                seed=seed,
                run_idx=index,
                algo=spec.algo.name,
                task=spec.task.name,
                run_directory=str(folder / f"run_{index}_seed_{seed}"),
            )
            for index, seed in enumerate(seeds)
        ]
    return tuple(members)


def check(
    file: SuiteFile,
    members: Iterable[SuiteMember],
    invocation: str,
    namespace: str | None = None,
) -> tuple[Checked, ...]:
    """Each member's manifest, composed and checked as `drivetrain run` does it.

    Raises:
        Refusal: with everything that is wrong, and in which members.
    """
    kept = tuple(members)
    found = _judged(file, [_Draft.of(member) for member in kept], invocation, namespace)
    return tuple(Checked(member, *parts) for member, parts in zip(kept, found, strict=True))


def refusal_line(
    file: SuiteFile, violation: Violation, members: Sequence[SuiteMember | _Draft]
) -> str:
    """``place: members: path: message``."""
    path = violation.path
    searched = any(
        path == key or path.startswith(f"{key}.") for m in members for key in m.overrides
    )
    place = file.source.source if searched else file.template_source.place(path)
    named = ", ".join(member.name for member in members[:_NAMED])
    more = f" and {len(members) - _NAMED} more" if len(members) > _NAMED else ""
    words = "member" if len(members) == 1 else "members"
    return f"{place}: {words} {named}{more}: {violation}"


_Parts = tuple["TrainingRun", "Mapping[str, Any]", "TaskSpec", "TrainingRunSpec"]


def _judged(
    file: SuiteFile, drafts: Iterable[_Draft], invocation: str, namespace: str | None
) -> list[_Parts]:
    """Run, manifest, task and composed spec of each.

    Raises:
        Refusal: as `check`.
    """
    found: list[_Parts] = []
    refused: dict[Violation, list[_Draft]] = defaultdict(list)
    for draft in drafts:
        try:
            document = _document(file, draft, invocation, namespace)
            run, task, composed = checked(document)
        except SpecError as error:
            for violation in error.violations:
                refused[violation].append(draft)
        else:
            found.append((run, document, task, composed))
    if refused:
        raise Refusal([refusal_line(file, v, of) for v, of in refused.items()])
    return found


def _document(
    file: SuiteFile, member: _Draft, invocation: str, namespace: str | None
) -> Mapping[str, Any]:
    """A member's manifest."""
    metadata: dict[str, Any] = {
        "name": member.name,
        "labels": {
            **file.suite.metadata.labels,
            labels.SUITE: file.name,
            labels.VARIANT: member.variant,
            labels.RUN_IDX: str(member.run_idx),
        },
    }
    if namespace is not None:
        metadata["namespace"] = namespace
    experiment = {"suite": file.name, "runIdx": member.run_idx, "invocation": invocation}
    own = {
        "seed": member.seed,
        "training.log_dir": str(PurePosixPath(file.suite.root, member.run_directory)),
        "experiment": experiment,
    }
    base = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": dict(file.template),
    }
    texts = [f"{path}={json.dumps(value)}" for path, value in {**member.overrides, **own}.items()]
    return apply_overrides(base, texts)


def _variant_specs(
    file: SuiteFile, variants: Sequence[Variant], names: Mapping[str, str]
) -> Mapping[str, TrainingRunSpec]:
    """Composed spec of each variant's first member, its folder still to be decided.

    Raises:
        Refusal: a variant is not possible, or two of them are one and the same.
    """
    seed = file.suite.spec.seed_list[0]
    drafts = [
        _Draft(f"{names[v.name]}-s0", v.name, v.overrides, seed, 0, "draft") for v in variants
    ]
    judged = _judged(file, drafts, _UNCHECKED, None)
    specs = {draft.variant: parts[3] for draft, parts in zip(drafts, judged, strict=True)}
    alike: dict[str, list[str]] = defaultdict(list)
    for name, spec in specs.items():
        alike[spec_digest(spec)].append(name)
    twins = [
        f"{file.source.source}: variants {' and '.join(same)} amount to the same configuration"
        for same in alike.values()
        if len(same) > 1
    ]
    if twins:
        raise Refusal(twins)
    return specs


def _names(suite: str, variants: Sequence[Variant]) -> Mapping[str, str]:
    """Name of each variant -> what its members' names begin with.

    Raises:
        SpecError: they would be longer than a TrainingRun's name may be.
    """
    slugs = dict(_slugs(suite, variants))
    repeated = {slug for slug, count in Counter(slugs.values()).items() if count > 1}
    stems = {}
    for variant in variants:
        slug = slugs[variant.name]
        if slug in repeated:
            slug = f"v{short_hash(variant.overrides)}"
        stems[variant.name] = f"{suite}-{slug}" if slug else suite
    longest = max(stems.values(), key=len)
    over = len(longest) + _NUMBER - NAME_LIMIT
    if over > 0:
        words = (
            f"{suite!r} has {len(suite)} characters, and names of its members such as "
            f"{longest}-s0 would have up to {len(longest) + _NUMBER}; at most {NAME_LIMIT} are "
            f"allowed: shorten it to {len(suite) - over}"
        )
        raise SpecError((Violation("metadata.name", words),))
    return stems


def _slugs(suite: str, variants: Sequence[Variant]) -> Iterator[tuple[str, str]]:
    for variant in variants:
        if variant.name == DEFAULT and len(variants) == 1:
            yield variant.name, ""
            continue
        slug = re.sub(r"[^a-z0-9]+", "-", variant.name.lower()).strip("-")
        fits = len(f"{suite}-{slug}") + _NUMBER <= NAME_LIMIT
        yield variant.name, slug if fits else f"v{short_hash(variant.overrides)}"
