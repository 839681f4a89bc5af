from __future__ import annotations

import copy
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bgsoft.cli.doctor import report_lines
from bgsoft.cli.main import main
from bgsoft.diagnose import doctor, full
from bgsoft.diagnose.doctor import DoctorReport
from bgsoft.diagnose.full import CheckResult
from bgsoft.models import cache, catalog
from bgsoft.rendering.backends import Candidate
from bgsoft.rendering.configure import build_config
from bgsoft.settings.presets import list_presets, user_folder
from tests.face_clips import SAMPLE
from tests.permissions import closed

from .conftest import Run

SHIPPED = [path.stem for path in list_presets()]


@pytest.fixture(scope="module")
def _examined() -> DoctorReport:
    return doctor.examine()


@pytest.fixture
def examined(_examined: DoctorReport, monkeypatch: pytest.MonkeyPatch) -> DoctorReport:
    """Findings of the doctor on this machine, made once for several tests; each may change its own
    copy."""
    report = copy.deepcopy(_examined)
    monkeypatch.setattr(doctor, "examine", lambda _gpu: report)
    return report


def test_presets_list(run: Run) -> None:
    outcome = run("presets", "list")
    assert outcome.code == 0
    assert [line.split()[0] for line in outcome.out.splitlines()] == SHIPPED


def test_presets_list_names_a_broken_user_preset(run: Run, tmp_path: Path) -> None:
    user_folder().mkdir(parents=True)
    (user_folder() / "mine.toml").write_text("[effekt]\n")
    line = run("presets", "list").out.splitlines()[-1]
    assert line.startswith("mine")
    assert "did you mean effect?" in line


def test_presets_list_of_a_closed_folder_and_of_control_characters(run: Run) -> None:
    folder = user_folder()
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text('description = "a\\nb \\u001b[31mred"')
    outcome = run("presets", "list")
    assert outcome.out.splitlines()[-1] == r"mine       a\nb \x1b[31mred"
    with closed(folder):
        outcome = run("presets", "list")
    assert (outcome.code, len(outcome.out.splitlines())) == (0, len(SHIPPED))
    assert f"cannot read {folder}: Permission denied\n" in outcome.err


def test_presets_show_is_the_file(run: Run) -> None:
    outcome = run("presets", "show", "obs")
    path = next(p for p in list_presets() if p.stem == "obs")
    assert outcome.out.splitlines()[1:] == path.read_text().splitlines()


@pytest.mark.parametrize("name", SHIPPED)
def test_presets_show_all_loads_to_the_same_settings(run: Run, tmp_path: Path, name: str) -> None:
    copy = tmp_path / f"{name}.toml"
    copy.write_text(run("presets", "show", name, "--all").out)
    out = Path("b.mov")
    assert build_config(Path("a"), out, preset=str(copy)) == build_config(
        Path("a"), out, preset=name
    )


def test_presets_show_unknown(run: Run) -> None:
    outcome = run("presets", "show", "sotf")
    assert outcome.code == 2
    assert "did you mean soft?" in outcome.error_line


