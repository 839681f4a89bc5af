"""The flags that several commands share, as annotated types.

Every flag here defaults to None, «not given», so that a preset shows through; the default that
the help names is read from :mod:`bgsoft.config`. Their values stay text:
:mod:`bgsoft.cli.parsing` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

import typer

from bgsoft import config

LOOK, MODEL, EDGE, STAGES, OUTPUT = "Look", "Model", "Edge of the person", "Machine", "Output"
FACES = "Faces"

_MATTE, _SEGMENT, _BACKENDS = config.MatteConfig(), config.SegmentConfig(), config.BackendConfig()
_FACE = config.FaceConfig()


class GroupedCommand(typer.core.TyperCommand):
    """A command whose long help is divided by ``rich_help_panel``, in plain text.

    typer itself groups only in rich markup, whose import would triple the time to the help.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                is_argument = param.param_type_name == "argument"
                panel = getattr(param, "rich_help_panel", None)
                title = "Arguments" if is_argument else panel or "Other"
                groups.setdefault(title, []).append(record)
        for title, records in groups.items():
            with formatter.section(title):
                formatter.write_dl(records)


def examples(*commands: str) -> str:
    """The end of a command's help: how it is used, line by line."""
    return "\b\nExamples:\n" + "\n".join(f"  bgsoft {command}" for command in commands)


def _complete(words: list[str]) -> Callable[[str], list[str]]:
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def complete_preset(incomplete: str) -> list[str]:
    """Names of presets that begin so, for the shell."""
    from bgsoft.presets import list_presets

    return [path.stem for path in list_presets() if path.stem.startswith(incomplete)]


def _complete_model(incomplete: str) -> list[str]:
    from bgsoft.models.catalog import SEGMENTATION_FAMILIES, catalog

    return [
        spec.name
        for spec in catalog().values()
        if spec.family in SEGMENTATION_FAMILIES and spec.name.startswith(incomplete)
    ]


def _flag(name: str, metavar: str, help: str, panel: str, **more: Any) -> Any:
    return typer.Option(
        name, metavar=metavar, help=help, rich_help_panel=panel, show_default=False, **more
    )


def _choice_flag(name: str, kind: type[StrEnum], help: str, panel: str) -> Any:
    words = [member.value for member in kind]
    return _flag(name, "|".join(words), help, panel, autocompletion=_complete(words))


Flag: TypeAlias = str | None

