"""Names of flags and commands in other programs; errors suggest ours.

The tables contain names of ffmpeg, OBS, rembg and backgroundremover, and likely guesses.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from bgsoft.suggestions import did_you_mean

FLAGS: Mapping[str, tuple[str, ...]] = {
    "IN and OUT without a flag": ("-i", "-o", "--input", "--output", "--in", "--out"),
    "--background FILE|COLOR": (
        *("--bg", "--bgcolor", "--bg-color", "--background-color", "--color", "--colour"),
        *("--image", "--background-image", "--background-video", "--virtual-background"),
        *("--backgroundimage", "--backgroundvideo", "--bgc", "-bgc", "-bi", "-bc", "-bv"),
    ),
    "--effect blur or bokeh, with --strength PCT": ("--blur", "--bokeh"),
    "--strength PCT": (
        *("--sigma", "--radius", "--intensity", "--amount", "--blur-strength"),
        "--blur-background",
    ),
    "--preset cutout": (
        *("--alpha", "--transparent", "--remove", "--remove-background", "--cutout"),
        *("--alpha-matting", "--transparentvideo", "-tv", "-a", "-ae", "-af", "-ab", "-az"),
    ),
    "--preset green": ("--green", "--greenscreen", "--green-screen", "--chroma-key"),
    "--effect matte": ("--mask", "--only-mask", "--only_mask", "--mattekey", "-om", "-mk"),
    "--matte fast, standard or best": ("--fast", "--best", "--hq", "--high-quality"),
    "--model NAME": ("-m", "--net", "--network"),
    "--feather PCT": ("--edge", "--edge-blur", "--soften"),
    "--expand PCT": ("--mask-expansion",),
    "--smooth 0..1": ("--smooth-contour", "--post-process-mask", "-ppm"),
    "--min-area 0..1": ("--contour-filter",),
    "--temporal 0..1": ("--temporal-smooth-factor", "--temporal-smoothing"),
    "--similarity DB": ("--image-similarity",),
    "--mask-every N": ("--calculate-mask", "--mask-every-x-frames"),
    "--face anonymize": ("--anonymize", "--anonymise", "--blur-faces", "--faces-blur"),
    "--quality N": ("--crf", "-crf", "-q:v", "-qp", "--qp", "--cq", "-cq"),
    "--encoder-option b=4M": ("--bitrate", "-b", "-b:v", "--video-bitrate", "--rate-control"),
    "--codec NAME": (
        *("-c", "-c:v", "-codec", "-codec:v", "-vcodec", "--vcodec", "--video-codec", "--encoder"),
    ),
    "--start TIME": ("-ss", "--ss", "--seek", "--from-time"),
    "--duration TIME": (
        *("-t", "-to", "--to-time", "--end", "--length", "--trim", "-fl", "--framelimit"),
    ),
    "--fps N (of pictures that are read; videos keep their frames)": (
        *("-r", "-fr", "--framerate", "--frame-rate"),
    ),
    "--overwrite": ("--force", "--replace", "--yes"),
    "--skip-existing": ("-n", "--no-clobber"),
    "--gpu N or --infer NAME": ("--device", "--cuda", "--use-gpu", "--gpus"),
    "--batch N": ("-gb", "--gpubatchsize"),
    "--infer cpu": ("--cpu", "--no-gpu"),
    "--threads N": ("-threads", "--cores", "--cpus"),
    "--jobs N": ("--workers", "--parallel", "-p", "-wn", "--workernodes"),
    "--speed PRESET for the encoder, or --preset NAME": ("-preset", "--encoder-preset"),
    "--progress json or --report FILE.json": ("--json", "--log"),
    "--verbose": ("--debug", "--loglevel", "-loglevel"),
    "--quiet": ("--silent",),
    "--to TARGET": ("--virtual-camera", "--virtual-cam"),
}
"""Our flags → the names in other programs."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "render IN [OUT]": (
        *("blur", "soften", "convert", "process", "run", "apply", "encode", "transcode"),
        *("video", "image", "photo", "file", "start", "replace", "background"),
    ),
    "render IN --preset cutout": ("remove", "cutout", "cut", "matte", "rembg", "i", "extract"),
    "render IN --subjects 0": ("anonymize", "anonymise", "hide"),
    "batch FOLDER OUT_DIR": ("folder", "dir", "directory", "all", "p", "watch", "queue"),
    "live SOURCE --to TARGET": ("webcam", "camera", "cam", "stream", "virtualcam"),
    "preview IN OUT.png": ("frame", "look", "try", "test", "show"),
    "bench": ("benchmark", "speed"),
    "doctor": ("check", "info", "diagnose", "gpu", "status", "devices"),
    "models list": ("model", "download", "d", "pull"),
    "presets list": ("preset", "list", "effects"),
    "compare A B": ("diff", "psnr", "vmaf"),
    "--help": ("help", "usage", "man"),
    "--version": ("version",),
    "doctor (it names the file of your own defaults)": ("config", "settings", "init", "setup"),
}
"""Our command line → the commands in other programs."""


def _inverted(table: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    return {theirs: ours for ours, names in table.items() for theirs in names}


def unknown_flag(flag: str, words: Sequence[str], flags: Collection[str]) -> str:
    """Return the message about a flag that a command does not have.

    Args:
        flag: The flag as parsed: ``-c`` for ``-crf``.
        words: The command line.
        flags: Flags of the command.
    """
    table = _inverted(FLAGS)
    for name in (word.partition("=")[0] for word in words):
        ours = table.get(name)
        if ours is None or name in flags:
            continue
        if all(each.strip(",") in flags for each in ours.split() if each.startswith("--")):
            return f"no such option: {name}; use {ours}"
    for name in words:
        if name.startswith("-") and os.path.exists(name):  # noqa: PTH110 - also of a name too long
            return f"no such option: {flag}; to name the file, write ./{name}"
    near = did_you_mean(flag, flags)
    return f"no such option: {flag}{near if near.startswith(';') else ''}"


def unknown_command(word: str, commands: Collection[str]) -> str:
    """Return the message about a word in place of a command."""
    ours = _inverted(COMMANDS).get(word.lower())
    if ours is None and (Path(word).suffix or "/" in word):
        ours = "render IN [OUT]"
    near = did_you_mean(word, commands)
    return f"no such command: {word}{near if ours is None else f'; use bgsoft {ours}'}"
