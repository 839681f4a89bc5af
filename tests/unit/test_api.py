"""The Python interface reads and rejects settings as the command line does."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bgsoft.api
from bgsoft.errors import ConfigError, OutputError
from bgsoft.rendering.without_effect import REASONS
from bgsoft.settings.config import FaceMode, RenderConfig
from bgsoft.settings.options import OPTIONS
from tests.face_clips import SAMPLE
from tests.processes import ROOT, run_python


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[RenderConfig]:
    """The settings of every render, none of which takes place."""
    seen: list[RenderConfig] = []
    monkeypatch.setattr(bgsoft.api, "render_config", lambda config, **_: seen.append(config))
    return seen


@pytest.mark.parametrize("name", ["errors.BgsoftError", "live.Reader"])
def test_one_import_is_enough(name: str) -> None:
    run_python("-c", f"import bgsoft; bgsoft.{name}", check=True)


def test_keywords_are_the_settings_that_are_declared() -> None:
    run_python("scripts/make_keywords.py", "--check", cwd=ROOT, check=True)


def test_settings_say_when_they_change_nothing() -> None:
    declared = {key for option in OPTIONS.values() for key in option.setting.without_effect}
    assert declared == set(REASONS)


def test_values_are_read_as_on_the_command_line(configs: list[RenderConfig]) -> None:
    bgsoft.api.render("a.mp4", "b.mp4", preset="privacy", subjects=0, start="1:02.5", trace="t")
    bgsoft.api.render("a.mp4", "b.mp4", background=Path("sea.jpg"), similarity="off")
    bgsoft.api.render("a.mp4", "b.mp4", preset=None, face="off", effect="DIM", strength=7)
    first, second, third = configs
    assert (first.face.mode, first.face.subjects) == (FaceMode.ANONYMIZE, 0)
    assert (first.start_seconds, first.trace) == (62.5, Path("t"))
    assert (second.effect.kind, second.effect.background) == ("image", "sea.jpg")
    assert second.segment.similarity_db is None
    assert (third.face.mode, third.effect.kind, third.effect.strength) == ("off", "dim", 7.0)


def test_a_switch_of_a_preset_can_be_taken_back(
    configs: list[RenderConfig], tmp_path: Path
) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text("[face]\nsmall_faces = true\n")
    for given in (None, True, False):
        bgsoft.api.render("a.mp4", "b.mp4", preset=str(preset), small_faces=given)
    assert [config.face.small_faces for config in configs] == [True, True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 99}, "strength must be between 0 and 25 % of the frame height, not 99"),
        ({"expand": -9}, "expand must be between -5 and 5 % of the frame height, not -9"),
        ({"mask_every": 2.0}, "cannot use mask_every 2.0: it must be a whole number"),
        ({"mask_every": "2"}, "cannot use mask_every '2': it must be a whole number"),
        (
            {"face": "main", "subjects": 0},
            "cannot use subjects 0 with face main: it needs face anonymize",
        ),
        ({"start": -1}, "start must be 0 or more seconds, not -1"),
        (
            {"effect": "blur", "background": "red"},
            "cannot use background with effect blur: it has no effect; it needs effect color,"
            " image or video, or no effect at all",
        ),
        (
            {"overwrite": True, "skip_existing": True},
            "cannot combine overwrite=True and skip_existing=True: choose one of them",
        ),
    ],
)
def test_errors_speak_of_keywords(
    configs: list[RenderConfig], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        bgsoft.api.render("a.mp4", "b.mp4", **options)
    assert str(caught.value) == caught.value.args[0] == message
    assert not configs


def test_an_empty_name_is_not_the_current_folder(configs: list[RenderConfig]) -> None:
    for output, options, label in (
        ("", {}, "the output's name"),
        ("b.mp4", {"matte_in": ""}, "matte_in"),
        ("b.mp4", {"report": ""}, "report"),
    ):
        with pytest.raises(ConfigError, match=f"^{label} must not be empty$"):
            bgsoft.api.render("a.mp4", output, **options)
    for call in (lambda: bgsoft.api.render("", "b.mp4"), lambda: bgsoft.api.frames("")):
        with pytest.raises(ConfigError, match=r"the input's name must not be empty"):
            call()
    assert not configs


def test_a_misspelled_keyword_is_an_error(configs: list[RenderConfig]) -> None:
    with pytest.raises(TypeError, match=r"no keyword 'stregth'; did you mean strength\?"):
        bgsoft.api.render("a.mp4", "b.mp4", stregth=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="choose from") as caught:
        bgsoft.api.render("a.mp4", "b.mp4", zzz=3)  # type: ignore[call-arg]
    names = str(caught.value).partition("choose from ")[2].rstrip(")").split(", ")
    assert len(names) > 20
    assert names == sorted(names)
    assert not configs


def test_an_existing_output_is_reported_in_keywords(tmp_path: Path) -> None:
    target = tmp_path / "out.mp4"
    target.touch()
    with pytest.raises(OutputError, match=r"exists; use overwrite=True to replace it"):
        bgsoft.api.render(SAMPLE, target)


NEW_SETTING = """
import importlib.util, sys
from pathlib import Path