Preset = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME|FILE.toml",
        rich_help_panel=LOOK,
        autocompletion=complete_preset,
        help="Start from these settings (see: bgsoft presets list); other flags win over it.",
    ),
]
Effect = Annotated[
    Flag,
    _choice_flag(
        "--effect",
        config.EffectKind,
        "What becomes of the background; alpha makes it transparent, matte writes the mask."
        " [default: blur]",
        LOOK,
    ),
]
Strength = Annotated[
    Flag,
    _flag(
        "--strength",
        "PCT",
        "How strong. blur, bokeh, pixelate: size in percent of the frame height, 0 to 25;"
        " dim: percent of light taken away, 0 to 100."
        f" [default: blur {config.DEFAULT_STRENGTH_PCT[config.EffectKind.BLUR]:g},"
        f" bokeh {config.DEFAULT_STRENGTH_PCT[config.EffectKind.BOKEH]:g},"
        f" pixelate {config.DEFAULT_STRENGTH_PCT[config.EffectKind.PIXELATE]:g},"
        f" dim {config.DEFAULT_STRENGTH_PCT[config.EffectKind.DIM]:g}]",
        LOOK,
    ),
]
Background = Annotated[
    Flag,
    _flag(
        "--background",
        "FILE|COLOR",
        "Picture, video (looped), or colour like '#00b140' or green, to put behind people."
        " Without --effect it also chooses the effect.",
        LOOK,
    ),
]
Model = Annotated[
    Flag,
    _flag(
        "--model",
        "NAME|FILE.onnx",
        "What finds the people: a name from bgsoft models list, or your own ONNX file with a"
        f" FILE.toml beside it. [default: {_SEGMENT.model}]",
        MODEL,
        autocompletion=_complete_model,
    ),
]
MatteFlag = Annotated[
    Flag,
    _choice_flag(
        "--matte",
        config.Looks,
        "How thoroughly people are looked for. standard: two models, and a close look at the"
        f" people. best: all of it on every frame, and mirrored. [default: {_SEGMENT.looks}]",
        MODEL,
    ),
]
MaskEvery = Annotated[
    Flag,
    _flag(
        "--mask-every",
        "N",
        f"Look for people on every Nth frame only, 1 to 300. [default: {_SEGMENT.mask_every}]",
        MODEL,
    ),
]
Similarity = Annotated[
    Flag,
    _flag(
        "--similarity",
        "DB",
        "Keep the last mask while the picture stays this similar, in dB of PSNR, 0 to 100, or off."
        " [default: off]",
        MODEL,
    ),
]
Face = Annotated[
    Flag,
    _choice_flag(
        "--face",
        config.FaceMode,
        "guard: faces that the mask missed stay sharp. main: only the main person does."
        " anonymize: other people's faces are blurred beyond recognition. [default: guard]",
        FACES,
    ),
]
Subjects = Annotated[
    Flag,
    _flag(
        "--subjects",
        "N",
        "How many people are main for --face main or anonymize: the largest, most central, longest"
        f" in sight; 0 anonymizes everybody. [default: {_FACE.subjects}]",
        FACES,
    ),
]
FaceEvery = Annotated[
    Flag,
    _flag(
        "--face-every",
        "N",
        "Look for new faces on every Nth frame; known ones are followed on all."
        f" [default: {config.DEFAULT_DETECT_EVERY}, anonymize: 1]",
        FACES,
    ),
]
SmallFaces = Annotated[
    bool,
    typer.Option(
        "--small-faces",
        rich_help_panel=FACES,
        show_default=False,
        help="Also look for faces under an eighth of the frame height; main and anonymize always"
        " do.",
    ),
]
Threshold = Annotated[
    Flag,
    _flag(
        "--threshold",
        "0..1",
        "How sure the model must be that a pixel is a person; off takes its answer as opacity."
        f" [default: {_MATTE.threshold}]",
        EDGE,
    ),
]
Softness = Annotated[
    Flag,
    _flag(
        "--softness",
        "0..1",
        "Width of the soft step around the threshold; 0 is a hard edge."
        f" [default: {_MATTE.softness}]",
        EDGE,
    ),
]
MinArea = Annotated[
    Flag,
    _flag(
        "--min-area",
        "0..1",
        "Islands and holes smaller than this fraction of the frame are removed."
        f" [default: {_MATTE.min_area}]",
        EDGE,
    ),
]
Smooth = Annotated[
    Flag,
    _flag("--smooth", "0..1", f"Rounds the outline. [default: {_MATTE.smooth}]", EDGE),
]
Expand = Annotated[
    Flag,
    _flag(
        "--expand",
        "PCT",
        "Move the edge outwards, or inwards if negative; percent of the frame height, -5 to 5."
        f" [default: {_MATTE.expand_pct:g}]",
        EDGE,
    ),
]
Feather = Annotated[
    Flag,
    _flag(
        "--feather",
        "PCT",
        "Extra soft rim outside the person, percent of the frame height, 0 to 10."
        f" [default: {_MATTE.feather_pct:g}]",
        EDGE,
    ),
]
Temporal = Annotated[
    Flag,
    _flag(
        "--temporal",
        "0..1",
        f"Steadies the edge over time; 0 is off, 1 the heaviest. [default: {_MATTE.temporal}]",
        EDGE,
    ),
]
RefineFlag = Annotated[
    Flag,
    _choice_flag(
        "--refine", config.Refine, f"Fit the edge to the picture. [default: {_MATTE.refine}]", EDGE
    ),
]
Decode = Annotated[
    Flag,
    _choice_flag("--decode", config.DecodeBackend, "Where to decode. [default: auto]", STAGES),
]
Infer = Annotated[
    Flag,
    _choice_flag("--infer", config.InferBackend, "Where the model runs. [default: auto]", STAGES),
]
Composite = Annotated[
    Flag,
    _choice_flag(
        "--composite",
        config.CompositeBackend,
        "Where matte and effect are made. [default: auto]",
        STAGES,
    ),
]
Encode = Annotated[
    Flag,
    _choice_flag("--encode", config.EncodeBackend, "Where to encode. [default: auto]", STAGES),
]
Gpu = Annotated[
    Flag,
    _flag("--gpu", "N", "Which GPU, counted from 0. [default: the first]", STAGES),
]
RequireGpu = Annotated[
    bool,
    typer.Option(
        "--require-gpu",
        rich_help_panel=STAGES,
        show_default=False,
        help="Fail rather than run any stage on the CPU.",
    ),
]
Batch = Annotated[
    Flag,
    _flag("--batch", "N", "Frames worked on at a time, 1 to 64, or auto. [default: auto]", STAGES),
]
PrecisionFlag = Annotated[
    Flag,
    _choice_flag(
        "--precision",
        config.Precision,
        f"Number format of the model. [default: {_BACKENDS.precision}]",
        STAGES,
    ),
]
CodecFlag = Annotated[
    Flag,
    _choice_flag(
        "--codec",
        config.Codec,
        "Video codec of the output; auto takes h264 where the container, bit depth and effect"
        " allow. [default: auto]",
        OUTPUT,
    ),
]
Quality = Annotated[
    Flag,
    _flag(
        "--quality",
        "N",
        "The encoder's own quality number (CRF, CQ or qscale): lower is better and larger."
        " [default: by codec; h264: 18]",
        OUTPUT,
    ),
]
Speed = Annotated[
    Flag,
    _flag(
        "--speed",
        "PRESET",
        "The encoder's own preset: x264/x265 ultrafast to veryslow, AV1 and VP9 a number,"
        " NVENC P1 to P7. [default: by codec; h264: veryfast]",
        OUTPUT,
    ),
]
Threads = Annotated[
    Flag,
    _flag(
        "--threads",
        "N",
        "Cores to plan for: decoder, picture and encoder, 1 to 256; 0 is all there are."
        f" [default: {config.BackendConfig().threads}]",
        STAGES,
    ),
]
