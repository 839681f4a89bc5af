from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bgsoft
from bgsoft import errors
from bgsoft.errors import BgsoftError
from bgsoft.exitcodes import exit_code, one_line
from bgsoft.settings.config import (
    BackendConfig,
    EffectConfig,
    EffectKind,
    FaceMode,
    InferBackend,
    MatteStyle,
    SegmentConfig,
)
from bgsoft.settings.presets import user_folder

from .conftest import FakeRender, Run


def test_defaults_are_the_soft_preset(run: Run, fake_render: FakeRender, clip: Path) -> None:
    assert run("render", clip, "out.mp4").code == 0
    config = fake_render.config
    assert config.preset == "soft"
    assert (config.input, config.output) == (clip, Path("out.mp4"))
    assert config.effect.kind is EffectKind.BLUR
    assert not config.skip_existing


def test_every_kind_of_flag_arrives(run: Run, fake_render: FakeRender, clip: Path) -> None:
    argv = """--effect pixelate --strength 4 --model selfie-landscape --mask-every 3 --batch auto
        --threshold off --expand -1.5 --infer cpu --require-gpu --gpu 2 --codec HEVC --speed slow
        --start 1:02.5 --duration 00:00:10 --matte-out m.mkv --report r.json -y"""
    assert run("render", clip, "o.mkv", *argv.split()).code == 0
    config = fake_render.config
    assert config.effect == EffectConfig(kind=EffectKind.PIXELATE, strength=4.0)
    assert config.segment == SegmentConfig(model="selfie-landscape", mask_every=3)
    assert (config.matte.threshold, config.matte.expand_pct) == (None, -1.5)
    assert config.backends == BackendConfig(infer=InferBackend.CPU, require_gpu=True, gpu=2)
    assert isinstance(config.backends.infer, InferBackend)
    assert (config.encode.codec, config.encode.speed) == ("hevc", "slow")
    assert (config.start_seconds, config.duration_seconds) == (62.5, 10)
    assert (config.matte_out, config.report, config.overwrite) == (
        Path("m.mkv"),
        Path("r.json"),
        True,
    )


def test_flags_win_over_the_preset(run: Run, fake_render: FakeRender, clip: Path) -> None:
    run("render", clip, "o.mp4", "--preset", "obs", "--temporal", "0.7", "--similarity", "off")
    config = fake_render.config
    assert config.preset == "obs"
    assert config.matte.style is MatteStyle.OBS
    assert config.matte.temporal == 0.7
    assert config.segment.similarity_db is None


def test_a_preset_with_a_shipped_name_is_ignored_with_a_notice(
    run: Run, fake_render: FakeRender, clip: Path, tmp_path: Path
) -> None:
    own = user_folder() / "privacy.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[matte]\nsmooth = 0.1\n")
    notice = f"{own} is ignored: bgsoft has a preset of this name; rename it"
    run("render", clip, "o.mp4", "--preset", "privacy")
    assert [event.message for event in fake_render.calls[0][1]["events"]] == [notice]
    assert notice in run("presets", "list").err
    assert notice in run("batch", clip, tmp_path / "out", "--preset", "privacy").err


def test_changing_the_effect_drops_the_presets_strength(
    run: Run, fake_render: FakeRender, clip: Path
) -> None:
    run("render", clip, "o.mp4", "--preset", "privacy", "--effect", "dim")
    assert fake_render.config.effect.strength is None


