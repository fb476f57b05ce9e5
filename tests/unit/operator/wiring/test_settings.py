from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.wiring.settings import (
    LogFormat,
    LogLevel,
    OperatorSettings,
    SettingsError,
    default_text,
    flag,
    settings_table,
    variable,
)

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "operations" / "operator.md"
CHART = ROOT / "charts" / "drivetrain" / "templates" / "_environment.tpl"


def test_everything_has_a_default() -> None:
    settings = OperatorSettings.read({})
    assert settings.watched == (None,)
    assert settings.manifests == Settings()


def test_what_was_not_given_keeps_its_default() -> None:
    assert OperatorSettings.read({"workers": None}) == OperatorSettings()


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), ("lab", ("lab",)), (" lab, team-a ,lab,", ("lab", "team-a")), ("a1", ("a1",))],
)
def test_namespaces_are_a_list_with_commas(text: str, names: tuple[str, ...]) -> None:
    settings = OperatorSettings.read({"namespaces": text})
    assert settings.namespaces == names
    assert settings.watched == (names or (None,))


def test_texts_become_what_they_mean() -> None:
    settings = OperatorSettings.read(
        {
            "leader_elect": "false",
            "workers": "3",
            "log_level": "debug",
            "log_format": "console",
            "kubeconfig": "some/file",
        }
    )
    assert settings.leader_elect is False
    assert settings.workers == 3
    assert (settings.log_level, settings.log_format) == (LogLevel.DEBUG, LogFormat.CONSOLE)
    assert settings.kubeconfig == Path("some/file")


def test_the_builders_get_what_was_set() -> None:
    settings = OperatorSettings.read(
        {
            "trainer_image": "registry.example/trainer:2",
            "run_as_user": "7",
            "shm_size": "512Mi",
            "toleration_seconds": "5",
            "rendezvous_port": "2000",
        }
    )
    assert settings.manifests == Settings(
        image="registry.example/trainer:2",
        user=7,
        shm_size="512Mi",
        toleration_seconds=5,
        rendezvous_port=2000,
    )


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("workers", "0", "1 to 64"),
        ("workers", "65", "1 to 64"),
        ("workers", "many", "1 to 64"),
        ("run_as_user", "0", "1 to 2147483647"),
        ("rendezvous_port", "80", "1024 to 65535"),
        ("health_port", "65536", "0 to 65535"),
        ("shm_size", "lots", "a quantity such as 512Mi or 2Gi"),
        ("log_format", "xml", "json or console"),
        ("log_level", "loud", "debug or info or warning or error"),
        ("namespaces", "Lab_1", "names, with commas between"),
        ("namespaces", "a" * 64, "names, with commas between"),
        ("leader_elect", "perhaps", "true or false"),
        ("trainer_image", "", "a text"),
        ("lease_name", "", "a name"),
    ],
)
def test_a_wrong_value_names_flag_value_and_what_is_allowed(
    name: str, value: str, allowed: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        OperatorSettings.read({name: value})
    assert str(caught.value) == (
        f"{flag(name)} ({variable(name)}): {value!r} is not allowed; allowed: {allowed}"
    )


def test_all_wrong_values_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        OperatorSettings.read({"workers": "0", "log_format": "xml"})
    assert [line.split()[0] for line in str(caught.value).splitlines()] == [
        "--workers",
        "--log-format",
    ]


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(SettingsError, match="no setting 'nope'"):
        OperatorSettings.read({"nope": 1})


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        OperatorSettings().workers = 3  # type: ignore[misc]  # that is what is tested


def test_defaults_are_written_as_in_an_environment() -> None:
    fields = OperatorSettings.model_fields
    assert default_text(fields["leader_elect"]) == "true"
    assert default_text(fields["workers"]) == "8"
    assert default_text(fields["log_format"]) == "json"
    assert default_text(fields["namespaces"]) == default_text(fields["context"]) == ""


def test_every_setting_says_what_changing_it_costs() -> None:
    for name, field in OperatorSettings.model_fields.items():
        assert field.description, name
        assert field.description.endswith("."), name


def test_the_page_holds_the_table_of_the_settings() -> None:
    assert settings_table() in PAGE.read_text(encoding="utf-8")


def test_the_chart_sets_every_setting_but_the_connection() -> None:
    """A setting that the chart does not know could not be set by its users."""
    found = set(re.findall(r"name: (DRIVETRAIN_OPERATOR_\w+)", CHART.read_text(encoding="utf-8")))
    known = {variable(name) for name in OperatorSettings.model_fields}
    assert found == known - {variable("kubeconfig"), variable("context")}