def test_completion_offers_what_renders(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered(typed: str) -> list[str]:
        monkeypatch.setenv("_BGSOFT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", typed)
        monkeypatch.setenv("COMP_CWORD", "3")
        with pytest.raises(SystemExit):
            main([])
        return capsys.readouterr().out.split()

    embedded = ["selfie-general", "selfie-landscape"]
    pulled = [name for name, spec in catalog.catalog().items() if not spec.embedded]
    assert offered("bgsoft render --model ") == [*embedded, *pulled]
    assert offered("bgsoft models path rvm") == ["rvm-mobilenetv3", "rvm-resnet50"]


def test_models_list(run: Run) -> None:
    lines = run("models", "list").out.splitlines()
    assert [line.split()[0] for line in lines] == list(catalog.catalog())
    assert any("embedded" in line and "Apache-2.0" in line for line in lines)
    assert any("GPL-3.0" in line for line in lines)


def test_models_path(run: Run) -> None:
    path = Path(run("models", "path", "selfie-general").out.strip())
    assert path.stat().st_size == catalog.find_spec("selfie-general").bytes


def test_models_path_not_pulled(run: Run) -> None:
    outcome = run("models", "path", "rvm-mobilenetv3")
    assert outcome.code == 4
    assert "bgsoft models pull rvm-mobilenetv3" in outcome.error_line


def all_of_them(stages: dict[str, list[Candidate]], *_: object) -> Iterator[object]:
    return ((stage, each, None) for stage, found in stages.items() for each in found)


def test_doctor_finds_a_damaged_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled, mesh = (catalog.find_spec(name) for name in ("rvm-mobilenetv3", "face-mesh"))
    path = catalog.spec_path(pulled)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half of it")
    monkeypatch.setattr("bgsoft.diagnose.checks.try_candidates", all_of_them)
    assert run("doctor").code == 0
    data = tmp_path / "data"
    shutil.copytree(catalog.spec_path(mesh).parent, data)
    assert mesh.gpu is not None
    (data / mesh.gpu.name).write_bytes(b"half of it")
    monkeypatch.setattr(catalog, "EMBEDDED", data)
    outcome = run("doctor")
    assert outcome.code == 4
    assert f"{path}: it is damaged" in outcome.out
    assert f"{mesh.gpu.name}: it is damaged" in outcome.error_line


def test_pull_embedded_is_nothing(run: Run) -> None:
    outcome = run("models", "pull", "selfie-general")
    assert outcome.code == 0
    assert "nothing to pull" in outcome.err


def test_pull_says_the_licence_and_wants_a_yes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> bool:
        raise AssertionError("pulled without consent")

    monkeypatch.setattr(cache, "pull", never)
    outcome = run("models", "pull", "rvm-mobilenetv3")
    assert outcome.code == 2
    first, last = outcome.err.splitlines()
    assert "licence GPL-3.0" in first
    assert "--yes" in last


def test_pull_with_consent(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}

    def pull(url: str, path: Path, **options: object) -> bool:
        asked.update(options, url=url, path=path)
        return True

    monkeypatch.setattr(cache, "pull", pull)
    outcome = run("models", "pull", "rvm-mobilenetv3", "--yes")
    spec = catalog.find_spec("rvm-mobilenetv3")
    assert outcome.code == 0
    assert (asked["url"], asked["checksum"]) == (spec.url, spec.checksum)
    assert str(catalog.spec_path(spec)) in outcome.err


ADDRESS = "http://127.0.0.1:1/x.mp4"


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["render", ADDRESS, "out.mp4"], 3),
        (["render", "-q", str(SAMPLE), "out.mp4", "--background", ADDRESS], 2),
        (["render", "-q", str(SAMPLE), ADDRESS], 5),
        (["render", "-q", str(SAMPLE), "out.mp4", "--report", ADDRESS], 5),
        (["preview", ADDRESS, "out.png"], 3),
        (["bench", ADDRESS, "-q"], 3),
        (["compare", ADDRESS, str(SAMPLE)], 3),
    ],
)
def test_an_address_is_no_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, argv: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run(*argv)
    assert outcome.code == code
    assert ADDRESS in outcome.error_line
    assert "is an address" in outcome.error_line
    assert not list(tmp_path.iterdir())


def test_this_machine_renders(examined: DoctorReport) -> None:
    assert examined.problems == []
    assert re.fullmatch(r"\w+, Clang [\d.]+", examined.operations or "")
    for stage, candidates in examined.stages.items():
        assert set(examined.findings[stage]) == {one.name for one in candidates if one.available}
        assert candidates[-1].available
    assert examined.to_dict()["never_run"] == examined.never_run
    lines = report_lines(replace(examined, gpu_driver=None))
    assert lines[-2:] == [
        "Not yet run by bgsoft's developers: inference on TensorRT, encoding on NVENC",
        "A render works, on the CPU. There is no NVIDIA driver.",
    ]


@pytest.mark.usefixtures("examined")
def test_doctor(run: Run) -> None:
    outcome = run("doctor")
    assert outcome.code == 0
    for word in ("onnxruntime", "CPUExecutionProvider", "libx264", "selfie-general", "decode"):
        assert word in outcome.out


@pytest.mark.usefixtures("examined")
def test_doctor_json(run: Run) -> None:
    report = json.loads(run("doctor", "--json").out)
    assert set(report["stages"]) == {"decode", "infer", "composite", "encode"}
    assert report["encoders"]["libx264"] is True
    assert report["problems"] == []
    assert report["models"]["selfie-general"] is None
    assert report["cpu_count"] >= 1
    assert all("cpu" in report["findings"][stage] for stage in report["stages"])
    assert any("NVENC" in part for part in report["never_run"])