@pytest.mark.parametrize(
    ("background", "kind"),
    [
        ("#00b140", EffectKind.COLOR),
        ("green", EffectKind.COLOR),
        ("beach.JPG", EffectKind.IMAGE),
        ("waves.mp4", EffectKind.VIDEO),
    ],
)
def test_background_alone_chooses_the_effect(
    run: Run, fake_render: FakeRender, clip: Path, background: str, kind: EffectKind
) -> None:
    assert run("render", clip, "o.mp4", "--background", background).code == 0
    assert fake_render.config.effect.kind is kind
    assert fake_render.config.effect.background == background


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--effect", "blurr"], ["--effect", "'blurr'", "did you mean blur?"]),
        (["--codec", "H265"], ["--codec", "'H265'", "did you mean hevc?"]),
        (["--preset", "stduio"], ["unknown preset", "did you mean studio?"]),
        (["--preset", "none.toml"], ["cannot read preset none.toml", "No such file"]),
        (["--preset", f"{Path(__file__).parent}/"], ["cannot read preset", "it is a folder"]),
        (["--strength", "99"], ["--strength", "between 0 and 25"]),
        (["--strength", "nan"], ["--strength", "between 0 and 25"]),
        (["--strength", "much"], ["--strength", "a number", "'much'"]),
        (
            ["--strength", "5%"],
            ["cannot use --strength '5%': it must be a number or off; leave out the %"],
        ),
        (["--mask-every", "1.5"], ["--mask-every", "a whole number"]),
        (["--mask-every", "0"], ["--mask-every", "between 1 and 300"]),
        (["--threshold", "2"], ["--threshold", "between 0 and 1"]),
        (["--infer", "gpu"], ["--infer", "unknown value", "cuda"]),
        (["--face", "gaurd"], ["--face", "unknown value", "did you mean guard?"]),
        (["--face", "main", "--subjects", "0"], ["--subjects", "anonymize", "--face main"]),
        (["--face", "guard", "--subjects", "0"], ["--subjects", "anonymize", "--face guard"]),
        (["--face-every", "0"], ["--face-every", "between 1 and 300"]),
        (["--effect", "image"], ["--effect image: it needs --background"]),
        (["--start", "1:75"], ["--start", "below 60"]),
        (["--start", "-3"], ["--start", "0 or more seconds", "-3"]),
        (["--duration", "-1:00"], ["--duration", "more than 0 seconds", "-60"]),
        (["--start", "soon"], ["--start", "seconds or HH:MM:SS", "'soon'"]),
        (["--duration", "0"], ["--duration", "more than 0"]),
        (["--hide", "10,20,30"], ["--hide must be X,Y,W,H", "'10,20,30'"]),
        (["--hide", "1,2,3,4,5"], ["--hide must be X,Y,W,H", "'1,2,3,4,5'"]),
        (["--hide", "10%,20%,x,30%"], ["--hide must be X,Y,W,H", "'10%,20%,x,30%'"]),
        (["--hide", "-1,0,10,10"], ["--hide must be X,Y,W,H", "'-1,0,10,10'"]),
        (["--hide", "1e3,0,10,nan"], ["--hide must be X,Y,W,H", "'1e3,0,10,nan'"]),
        (["--hide", "0,0,10%%,10"], ["--hide must be X,Y,W,H"]),
        (["--hide", ""], ["--hide must not be empty"]),
        (["--hide", "1,2,3,4@"], ["--hide must be X,Y,W,H", "'1,2,3,4@'"]),
        (["--hide", "1,2,3,4@5"], ["--hide must be X,Y,W,H", "'1,2,3,4@5'"]),
        (["--hide", "1,2,3,4@-"], ["--hide must be X,Y,W,H", "'1,2,3,4@-'"]),
        (["--hide", "1,2,0,4"], ["--hide", "above 0", "'1,2,0,4'"]),
        (["--hide", "1,2,3,4@2-1"], ["--hide must end after it begins", "'1,2,3,4@2-1'"]),
        (["--hide", "1,2,3,4@0-0"], ["--hide must end after it begins"]),
        (["--hide", "1,2,3,4@soon-2"], ["--hide 1,2,3,4@soon-2", "seconds or HH:MM:SS", "'soon'"]),
        (["--hide", "1,2,3,4@1-2-3"], ["--hide 1,2,3,4@1-2-3", "seconds or HH:MM:SS", "'2-3'"]),
        (["--hide", "1,2,3,4@0:75-"], ["--hide 1,2,3,4@0:75-", "below 60"]),
        (["--hide", "0,0,9,9", "--hide", "here"], ["--hide must be X,Y,W,H", "'here'"]),
        (["--anonymize-style", "blurr"], ["--anonymize-style", "did you mean blur?"]),
        (["--anonymize-shape", "round"], ["--anonymize-shape", "unknown value 'round'"]),
        (["--anonymize-margin", "-5"], ["--anonymize-margin", "between 0 and 100 %"]),
        (["--anonymize-margin", "101"], ["--anonymize-margin", "between 0 and 100 %"]),
        (["--progress", "fancy"], ["--progress", "unknown value"]),
        (["--stregth", "3"], ["no such option", "--stregth", "bgsoft render --help"]),
        (["--overwrite", "--skip-existing"], ["cannot combine --overwrite and --skip-existing"]),
        (
            ["--face", "main", "--main", "9%,9%", "--start", "2.5"],
            ["cannot use --main 9%,9%: its time is before --start; write 9%,9%@2.5 or a later"],
        ),
        (["--quiet", "--progress", "plain"], ["--quiet", "--progress plain", "cannot combine"]),
        (["extra"], ["cannot use argument 'extra'", "bgsoft batch IN... OUT_DIR"]),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    run: Run, fake_render: FakeRender, clip: Path, argv: list[str], words: list[str]
) -> None:
    outcome = run("render", clip, "out.mp4", *argv)
    assert outcome.code == 2
    for word in words:
        assert word in outcome.error_line
    assert not fake_render.calls


