from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from bgsoft.errors import ConfigError, PresetError
from bgsoft.rendering.configure import build_config
from bgsoft.rendering.report import plain_settings
from bgsoft.settings.config import (
    Chroma,
    Codec,
    EffectKind,
    EncodeConfig,
    FaceConfig,
    FaceMode,
    HideStyle,
    MatteConfig,
    MatteStyle,
    Metadata,
    Refine,
    RenderConfig,
)
from bgsoft.settings.presets import (
    as_toml,
    ignored_text,
    list_presets,
    load_preset,
    merge,
    settings_of,
)
from tests.permissions import closed
from tests.processes import ROOT

NAMES = {path.stem for path in (ROOT / "presets").glob("*.toml")}


@pytest.fixture(autouse=True)
def user_presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    folder = tmp_path / "config" / "bgsoft" / "presets"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, text: str, name: str = "mine.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def build(preset: str | None, **flags: dict[str, object]) -> RenderConfig:
    return build_config(Path("a.mp4"), Path("b.mp4"), preset=preset, flags=flags)


def test_all_presets_are_shipped() -> None:
    assert {path.stem for path in list_presets()} == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_each_preset_loads_and_says_what_it_is(name: str) -> None:
    config = build(name)
    assert config.preset == name
    assert 20 <= len(load_preset(name).description) <= 90


@pytest.mark.parametrize(
    ("below", "flags", "shown"),
    [
        ({"main": ("1%,1%",)}, {"subjects": 2}, (2, ())),
        ({"main": ("1%,1%",)}, {"subjects": 0}, (0, ())),
        ({"subjects": 2}, {"main": ("1%,1%",)}, (1, ("1%,1%",))),
        ({"subjects": 2}, {"main": ()}, (2, ())),
        ({"main": ("1%,1%",)}, {"main": ("2%,2%",)}, (1, ("2%,2%",))),
    ],
)
def test_main_people_and_their_number_replace_each_other(
    below: dict[str, object], flags: dict[str, object], shown: tuple[int, tuple[str, ...]]
) -> None:
    face = FaceConfig(**merge({"face": below}, {"face": flags})["face"])
    assert (face.subjects, face.main) == shown


def test_main_people_below_nobody_are_an_error() -> None:
    for layers in (({"subjects": 0}, {"main": ("1%,1%",)}), ({"subjects": 2, "main": ("1%,1%",)},)):
        merged = merge(*({"face": layer} for layer in layers))
        with pytest.raises(ConfigError, match="cannot combine --main and --subjects"):
            FaceConfig(**merged["face"])


def test_a_preset_that_cannot_be_read_says_why(user_presets: Path) -> None:
    (user_presets / "broken.toml").symlink_to("gone.toml")
    (user_presets / "folder.toml").mkdir()
    write(user_presets, "", "mine.toml")
    for name, reason in (("broken", "No such file"), ("folder", "it is a folder")):
        with pytest.raises(PresetError, match=rf"^cannot read preset .*{name}\.toml: {reason}"):
            load_preset(name)
    with closed(user_presets):
        for name in ("mine", str(user_presets / "mine.toml"), "gone"):
            with pytest.raises(PresetError, match=r"^cannot read .*\.toml: Permission denied"):
                load_preset(name)


@pytest.mark.parametrize("place", ["", ".."])
def test_a_closed_folder_of_presets_ends_no_render(user_presets: Path, place: str) -> None:
    with closed((user_presets / place).resolve()):
        assert build("soft").preset == "soft"
        assert {path.stem for path in list_presets()} == NAMES
        assert ignored_text(load_preset("soft").path) is None


def test_soft_is_the_defaults() -> None:
    soft = dataclasses.replace(build("soft"), preset=None)
    plain = build(None)
    assert soft.effect.effective_strength == plain.effect.effective_strength
    assert dataclasses.replace(soft, effect=plain.effect) == plain