@pytest.mark.parametrize(
    ("package", "content", "words"),
    [
        ("onnxruntime", None, "onnxruntime is missing: pip install '.[cpu]'"),
        ("cv2", "raise ImportError('libGL.so')", "cannot load cv2: ImportError: libGL.so"),
    ],
)
def test_doctor_without_a_package(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    package: str,
    content: str | None,
    words: str,
) -> None:
    if content is None:
        monkeypatch.setitem(sys.modules, package, None)  # type: ignore[arg-type]
    else:
        monkeypatch.delitem(sys.modules, package)
        monkeypatch.syspath_prepend(tmp_path)
        (tmp_path / f"{package}.py").write_text(content)
    outcome = run("doctor")
    assert outcome.code == 4
    assert words in outcome.error_line


def test_doctor_tells_whether_the_gpu_would_do(run: Run, examined: DoctorReport) -> None:
    examined.gpu_problems = ["encode would run on the CPU"]
    assert run("doctor").code == 0
    outcome = run("doctor", "--require-gpu")
    assert outcome.code == 4
    assert outcome.error_line == "cannot render on the GPU: encode would run on the CPU"
    examined.gpu_problems = []
    assert run("doctor", "--require-gpu").code == 0


@pytest.mark.usefixtures("examined")
def test_doctor_full_says_what_failed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        CheckResult("exit", "one", "pass", "fine", 0.1),
        CheckResult("exit", "two", "FAIL", "9 dB", 0.1),
    ]
    monkeypatch.setattr(full, "GROUPS", {"exit": dict})
    monkeypatch.setattr(full, "run_group", lambda *_: rows)
    outcome = run("doctor", "--full")
    assert outcome.code == 1
    assert outcome.error_line == "1 of 2 checks failed: 9 dB"
    assert "1 passed, 1 failed, 0 skipped" in outcome.out
    assert json.loads(run("doctor", "--full", "--json").out)["full"][1]["status"] == "FAIL"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("render @ out.mp4", "IN"),
        ("render in.mp4 @", "OUT"),
        ("render in.mp4 out.mp4 --report @", "--report"),
        ("render in.mp4 out.mp4 --matte-out=@", "--matte-out"),
        ("batch @ out", "IN"),
        ("batch in.mp4 @ out", "IN"),
        ("batch in.mp4 @", "OUT_DIR"),
        ("bench @", "IN"),
        ("live @ --loop --share x", "SOURCE"),
        ("preview in.mp4 @", "OUT.png"),
    ],
)
def test_an_empty_argument_is_no_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, name: str
) -> None:
    shutil.copy(SAMPLE, tmp_path / "in.mp4")
    monkeypatch.chdir(tmp_path)
    outcome = run(*(each.replace("@", "") for each in command.split()))
    assert (outcome.code, outcome.error_line) == (2, f"{name} must not be empty")
    assert [each.name for each in tmp_path.iterdir()] == ["in.mp4"]


def test_a_folder_as_out_is_said_to_be_one(run: Run) -> None:
    outcome = run("render", SAMPLE, ".")
    assert (outcome.code, outcome.error_line) == (
        2,
        "cannot write output .: it is a folder; name a file in it",
    )


LONG = 300 * "a"


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("render {clip} {long}.mp4", 5),
        ("render {clip} {long}.mp4 --skip-existing", 5),
        ("render {clip} {long}/o.mp4", 5),
        ("render {clip} {long}/%d.png", 5),
        ("render {clip} o.mp4 --report {long}.json", 5),
        ("render {clip} o.mp4 --face-data {long}.jsonl", 5),
        ("render {long}.mp4 o.mp4", 3),
        ("render {long}/%d.png o.mp4", 3),
        ("render -q {clip} o.mp4 --background {long}.png", 2),
        ("render {clip} o.mp4 --preset {long}", 2),
        ("render {clip} o.mp4 --preset {long}.toml", 2),
        ("render -q {clip} o.mp4 --model {long}.onnx", 2),
        ("preview {clip} {long}.png", 5),
        ("preview {long}.mp4 o.png", 3),
        ("bench {clip} --json {long}.json", 5),
        ("batch {clip} {long}", 5),
        ("batch {clip} out --report {long}.json", 5),
        ("batch {long}.mp4 out", 3),
        ("batch {long} out --watch", 2),
    ],
)
def test_a_name_that_is_too_long(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run(*line.format(clip=SAMPLE, long=LONG).split())
    assert outcome.code == code
    assert LONG in outcome.error_line or code == 2
    assert "Errno" not in outcome.error_line