def test_places_may_be_given_again(run: Run, fake_render: FakeRender, clip: Path) -> None:
    places = ("10%,20%,15.5%,30%@1:05-1:20", " 0, 0, 10, 10 ", ".5,5.,1,1@-2.5", "9,9,9,9@0:00:01-")
    flags = [word for place in places for word in ("--hide", place)]
    assert run("render", clip, "o.mp4", *flags).code == 0
    assert fake_render.config.hide.regions == places


def test_the_summary_counts_hidden_places(run: Run, fake_render: FakeRender, clip: Path) -> None:
    flags = ("--hide", "0,0,9,9", "--hide", "1%,1%,9,9")
    outcome = run("render", clip, "out.mp4", *flags, "-v")
    assert ", 2 places hidden\n" in outcome.err


@pytest.mark.parametrize("preset", ["soft", "privacy", "fast", "obs", "cutout"])
def test_no_subjects_hides_everybody(
    run: Run, fake_render: FakeRender, clip: Path, preset: str
) -> None:
    assert run("render", clip, "o.mov", "--preset", preset, "--subjects", "0").code == 0
    face = fake_render.config.face
    assert (face.mode, face.subjects) == (FaceMode.ANONYMIZE, 0)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ("--effect blur --background red", "--background --effect color, image or video"),
        ("--effect color --strength 5", "--strength --effect blur, bokeh, pixelate or dim"),
        ("--background red --strength 5", "--strength --effect blur, bokeh, pixelate or dim"),
        ("--preset cutout --strength 5", "--strength --effect alpha"),
        ("--subjects 2", "--subjects --face main or anonymize"),
        ("--face off --subjects 2", "--subjects --face main or anonymize"),
        ("--preset privacy --small-faces", "--small-faces --face off --face guard"),
        ("--face off --face-every 3", "--face-every --face off --face guard"),
        ("--anonymize-style solid", "--anonymize-style --face anonymize, a --hide or a --detector"),
        ("--anonymize-shape box --hide 0,0,9,9", "--anonymize-shape --face guard --face anonymize"),
        ("--face main --anonymize-margin 5", "--anonymize-margin --face main --face anonymize"),
        ("--effect matte --hide 0,0,9,9", "--hide --effect matte another --effect"),
        ("--effect matte --face-data f.jsonl --subjects 0 --anonymize-style solid", "no picture"),
        ("--effect matte --subjects 0", "--face no picture --face-data"),
        ("--effect matte --face anonymize", "--face no picture --face-data"),
        ("--preset obs --refine guided", "--refine another preset"),
        ("--preset obs --softness .2", "--softness another preset"),
        ("--threshold off --softness .2", "--softness a --threshold"),
        ("--preset obs --threshold off --feather 1", "--feather a --threshold"),
        ("--model rvm-mobilenetv3 --threshold .4", "--threshold makes a matte itself"),
        ("--model rvm-mobilenetv3 --temporal 0", "--temporal selfie-general"),
        ("--model rvm-mobilenetv3 --refine none", "--refine selfie-general"),
        ("--model rvm-mobilenetv3 --min-area 0", "--min-area selfie-general"),
        ("--model rvm-resnet50 --smooth 0", "--smooth selfie-general"),
        ("--model rvm-resnet50 --softness 0", "--softness selfie-general"),
        ("--decode cpu --infer cpu --composite cpu --encode cpu --gpu 1", "--gpu auto"),
    ],
)
def test_a_flag_without_effect_is_wrong_usage(
    run: Run, fake_render: FakeRender, clip: Path, argv: str, words: str
) -> None:
    outcome = run("render", clip, "out.mov", *argv.split())
    assert outcome.code == 2
    assert ": it has no effect; it needs" in outcome.error_line
    for word in words.split():
        assert word in outcome.error_line
    assert not fake_render.calls


