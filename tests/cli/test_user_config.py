"""``config.toml``: the user's defaults, under presets and flags."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from bgsoft.cli.doctor import report_lines
from bgsoft.diagnose.doctor import DoctorReport, find_user_config
from bgsoft.live.settings import LiveSettings
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import Codec, EffectKind, FaceMode, RenderConfig
from bgsoft.settings.user import CONFIG_VARIABLE, read_user_config
from tests.face_clips import SAMPLE
from tests.marks import crossed

from .conftest import FakeRender, Run


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(CONFIG_VARIABLE)
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "bgsoft" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def settings(run: Run, fake_render: FakeRender, clip: Path, *flags: str) -> RenderConfig:
    outcome = run("render", clip, "out.mp4", *flags)
    assert outcome.code == 0, outcome.err
    return fake_render.calls.pop()[0]


def test_defaults_below_it_flags_and_named_presets_above(
    run: Run, fake_render: FakeRender, clip: Path, config: Path
) -> None:
    config.write_text("[effect]\nstrength = 7\n[encode]\ncodec = 'hevc'\n")
    alone = settings(run, fake_render, clip)
    assert (alone.effect.strength, alone.encode.codec) == (7, Codec.HEVC)
    assert (alone.preset, alone.config_file) == ("soft", config)
    named = settings(run, fake_render, clip, "--preset", "privacy")
    assert (named.effect.strength, named.encode.codec) == (8, Codec.HEVC)
    assert named.preset == "privacy"
    flag = settings(run, fake_render, clip, "--strength", "1", "--codec", "h264")
    assert (flag.effect.strength, flag.encode.codec) == (1, Codec.H264)


@pytest.mark.parametrize("hides", ["subjects = 0", "mode = 'anonymize'"])
@pytest.mark.parametrize("preset", ["soft", "studio", "privacy"])
def test_no_preset_shows_faces_that_it_hides(
    run: Run, fake_render: FakeRender, clip: Path, config: Path, hides: str, preset: str
) -> None:
    config.write_text(f"[face]\n{hides}\n")
    alone = settings(run, fake_render, clip)
    named = settings(run, fake_render, clip, "--preset", preset)
    assert alone.face == named.face
    assert named.face.mode is FaceMode.ANONYMIZE
    flag = settings(run, fake_render, clip, "--preset", preset, "--face", "guard")
    assert (flag.face.mode, flag.face.subjects) == (FaceMode.GUARD, 1)


@pytest.mark.parametrize(
    ("own", "preset", "shown"),
    [
        ("subjects = 0", "mode = 'anonymize'\nsubjects = 1", (0, ())),
        ("subjects = 0", "mode = 'anonymize'\nmain = ['50%,50%']", (0, ())),
        ("subjects = 0", "mode = 'main'\nsubjects = 2", (0, ())),
        ("mode = 'anonymize'", "mode = 'main'\nsubjects = 2", (1, ())),
        ("mode = 'anonymize'", "main = ['50%,50%']", (1, ("50%,50%",))),
        ("mode = 'anonymize'", "main = ['50%,50%', '9%,9%']", (1, ())),
        ("mode = 'anonymize'\nmain = ['9%,9%']", "main = ['50%,50%']", (1, ("9%,9%",))),
        ("mode = 'anonymize'\nsubjects = 2", "subjects = 1", (1, ())),
        ("mode = 'anonymize'", "subjects = 0", (0, ())),
        ("mode = 'anonymize'\nsubjects = 2", "subjects = 5", (2, ())),
        ("mode = 'anonymize'\nmain = ['9%,9%']", "subjects = 5", (1, ("9%,9%",))),
        ("mode = 'anonymize'\nmain = ['9%,9%']", "subjects = 0", (0, ())),
    ],
)
def test_a_preset_may_only_hide_more(
    run: Run,
    fake_render: FakeRender,
    clip: Path,
    config: Path,
    own: str,
    preset: str,
    shown: tuple[int, tuple[str, ...]],
) -> None:
    mine, faces = config.parent / "mine.toml", config.parent / "f.jsonl"
    mine.write_text(f"[face]\nfile = '{faces}'\n{preset}\n")
    faces.write_text('{"faces_of": "a", "frame": [1, 1]}\n')
    for settings_of_it in (f"[face]\n{own}\n", "extends = 'base.toml'\n"):
        (config.parent / "base.toml").write_text(f"[face]\n{own}\n")
        config.write_text(settings_of_it)
        face = settings(run, fake_render, clip, "--preset", str(mine)).face
        assert (face.mode, face.subjects, face.main) == (FaceMode.ANONYMIZE, *shown)
        assert face.file == str(faces)


def test_no_preset_shows_places_or_metadata_that_it_hides(
    run: Run, fake_render: FakeRender, clip: Path, config: Path
) -> None:
    mine = config.parent / "mine.toml"
    mine.write_text("[hide]\nregions = ['9,9,9,9']\n[copy]\nmetadata = 'keep'\n")
    config.write_text("[hide]\nregions = ['0,0,4,4']\n[copy]\nmetadata = 'strip'\n")
    named = settings(run, fake_render, clip, "--preset", str(mine))
    assert (named.hide.regions, named.strips_metadata) == (("0,0,4,4", "9,9,9,9"), True)
    mine.write_text("[hide]\nregions = []\n[copy]\nmetadata = 'auto'\n")
    named = settings(run, fake_render, clip, "--preset", str(mine))
    assert (named.hide.regions, named.strips_metadata) == (("0,0,4,4",), True)
    flags = settings(
        run, fake_render, clip, "--preset", str(mine), "--metadata", "keep", "--hide", "5,5,5,5"
    )
    assert (flags.hide.regions, flags.strips_metadata) == (("5,5,5,5",), False)


@pytest.mark.parametrize(
    ("own", "strips"),
    [
        ("[face]\nsubjects = 0", True),
        ("[face]\nmode = 'anonymize'", True),
        ("[hide]\nregions = ['0,0,4,4']", True),
        ("[regions]\nfile = 'hide.toml'", True),
        ("[regions]\nfile = 'drop.toml'", False),
        ("[face]\nsubjects = 0\n[copy]\nmetadata = 'keep'", False),
        ("[effect]\nstrength = 3", False),
    ],
)
def test_no_preset_keeps_metadata_that_is_removed_because_something_is_hidden(
    run: Run, fake_render: FakeRender, clip: Path, config: Path, own: str, strips: bool
) -> None:
    for action in ("hide", "drop"):
        region = f"[[region]]\naction = '{action}'\nbox = '0,0,4,4'\n"
        (config.parent / f"{action}.toml").write_text(region)
    mine = config.parent / "mine.toml"
    mine.write_text("[copy]\nmetadata = 'keep'\n")
    config.write_text(f"{own}\n")
    assert settings(run, fake_render, clip, "--preset", str(mine)).strips_metadata is strips


def test_extends_is_the_preset_where_none_is_named(
    run: Run, fake_render: FakeRender, clip: Path, config: Path
) -> None:
    (config.parent / "mine.toml").write_text("extends = 'studio'\n[matte]\nfeather_pct = 1\n")
    config.write_text("extends = 'mine.toml'\n[effect]\nhighlights = 0.1\n")
    alone = settings(run, fake_render, clip)
    assert (alone.effect.kind, alone.effect.highlights) == (EffectKind.BOKEH, 0.1)
    assert (alone.matte.feather_pct, alone.preset) == (1, "mine")
    named = settings(run, fake_render, clip, "--preset", "soft")
    assert (named.effect.kind, named.matte.feather_pct) == (EffectKind.BLUR, 0)


def test_the_summary_names_it(run: Run, fake_render: FakeRender, clip: Path, config: Path) -> None:
    assert "your defaults" not in run("render", clip, "out.mp4", "-v").err
    config.write_text("[effect]\nstrength = 7\n")
    assert f"  your defaults: {config}\n" in run("render", clip, "out.mp4", "-v").err


def test_its_effect_names_the_output(
    run: Run, fake_render: FakeRender, clip: Path, config: Path
) -> None:
    config.write_text("[effect]\nkind = 'alpha'\n")
    assert run("render", clip).code == 0
    assert fake_render.config.output.name == "in.alpha.mov"


@crossed(
    case=[
        (b"[effect\n", "line 1"),
        (b"[effekt]\n", "unknown section: 'effekt'; did you mean effect?"),
        (b"[effect]\nstrenth = 3\n", "unknown key in [effect]: 'strenth'; did you mean strength?"),
        (b"strength = 3\n", "unknown section: 'strength'"),
        (b"description = '\xff'\n", "it is not UTF-8"),
        (b"extends = 'studoi'\n", "unknown preset 'studoi'; did you mean studio?"),
        (b"[effect]\nstrength = 99\n", "--strength must be between 0 and 25"),
        (b"[effect]\nkind = 'image'\n", "needs --background FILE"),
    ],
    command=["render", "batch", "preview", "bench", "live"],
)
def test_errors_name_the_file(
    run: Run, clip: Path, tmp_path: Path, config: Path, case: tuple[bytes, str], command: str
) -> None:
    text, words = case
    config.write_bytes(text)
    arguments = {
        "render": [clip, tmp_path / "out.mp4"],
        "batch": [clip, tmp_path / "out"],
        "preview": [clip, tmp_path / "out.png"],
        "bench": [clip],
        "live": [clip, "--loop", "--share", "any"],
    }
    outcome = run(command, *arguments[command])
    assert outcome.code == 2
    assert outcome.error_line.startswith(f"{config}: ")
    assert words in outcome.error_line
    assert sorted(tmp_path.iterdir()) == [clip]


def test_a_folder_in_its_place_is_an_error(run: Run, clip: Path, config: Path) -> None:
    config.mkdir()
    outcome = run("render", clip, "out.mp4")
    assert outcome.code == 2
    assert outcome.error_line == f"cannot read {config}: Is a directory"


def test_a_broken_link_in_its_place_is_an_error(run: Run, clip: Path, config: Path) -> None:
    config.symlink_to("gone.toml")
    outcome = run("render", clip, "out.mp4")
    assert outcome.code == 2
    assert outcome.error_line == f"cannot read {config}: No such file or directory"


def test_the_variable_names_another_file_or_none(
    run: Run,
    fake_render: FakeRender,
    clip: Path,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config.write_text("[effekt]\n")
    other = tmp_path / "other.toml"
    monkeypatch.setenv(CONFIG_VARIABLE, str(other))
    outcome = run("render", clip, "out.mp4")
    assert outcome.code == 2
    assert outcome.error_line == f"cannot read {CONFIG_VARIABLE}={other}: No such file or directory"
    other.write_text("[effect]\nstrength = 9\n")
    assert settings(run, fake_render, clip).effect.strength == 9
    monkeypatch.setenv(CONFIG_VARIABLE, "")
    assert settings(run, fake_render, clip).effect.strength == 2.5


def test_python_does_not_read_it(config: Path) -> None:
    config.write_text("[effekt]\n")
    assert build_config(Path("in.mp4"), Path("out.mp4")).effect.strength == 2.5


def test_doctor_names_it(config: Path) -> None:
    def examined() -> DoctorReport:
        report = DoctorReport(
            versions={}, encoders={}, stages={}, models={}, cpu_count=1, gpu_driver=None
        )
        find_user_config(report)
        return report

    assert any(line.endswith(f"none ({config})") for line in report_lines(examined()))
    config.write_text("[effect]\nstrength = 9\n")
    assert any(line.endswith(f" {config}") for line in report_lines(examined()))
    config.write_text("[effekt]\n")
    (problem,) = examined().problems
    assert problem.startswith(f"{config}: unknown section: 'effekt'")


def test_workers_and_resume_go_by_it(run: Run, tmp_path: Path, config: Path) -> None:
    """The worker processes of a batch get the settings that their parent has read."""
    config.write_text("[effect]\nkind = 'color'\nbackground = 'green'\n[segment]\nmatte = 'fast'\n")
    report, out = tmp_path / "report.json", tmp_path / "out"
    argv = ["batch", SAMPLE, out, "--duration", "0.1", "--report", report]
    assert run(*argv).code == 0
    (file,) = json.loads(report.read_text())["files"]
    assert file["report"]["settings"]["effect"]["kind"] == "color"
    assert file["report"]["settings"]["config_file"] == str(config)
    again = [*argv[:-2], "--resume", "--dry-run"]
    assert "done already" in run(*again).out
    config.write_text("[effect]\nkind = 'color'\nbackground = 'red'\n[segment]\nmatte = 'fast'\n")
    assert "the background has changed" in run(*again).out


def test_bench_children_do_not_read_it_again() -> None:
    from bgsoft.bench.process import run_process

    code = f"import os; print(repr(os.environ.get({CONFIG_VARIABLE!r})))"
    assert run_process([sys.executable, "-c", code])[2].strip() == "''"


def test_a_live_stream_keeps_it_under_another_preset(config: Path) -> None:
    """The page of ``live --preview`` changes presets while the stream runs."""
    config.write_text("[effect]\nstrength = 9\n[encode]\ncodec = 'hevc'\n")
    settings = LiveSettings(None, {}, lambda _config: None, user=read_user_config())
    assert settings.config.effect.strength == 9
    settings.change("privacy", {})
    assert settings.config.effect.strength == 8
    assert settings.config.encode.codec is Codec.HEVC