def test_obs_has_the_filters_defaults() -> None:
    config = build("obs")
    assert config.matte == MatteConfig(
        style=MatteStyle.OBS,
        threshold=0.5,
        min_area=0.05,
        smooth=0.5,
        feather_pct=0.0,
        temporal=0.15,
        refine=Refine.NONE,
    )
    assert config.segment.similarity_db == 35.0
    # Six of its passes come to a sigma of 8.5 px at 1080p.
    assert config.effect.strength_px(1080) == pytest.approx(8.5, abs=0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[mate]\n", ["unknown section", "'mate'", "did you mean matte?"]),
        ("[matte]\nfether_pct = 1\n", ["[matte]", "'fether_pct'", "did you mean feather_pct?"]),
        ("[matte]\nexpand = 1\n", ["'expand'", "did you mean expand_pct?"]),
        ("[segment]\nlooks = 'best'\n", ["[segment]", "'looks'", "did you mean matte?"]),
        ("descripton = 'x'\n", ["'descripton'", "did you mean description?"]),
        ("[matte]\nthreshold = '0.5'\n", ["matte.threshold", "a number", "'0.5'"]),
        ("[matte]\nthreshold = true\n", ["matte.threshold", "a number", "True"]),
        ("[segment]\nmask_every = 2.0\n", ["segment.mask_every", "a whole number"]),
        ("[segment]\nmask_every = false\n", ["segment.mask_every", "a whole number"]),
        ("[hide]\nregions = 3\n", ["hide.regions", "a text or a list of texts", "3"]),
        ("[hide]\nregions = ['0,0,9,9', 3]\n", ["hide.regions", "a list of texts"]),
        ("[hide]\nstyle = 'black'\n", ["hide.style", "unknown value 'black'"]),
        ("[segment]\nmodel = 3\n", ["segment.model", "a text"]),
        ('[segment]\nmodel = "\\u0000.onnx"\n', ["segment.model", "zero byte"]),
        ("[backends]\nrequire_gpu = 'yes'\n", ["backends.require_gpu", "true or false"]),
        ("[effect]\nkind = 'blurr'\n", ["effect.kind", "'blurr'", "did you mean blur?"]),
        ("[effect]\nkind = 1\n", ["effect.kind", "unknown value 1"]),
        ("[effect]\nkind = 'blur\n", ["mine.toml", "Expected"]),
        ("effect = 'blur'\n", ["[effect] must be a section"]),
        ("description = 3\n", ["description must be a text"]),
        ("extends = 'sotf'\n", ["extends: unknown preset 'sotf'", "did you mean soft?"]),
        ("input = 'x.mp4'\n", ["unknown section", "'input'"]),
        ("[effect]\nkind = " + "[" * 10**5, ["mine.toml", "nested too deeply"]),
        (f"[matte]\nthreshold = {10**400}\n", ["matte.threshold must be between"]),
        (
            f"[face]\nsubjects = {-(10**400)}\n",
            ["face.subjects must be between 0 and 32, not -inf"],
        ),
        ("#" * (2**20 + 1), ["larger than 1 MiB"]),
    ],
)
def test_malformed_presets(tmp_path: Path, text: str, words: list[str]) -> None:
    with pytest.raises(PresetError) as caught:
        load_preset(write(tmp_path, text))
    for word in words:
        assert word in str(caught.value)


def test_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_bytes(b"description = '\xff'")
    with pytest.raises(PresetError, match=r"x\.toml"):
        load_preset(str(tmp_path / "x.toml"))


def test_value_out_of_range_names_the_preset(tmp_path: Path) -> None:
    path = write(tmp_path, "[matte]\ntemporal = 7\n")
    with pytest.raises(PresetError, match=r"preset mine\.toml: matte\.temporal .* between 0 and 1"):
        build(path)
    strong = write(tmp_path, "[effect]\nstrength = 99\n", "strong.toml")
    with pytest.raises(PresetError, match=r"preset strong: --strength .* between 0 and 25 %"):
        build(strong)
    with pytest.raises(ConfigError, match=r"^--temporal"):
        build("soft", matte={"temporal": 7.0})


def test_what_stands_for_other_values(tmp_path: Path) -> None:
    for word in ("off", "none", "Off"):
        path = write(tmp_path, f"extends = 'obs'\n[segment]\nsimilarity_db = '{word}'\n")
        assert build(path).segment.similarity_db is None
    whole = build(write(tmp_path, "[matte]\nfeather_pct = 2\n")).matte.feather_pct
    assert (whole, type(whole)) == (2.0, float)


def test_user_presets_are_found_by_name(user_presets: Path) -> None:
    write(user_presets, "description = 'mine'\n[matte]\nsmooth = 0.1\n")
    assert build("mine").matte.smooth == 0.1
    assert "mine" in {path.stem for path in list_presets()}