@pytest.mark.parametrize(
    "argv",
    [
        "--preset privacy --effect color",  # the strength is the preset's, and nobody named it
        "--preset green --effect blur",
        "--face off --small-faces --face-every 2 --face-data f.jsonl",
        "--face main --subjects 2 --small-faces",  # it always does, as was asked
        "--composite cpu --batch 1",
        "--preset obs --threshold off",
        "--effect color --strength off",
        "--subjects 0 --anonymize-style solid --anonymize-shape box --anonymize-margin 0",
        "--hide 0,0,9,9 --anonymize-style pixelate --face off",
        "--effect matte --subjects 0 --face-data f.jsonl",
    ],
)
def test_what_was_not_named_or_is_granted_is_no_mistake(
    run: Run, fake_render: FakeRender, clip: Path, argv: str
) -> None:
    assert run("render", clip, "out.mp4", *argv.split()).code == 0


def test_the_summary_leaves_out_a_strength_without_effect(
    run: Run, fake_render: FakeRender, clip: Path, tmp_path: Path
) -> None:
    preset = tmp_path / "mine.toml"
    preset.write_text("[effect]\nkind = 'color'\nstrength = 5\n")
    outcome = run("render", clip, "out.mp4", "--preset", preset, "-v")
    assert "effect color\n" in outcome.err
    assert "strength" not in outcome.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["rendr"], ["no such command: rendr; did you mean render?"]),
        (["render"], ["missing argument 'IN'"]),
        (["--wrong"], ["--wrong"]),
        (["presets", "show"], ["missing argument"]),
    ],
)
def test_wrong_command_line(run: Run, argv: list[str], words: list[str]) -> None:
    outcome = run(*argv)
    assert outcome.code == 2
    for word in words:
        assert word in outcome.error_line


CODES = {
    "BackendUnavailableError": 4,
    "BgsoftError": 1,
    "ConfigError": 2,
    "DecodeError": 3,
    "DiskFullError": 5,
    "EncodeError": 1,
    "InferenceError": 1,
    "MediaError": 1,
    "MixedModelError": 4,
    "ModelDownloadError": 4,
    "ModelError": 4,
    "ModelIntegrityError": 4,
    "OpenError": 3,
    "OutputError": 5,
    "PresetError": 2,
    "RenderCancelledError": 130,
    "StallError": 1,
    "UnsupportedFormatError": 3,
    "VerificationError": 1,
    "WorkerCrashedError": 3,
    "WorkerDiedError": 1,
}