path = Path(sys.argv.pop(1))
line = '    refine: Refine = setting('
new = '    grain: float = setting(0.25, "Grain in {range}.", range=(0, 2), without_effect=("obs",))'
source = path.read_text().replace(line, new + chr(10) + line)
spec = importlib.util.spec_from_file_location("bgsoft.settings.config", path)
module = importlib.util.module_from_spec(spec)
sys.modules["bgsoft.settings.config"] = module
exec(compile(source, path, "exec"), module.__dict__)

from bgsoft.cli.main import main
for argv in sys.argv[1:]:
    print("exit", main(argv.split()), flush=True)
"""


def test_a_new_setting_is_one_line(tmp_path: Path) -> None:
    cases = [
        ("render --help-all", 0, "--grain N Grain in 0 to 2. [default: 0.25]"),
        ("preview --help-all", 0, "--grain N Grain in 0 to 2. [default: 0.25]"),
        ("render a b.mp4 --grain 3", 2, "--grain must be between 0 and 2, not 3"),
        ("render a b.mp4 --grain 1 --preset obs", 2, "--grain with the binary"),
        ("presets show mine.toml --all", 0, "grain = 1.5"),
        ("presets show bad.toml", 2, "bad.toml: matte.grain must be between 0 and 2, not 9"),
    ]
    (tmp_path / "mine.toml").write_text("[matte]\ngrain = 1.5\n")
    (tmp_path / "bad.toml").write_text("[matte]\ngrain = 9\n")
    config = ROOT / "bgsoft" / "settings" / "config.py"
    commands = [command for command, _, _ in cases]
    done = run_python("-c", NEW_SETTING, config, *commands, cwd=tmp_path, stderr=subprocess.STDOUT)
    *told, left = re.split(r"^exit (\d)\n", done.stdout, flags=re.MULTILINE)
    assert left == ""
    for (_, code, words), text, found in zip(cases, told[::2], told[1::2], strict=True):
        assert int(found) == code, text
        assert words in " ".join(text.split())


def test_other_types_of_numbers_texts_and_paths(
    configs: list[RenderConfig], tmp_path: Path
) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text("[matte]\nfeather_pct = 3\n")
    text = type("Text", (str,), {})
    bgsoft.api.render(
        SAMPLE,
        tmp_path / "out.mp4",
        preset=preset,
        strength=np.float64(3),
        min_area=np.float32(0.25),
        mask_every=np.int64(2),
        model=text("selfie-landscape"),
    )
    (config,) = configs
    assert (config.effect.strength, config.matte.min_area) == (3.0, 0.25)
    assert (config.segment.mask_every, config.matte.feather_pct) == (2, 3.0)
    kinds = {type(config.effect.strength), type(config.segment.mask_every)}
    assert kinds == {float, int}
    assert type(config.segment.model) is str