def test_a_shipped_name_cannot_be_taken(user_presets: Path) -> None:
    write(user_presets, "[matte]\nsmooth = 0.1\n", "soft.toml")
    assert build("soft").matte.smooth == 0.5
    assert len(list_presets()) == len(NAMES)


def test_extends_a_file_next_to_it(tmp_path: Path) -> None:
    write(tmp_path, "[matte]\nsmooth = 0.1\ntemporal = 0.2\n", "base.toml")
    path = write(tmp_path, "extends = 'base.toml'\n[matte]\ntemporal = 0.3\n")
    matte = build(path).matte
    assert (matte.smooth, matte.temporal) == (0.1, 0.3)


def test_circular_parents(tmp_path: Path) -> None:
    path = write(tmp_path, "extends = 'b.toml'\n", "a.toml")
    write(tmp_path, "extends = 'a.toml'\n", "b.toml")
    with pytest.raises(PresetError, match="a → b → a"):
        load_preset(path)


def test_parents_without_end(tmp_path: Path) -> None:
    for number in range(400):
        (tmp_path / f"{number}.toml").write_text(f"extends = './{number + 1}.toml'\n")
    with pytest.raises(PresetError, match=r"preset 0\.toml: it extends more than 32 others"):
        load_preset(str(tmp_path / "0.toml"))


def test_paths_are_relative_to_the_preset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beach.jpg").write_bytes(b"")
    path = write(tmp_path, "[effect]\nkind = 'image'\nbackground = 'beach.jpg'\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert build(path).effect.background == str(tmp_path / "beach.jpg")
    others = (
        "[regions]\nfile = 'r.toml'\n[face]\nfile = '../f.jsonl'\n[detector]\nfile = 'd.onnx'\n"
    )
    path = write(tmp_path, others + "[segment]\nmodel = 'm.onnx'\nmatte_in = 'm-%05d.png'\n")
    (elsewhere / "r.toml").touch()
    config = build(path)
    found = (
        *(config.regions.file, config.face.file, config.detector.file),
        *(config.segment.model, config.segment.matte_in),
    )
    files = ("r.toml", "../f.jsonl", "d.onnx", "m.onnx", "m-%05d.png")
    assert found == tuple(str(tmp_path / name) for name in files)
    assert settings_of(config, ["segment"])["segment"]["model"] == str(tmp_path / "m.onnx")
    given = build(None, segment={"matte_in": "m-%05d.png"})
    kept = settings_of(given, ["segment"])["segment"]
    assert kept["matte_in"] == str(elsewhere / "m-%05d.png"), "the preset is in another folder"
    assert kept["model"] == "selfie-general"


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("effect", "background", "green"),
        ("effect", "background", "00b140"),
        ("segment", "model", "selfie-landscape"),
        ("segment", "matte_in", "{stem}-matte.mkv"),
    ],
)
def test_not_every_text_is_a_path(tmp_path: Path, section: str, key: str, value: str) -> None:
    kind = "kind = 'color'\n" if section == "effect" else ""
    config = build(write(tmp_path, f"[{section}]\n{kind}{key} = '{value}'\n"))
    assert getattr(getattr(config, section), key) == value
    assert settings_of(config, [section])[section][key] == value


def test_a_new_effect_drops_what_belonged_to_the_old_one() -> None:
    lower = {"effect": {"kind": EffectKind.BLUR, "strength": 8.0, "highlights": 0.2}}
    upper = {"effect": {"kind": EffectKind.DIM}}
    assert merge(lower, upper) == {"effect": {"kind": EffectKind.DIM, "highlights": 0.2}}
    assert lower["effect"]["strength"] == 8.0, "layers are left alone"


def test_the_same_effect_keeps_its_strength() -> None:
    same = {"effect": {"kind": EffectKind.BLUR}}
    assert merge({"effect": {"strength": 8.0}}, same)["effect"]["strength"] == 8.0


def test_a_background_in_a_preset_chooses_the_effect_as_its_flag_does(tmp_path: Path) -> None:
    path = write(tmp_path, "extends = 'soft'\n[effect]\nbackground = 'green'\n")
    effect = build(path).effect
    assert (effect.kind, effect.background, effect.strength) == (EffectKind.COLOR, "green", None)
    blurred = "extends = 'mine.toml'\n[effect]\nkind = 'blur'\n"
    assert build(write(tmp_path, blurred, "child.toml")).effect.background is None