def test_every_error_class_has_a_documented_exit_code() -> None:
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    assert set(CODES) == {each.__name__ for each in classes if issubclass(each, BgsoftError)}


@pytest.mark.parametrize("name", [n for n in CODES if n != "RenderCancelledError"])
def test_render_errors(run: Run, fake_render: FakeRender, clip: Path, name: str) -> None:
    kind: type[BgsoftError] = getattr(errors, name)
    fake_render.error = kind("it broke\nbadly", path="somewhere/x.mp4")
    outcome = run("render", clip, "out.mp4", "-q")
    assert outcome.code == CODES[name]
    assert outcome.error_line == "somewhere/x.mp4: it broke badly"


def test_what_an_output_cannot_hold_is_wrong_usage(
    run: Run, fake_render: FakeRender, clip: Path
) -> None:
    fake_render.error = errors.UnsupportedFormatError("MP4 cannot hold ProRes", stage="encode")
    assert run("render", clip, "out.mp4", "-q").code == 2


def test_failed_stage_is_named(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.error = errors.EncodeError("no space in buffer", stage="encode")
    assert run("render", clip, "o.mp4", "-q").error_line == "encode: no space in buffer"


def test_unforeseen_error_is_one_line_too(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.error = ZeroDivisionError("division by zero")
    outcome = run("render", clip, "out.mp4", "-q")
    assert outcome.code == 1
    assert "internal error: ZeroDivisionError: division by zero" in outcome.error_line


def test_an_unforeseen_end_of_a_file_is_no_interrupt(
    run: Run, fake_render: FakeRender, clip: Path
) -> None:
    fake_render.error = EOFError("too short")
    outcome = run("render", clip, "out.mp4", "-q")
    assert outcome.code == 1
    assert "internal error: EOFError: too short" in outcome.err


def test_verbose_adds_the_traceback(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.error = errors.DecodeError("bad packet")
    outcome = run("render", clip, "out.mp4", "-v")
    assert outcome.code == 3
    assert "Traceback (most recent call last)" in outcome.err
    assert outcome.err.splitlines()[-1] == "bgsoft: error: bad packet"


def test_cancelled(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.error = errors.RenderCancelledError("interrupted")
    outcome = run("render", clip, "out.mp4", "-q")
    assert outcome.code == 130
    assert outcome.error_line.startswith("interrupted")


def test_a_skipped_render_says_so(run: Run, fake_render: FakeRender, clip: Path) -> None:
    fake_render.skipped = True
    outcome = run("render", clip, "out.mp4", "--skip-existing")
    assert outcome.code == 0
    assert fake_render.config.skip_existing
    assert outcome.err.splitlines()[-1] == "out.mp4: exists, skipped"


Attempt = Callable[..., tuple[int, str]]


@pytest.fixture(params=["command line", "Python"])
def attempt(request: pytest.FixtureRequest, run: Run) -> Attempt:
    """Run an impossible render; return the exit code and the message, equal for CLI and API."""

    def on_the_command_line(input: Path, output: Path, **options: Any) -> tuple[int, str]:
        argv: list[object] = []
        for name, value in options.items():
            argv += [f"--{name.replace('_', '-')}", *([] if value is True else [value])]
        outcome = run("render", input, output, *argv)
        return outcome.code, outcome.error_line

    def in_python(input: Path, output: Path, **options: Any) -> tuple[int, str]:
        with pytest.raises(BgsoftError) as caught:
            bgsoft.render(input, output, **options)
        return exit_code(caught.value), one_line(caught.value)

    return in_python if request.param == "Python" else on_the_command_line


def test_missing_onnxruntime(
    attempt: Attempt, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n == "onnxruntime" else found(n, *a)
    )
    assert attempt(clip, tmp_path / "out.mp4") == (
        4,
        "ONNX Runtime is missing: pip install '.[cpu]' (or '.[gpu]' with an NVIDIA GPU)",
    )


@pytest.mark.parametrize("output", ["out.xyz", "out", "out.jp2"])
def test_unknown_container_is_wrong_usage(
    attempt: Attempt, clip: Path, tmp_path: Path, output: str
) -> None:
    code, message = attempt(clip, tmp_path / output)
    assert code == 2
    assert output in message
    assert attempt(clip, tmp_path / "out.mp4", matte_out=tmp_path / output) == (code, message)


def test_replacing_and_skipping_exclude_each_other(attempt: Attempt, clip: Path) -> None:
    code, message = attempt(clip, clip.with_name("out.mp4"), overwrite=True, skip_existing=True)
    assert code == 2
    assert message.startswith("cannot combine")


@pytest.mark.parametrize("option", ["report", "trace"])
def test_an_old_report_or_trace_is_only_replaced_on_request(
    attempt: Attempt, clip: Path, tmp_path: Path, option: str
) -> None:
    old, target = tmp_path / "r.json", tmp_path / "out.mp4"
    old.write_text("before")
    code, message = attempt(clip, target, **{option: old})
    assert code == 5
    assert f"the {option} {old}: it exists; use " in message
    assert attempt(clip, target, **{option: old}, overwrite=True)[0] == 3, "the clip is no video"
    assert old.read_text() == "before"


@pytest.mark.parametrize("name", ["in.mp4", "in.mp4/r.json", "."])
def test_an_unwritable_report_fails_before_the_render(
    attempt: Attempt, clip: Path, tmp_path: Path, name: str
) -> None:
    code, message = attempt(clip, tmp_path / "out.mp4", report=tmp_path / name, overwrite=True)
    assert code == 5
    assert "report" in message
    assert clip.read_bytes() == b"x"


def test_one_file_cannot_be_two(
    attempt: Attempt, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "out.mp4"
    assert attempt(clip, target, report="r.json", trace="./r.json") == (
        5,
        "cannot write the report r.json: it is the same file as r.json; name another",
    )
    assert attempt(clip, target, matte_out="out.mp4")[0] == 2
    (tmp_path / "link.mp4").symlink_to("out.mp4")
    for name in ("link.mp4", "a/../out.mp4"):
        message = f"cannot write output {name}: it is the same file as {target}; name another"
        assert attempt(clip, target, matte_out=name) == (5, message)
    for name, setting in (("beach.jpg", "background"), ("own.onnx", "model")):
        (tmp_path / name).write_text("precious")
        message = f"cannot write the report {name}: it is the same file as {name}; name another"
        other = {setting: name, "report": name, "overwrite": True}
        assert attempt(clip, target, **other) == (5, message)
    (tmp_path / "p.toml").write_text("[matte]\nsmooth = 0.1\n")
    message = "cannot write the report p.toml: it is the same file as {}; name another"
    other = {"preset": "p.toml", "report": "p.toml", "overwrite": True}
    assert attempt(clip, target, **other) == (5, message.format(tmp_path / "p.toml"))
    (tmp_path / "faces.jsonl").symlink_to("own.onnx")
    message = "cannot write output faces.jsonl: it is the same file as own.onnx; name another"
    other = {"model": "own.onnx", "face_data": "faces.jsonl", "overwrite": True}
    assert attempt(clip, target, **other) == (5, message)
    (tmp_path / "7.png").write_text("precious")
    message = "cannot write the report 7.png: it is the same file as 7.png; name another"
    other = {"matte_in": "%d.png", "report": "7.png", "overwrite": True}
    assert attempt(clip, target, **other) == (5, message)


@pytest.mark.parametrize("command", ["render", "preview"])
def test_an_unreadable_input_is_no_wrong_usage(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    # Root may read everything, so the kernel's answer is made up; the file is no video either way.
    source = tmp_path / "secret.mp4"
    source.write_text("not for you")
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK and real(path, mode))
    target = tmp_path / ("out.mp4" if command == "render" else "out.png")
    assert run(command, source, target).code == 3
