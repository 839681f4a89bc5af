"""The Python interface reads and refuses settings as the command line does."""

from __future__ import annotations

from typing import Any

import pytest

import bgsoft.api
from bgsoft.config import FaceMode, RenderConfig
from bgsoft.errors import ConfigError


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