def test_nobody_is_main_only_where_faces_are_anonymized(tmp_path: Path) -> None:
    path = write(tmp_path, "[face]\nsubjects = 0\n")
    assert build(path).face == FaceConfig(mode=FaceMode.ANONYMIZE, subjects=0)
    assert build(path, face={"mode": FaceMode.MAIN}).face == FaceConfig(mode=FaceMode.MAIN)
    child = write(tmp_path, "extends = 'mine.toml'\n[face]\nmode = 'guard'\n", "child.toml")
    assert build(child).face == FaceConfig()
    for mode in (FaceMode.OFF, FaceMode.GUARD, FaceMode.MAIN):
        with pytest.raises(ConfigError, match="--face anonymize"):
            FaceConfig(mode=mode, subjects=0)
    with pytest.raises(PresetError, match="preset bad: cannot use --subjects 0 with --face main"):
        build(write(tmp_path, "[face]\nmode = 'main'\nsubjects = 0\n", "bad.toml"))


def test_everybody_is_hidden_by_black_unless_a_style_is_named(tmp_path: Path) -> None:
    everybody = {"subjects": 0}
    path = write(tmp_path, "extends = 'soft'\n[hide]\nstyle = 'pixelate'\n")
    assert build("soft", face=everybody).hide_style is HideStyle.SOLID
    assert build("soft", face={"mode": FaceMode.ANONYMIZE}).hide_style is HideStyle.BLUR
    blurred = build("soft", face=everybody, hide={"style": HideStyle.BLUR})
    assert blurred.hide_style is HideStyle.BLUR
    assert build(path, face=everybody).hide_style is HideStyle.PIXELATE
    # A preset that hides everybody, and a flag that takes it back.
    path = write(tmp_path, "[face]\nsubjects = 0\n", "everybody.toml")
    assert build(path).hide_style is HideStyle.SOLID
    assert build(path, face={"subjects": 1}).hide_style is HideStyle.BLUR
    assert plain_settings(build(path))["hide"]["style"] == "solid"
    # The preset's text does not name the default style.
    assert "# style is not set" in as_toml(load_preset(path))


def test_metadata_goes_where_something_is_hidden() -> None:
    keep, strip = {"metadata": Metadata.KEEP}, {"metadata": Metadata.STRIP}
    assert not build("soft").strips_metadata
    assert build("soft", face={"mode": FaceMode.ANONYMIZE}).strips_metadata
    assert build("soft", hide={"regions": ("0,0,9,9",)}).strips_metadata
    assert not build("soft", face={"subjects": 0}, copy=keep).strips_metadata
    assert build("soft", copy=strip).strips_metadata
    assert build("privacy").strips_metadata
    assert not build("privacy", copy=keep).strips_metadata


def test_three_main_people_stay_three_in_another_mode(tmp_path: Path) -> None:
    path = write(tmp_path, "[face]\nmode = 'main'\nsubjects = 3\n")
    assert build(path, face={"mode": FaceMode.ANONYMIZE}).face.subjects == 3


def test_another_codec_drops_the_speed() -> None:
    assert build("fast", encode={"codec": Codec.AV1}).encode.speed is None
    assert build("fast", encode={"codec": Codec.AV1, "speed": "12"}).encode.speed == "12"


@pytest.mark.parametrize(
    ("output", "flags", "speed"),
    [
        ("b.mp4", {}, "ultrafast"),
        ("b.webm", {}, None),
        ("b.mov", {"effect": {"kind": EffectKind.ALPHA}}, None),
        ("b.webm", {"encode": {"speed": "8"}}, "8"),
        ("b.mkv", {"encode": {"codec": Codec.H264}}, None),
        ("b.png", {}, None),
        ("b.xyz", {}, "ultrafast"),
    ],
)
def test_a_presets_speed_holds_for_h264_only(
    output: str, flags: dict[str, dict[str, object]], speed: str | None
) -> None:
    config = build_config(Path("a.mp4"), Path(output), preset="fast", flags=flags)
    assert config.encode.speed == speed
    assert config.segment.mask_every == 2


def test_a_preset_that_names_its_codec_keeps_its_speed(tmp_path: Path) -> None:
    path = write(tmp_path, "[encode]\ncodec = 'vp9'\nspeed = '6'\n")
    assert build_config(Path("a"), Path("b.webm"), preset=path).encode.speed == "6"


