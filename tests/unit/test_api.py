"""The Python interface reads and refuses settings as the command line does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bgsoft.api
from bgsoft.config import FaceMode, RenderConfig
from bgsoft.errors import ConfigError, OutputError
from tests.face_clips import SAMPLE


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[RenderConfig]:
    """The settings of every render, none of which takes place."""
    seen: list[RenderConfig] = []

    def note(config: RenderConfig, **_options: Any) -> None:
        seen.append(config)

    monkeypatch.setattr(bgsoft.api, "render_config", note)
    return seen


def test_no_subjects_hides_everybody(configs: list[RenderConfig]) -> None:
    bgsoft.api.render("a.mp4", "b.mp4", preset="privacy", subjects=0)
    assert (configs[0].face.mode, configs[0].face.subjects) == (FaceMode.ANONYMIZE, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"face": "guard", "subjects": 0},
        {"face": "off", "subjects": 2},
        {"subjects": 2},
        {"effect": "blur", "background": "red"},
        {"effect": "color", "strength": 5},
    ],
)
def test_an_option_without_effect_is_an_error(
    configs: list[RenderConfig], options: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError):
        bgsoft.api.render("a.mp4", "b.mp4", **options)
    assert not configs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 99}, "strength must be between 0 and 25 % of the frame height, not 99"),
        ({"face": "main", "subjects": 0}, "subjects 0 needs face anonymize, not main"),
        (
            {"overwrite": True, "skip_existing": True},
            "overwrite=True and skip_existing=True exclude each other",
        ),
        ({"start": -1}, "start must be 0 or more seconds, not -1"),
    ],
)
def test_errors_speak_of_keywords(
    configs: list[RenderConfig], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        bgsoft.api.render("a.mp4", "b.mp4", **options)
    assert str(caught.value) == caught.value.args[0] == message


def test_an_existing_output_is_told_of_in_keywords(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.touch()
    with pytest.raises(OutputError, match=r"exists; use overwrite=True to replace it"):
        bgsoft.api.render(SAMPLE, target)