@pytest.mark.parametrize(
    ("output", "effect", "left"),
    [
        ("b.mp4", EffectKind.BLUR, None),
        ("b.webm", EffectKind.BLUR, "WebM"),
        ("b.mkv", EffectKind.ALPHA, "Matroska with alpha"),
        ("b.avi", EffectKind.BLUR, "AVI"),
        ("b.nut", EffectKind.ALPHA, "NUT with alpha"),
        ("b.y4m", EffectKind.BLUR, "YUV4MPEG"),
        ("b.jpg", EffectKind.BLUR, ""),
        ("b.png", EffectKind.ALPHA, ""),
        ("b.gif", EffectKind.BLUR, ""),
        ("f/%03d.png", EffectKind.BLUR, ""),
    ],
)
def test_a_presets_codec_gives_way_to_the_output(
    tmp_path: Path, output: str, effect: EffectKind, left: str | None
) -> None:
    path = write(
        tmp_path, "[encode]\ncodec = 'hevc'\nquality = 30\nencoder_option = ['tune=grain']\n"
    )
    flags = {"effect": {"kind": effect}}
    config = build_config(Path("a.mp4"), tmp_path / output, preset=path, flags=flags)
    notice = f"codec hevc of preset or config.toml left out: {left} cannot hold it" if left else ""
    assert config.left_out == notice
    assert (config.encode == EncodeConfig()) == (left is not None)
    flags["encode"] = {"codec": Codec.HEVC, "quality": 20}
    named = build_config(Path("a.mp4"), tmp_path / output, preset=path, flags=flags)
    assert (named.encode.codec, named.encode.quality) == (Codec.HEVC, 20)


@pytest.mark.parametrize(
    ("output", "settings", "left"),
    [
        ("b.mp4", "chroma = '420'", ""),
        ("b.y4m", "quality = 20", ""),
        ("b.y4m", "chroma = '420'", "chroma"),
        ("b.webm", "chroma = '420'\nencoder_option = ['a=1']", "chroma and encoder_option"),
    ],
)
def test_settings_for_h264_that_another_codec_lacks_are_named(
    tmp_path: Path, output: str, settings: str, left: str
) -> None:
    path = write(tmp_path, f"[encode]\n{settings}\n")
    config = build_config(Path("a.mp4"), tmp_path / output, preset=path)
    assert config.left_out.partition(" of preset")[0] == left


def test_as_toml_loads_again(tmp_path: Path) -> None:
    path = write(tmp_path, 'description = "with \\"quotes\\" and ü"\nextends = "studio"\n')
    copy = write(tmp_path, as_toml(load_preset(path)), "copy.toml")
    assert load_preset(copy).description == 'with "quotes" and ü'
    assert dataclasses.replace(build(copy), preset="mine") == build(path)


@pytest.mark.parametrize("value", ['"420"', "420"])
def test_a_choice_may_look_like_a_number(tmp_path: Path, value: str) -> None:
    config = build(write(tmp_path, f"[encode]\nchroma = {value}\n"))
    assert config.encode.chroma is Chroma.C420


def test_what_is_off_is_written_as_off(tmp_path: Path) -> None:
    path = write(tmp_path, "[matte]\nthreshold = 'off'\n")
    copy = write(tmp_path, as_toml(load_preset(path)), "copy.toml")
    assert build(copy).matte.threshold is build(path).matte.threshold is None


@pytest.mark.parametrize("name", ["a\x7fb.png", "caf\udce9.png"])
def test_names_that_toml_has_no_place_for(tmp_path: Path, name: str) -> None:
    preset = load_preset(write(tmp_path, "[effect]\nkind = 'image'\nbackground = 'x.png'\n"))
    preset.settings["effect"]["background"] = name
    if name.isprintable() or "\x7f" in name:
        assert load_preset(write(tmp_path, as_toml(preset))).settings["effect"]["background"]
    else:
        with pytest.raises(ConfigError, match="not valid UTF-8"):
            as_toml(preset)


def test_a_byte_order_mark_is_no_part_of_a_preset(tmp_path: Path) -> None:
    assert build(write(tmp_path, "\ufeff[matte]\nthreshold = 0.25\n")).matte.threshold == 0.25
