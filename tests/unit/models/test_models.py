from __future__ import annotations

import hashlib
import http.server
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bgsoft.cache import CACHE_VARIABLE
from bgsoft.errors import ConfigError, ModelDownloadError, ModelError, ModelIntegrityError
from bgsoft.models import cache, catalog
from bgsoft.models.families import SEGMENTATION_FAMILIES
from bgsoft.models.onnx_file import read_signature
from bgsoft.settings.config import Precision
from tests.outside_models import write_swapped
from tests.permissions import closed

CONTENT = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()

FAMILY_NAMES = ", ".join(SEGMENTATION_FAMILIES)
SIDECAR = """
family = "single-shot"
licence = "MIT"
[input]
name = "x"
layout = "NHWC"
color = "BGR"
width = 192
height = 128
mean = [0.5, 0.5, 0.5]
std = [0.5, 0.5, 1]
[[outputs]]
name = "background"
[[outputs]]
name = "y"
channel = 1
activation = "softmax"
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


class Server(http.server.ThreadingHTTPServer):
    requests = 0
    content = CONTENT


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests += 1
        if self.path != "/model.onnx":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *_: object) -> None:
        """Keep the tests quiet."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as instance:
        thread = threading.Thread(target=instance.serve_forever, args=(0.01,))
        thread.start()
        yield instance
        instance.shutdown()
        thread.join()


def url(server: Server, name: str = "model.onnx") -> str:
    return f"http://127.0.0.1:{server.server_port}/{name}"


def pull(address: str, path: Path, **options: object) -> bool:
    return cache.pull(
        address, path, size_bytes=len(CONTENT), checksum=cache.Checksum(SHA256), **options
    )  # type: ignore[arg-type]


def test_catalogue_entries_are_whole() -> None:
    for name, spec in catalog.catalog().items():
        assert spec.name == name
        assert spec.checksum is not None
        assert spec.bytes or spec.checksum.algorithm == "md5"
        assert spec.description
        assert spec.source
        assert spec.licence != "unknown"
        if not spec.embedded:
            assert spec.url is not None
            assert spec.url.startswith("https://")


@pytest.mark.parametrize(
    ("name", "key"), [("face-mesh", "file"), ("face-mesh", "gpu"), ("selfie-general", "fp16")]
)
def test_every_file_of_a_model_is_checked(
    name: str, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = catalog.find_spec(name)
    catalog.check_files(spec)
    copy = tmp_path / "data"
    shutil.copytree(catalog.spec_path(spec).parent, copy)
    monkeypatch.setattr(catalog, "EMBEDDED", copy)
    catalog.check_files(spec)
    named = getattr(spec, key)
    file = copy / (named if key == "file" else named.name)
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(ModelIntegrityError, match=rf"{file.name}: it is damaged \(SHA-256"):
        catalog.check_files(spec)
    file.unlink()
    with pytest.raises(ModelError, match=f"cannot read .*{file.name}"):
        catalog.check_files(spec)


def test_embedded_files_say_what_the_catalogue_does() -> None:
    for spec in (spec for spec in catalog.catalog().values() if spec.embedded):
        found = read_signature(catalog.spec_path(spec))
        taken = {spec.input: (0, *spec.input_shape(1)[1:])}
        if spec.family == "refiner":
            taken["coarse"] = (0, 1, spec.height, spec.width)
        assert found.inputs == taken
        assert spec.output in found.outputs


def test_unknown_name() -> None:
    with pytest.raises(ConfigError, match="did you mean selfie-general"):
        catalog.resolve("selfie-generel")
    with pytest.raises(ConfigError, match=r"choose from selfie-general,.*u2net") as caught:
        catalog.read_spec("x")
    assert "face" not in str(caught.value)
    with pytest.raises(ConfigError, match="did you mean face-mesh"):
        catalog.find_spec("face-mash")


def test_face_models_make_no_masks() -> None:
    with pytest.raises(ConfigError, match="family face-landmarks"):
        catalog.resolve("face-mesh")
    assert catalog.resolve("face-mesh", ("face-landmarks",)).path.is_file()


def test_model_that_was_not_pulled() -> None:
    with pytest.raises(ModelError, match="bgsoft models pull rvm-mobilenetv3"):
        catalog.resolve("rvm-mobilenetv3")


def test_pulled_file_that_is_damaged(cache_folder: Path) -> None:
    spec = catalog.find_spec("rvm-mobilenetv3")
    cache_folder.mkdir(parents=True)
    (cache_folder / spec.file).write_bytes(b"short")
    with pytest.raises(ModelIntegrityError, match="5 bytes, expected 14975696"):
        catalog.resolve("rvm-mobilenetv3")


def own_model(folder: Path, sidecar: str | None) -> str:
    write_swapped(folder / "mine.onnx", 192, 128)
    if sidecar is not None:
        (folder / "mine.toml").write_text(sidecar)
    return str(folder / "mine.onnx")


def test_own_file_with_sidecar(tmp_path: Path) -> None:
    model = catalog.resolve(own_model(tmp_path, SIDECAR))
    spec = model.spec
    assert model.path == tmp_path / "mine.onnx"
    assert model.sha256 == hashlib.sha256(model.path.read_bytes()).hexdigest()
    assert not spec.embedded
    assert (spec.name, spec.licence, spec.family) == ("mine", "MIT", "single-shot")
    assert (spec.input, spec.layout, spec.color_order) == ("x", "NHWC", "bgr")
    assert (spec.width, spec.height) == (192, 128)
    assert (spec.mean, spec.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 1.0))
    assert (spec.output, spec.output_channel, spec.activation) == ("y", 1, "softmax")


def test_a_sidecar_names_no_further_files(tmp_path: Path) -> None:
    model = catalog.resolve(own_model(tmp_path, SIDECAR))
    assert (model.spec.fp16, model.spec.gpu) == (None, None)
    for backend in ("cpu", "cuda", "tensorrt"):
        assert model.for_provider(backend, Precision.FP32) is model


@pytest.mark.parametrize(
    ("sidecar", "words"),
    [
        (None, ["needs mine.toml in the same folder", "family", "[input] width, height"]),
        ("family = 'single-shot'", ["[input] width, height", "[[outputs]]"]),
        ("family = ", ["mine.toml"]),
        ('family = "single-shot"\noutputs = [1]\n[input]', ["[[outputs]]"]),
        (SIDECAR.replace("single-shot", "singleshot"), ["family", "did you mean single-shot?"]),
        (SIDECAR.replace("single-shot", "faces"), [f"(choose from {FAMILY_NAMES}, boxes)"]),
        (SIDECAR.replace("channel = 1", "channel = -1"), ["whole number from 0, not -1"]),
        (SIDECAR.replace("width = 192\n", ""), ["[input] needs width and height"]),
        (SIDECAR.replace("width = 192", "width = '192'"), ["width must be a whole number"]),
        (SIDECAR.replace('name = "x"', "name = 1"), ["name must be a text"]),
        (
            SIDECAR.replace("width = 192", 'width = 192\ndivide_by = "max"'),
            ["did you mean maximum?"],
        ),
        (
            SIDECAR.replace("channel = 1", 'channel = 1\nstretch = "minmax"'),
            ["did you mean min-max?"],
        ),
        (SIDECAR.replace("[0.5, 0.5, 1]", "[0.5, 0, 1]"), ["three numbers, none of them 0"]),
        (SIDECAR.replace("[0.5, 0.5, 1]", "[1]"), ["std must be three numbers"]),
        (SIDECAR.replace("[0.5, 0.5, 1]", "[0.5, nan, 1]"), ["std must be three numbers"]),
        (SIDECAR.replace("[0.5, 0.5, 1]", f"[{10**400}, 1, 1]"), ["std must be three numbers"]),
        (SIDECAR.replace("[0.5, 0.5, 1]", "[0.5, 0.5, 1e-40]"), ["std must be larger"]),
        (SIDECAR.replace("width = 192", f"width = {10**6}"), ["[input] is too large"]),
        (SIDECAR.replace("192", "[" * 10**5), ["nested too deeply"]),
        (SIDECAR + "#" * 2**20, ["larger than 1 MiB"]),
        (SIDECAR.replace("softmax", "softmx"), ["activation", "did you mean softmax?"]),
        (SIDECAR.replace("NHWC", "NHCW"), ["layout", "did you mean"]),
        (SIDECAR.replace("activation", "activate"), ["'activate'", "did you mean activation?"]),
        ("foo = 1\n" + SIDECAR, ["unknown key 'foo'"]),
        (SIDECAR.replace("width", "widht = 3\nwidth"), ["'widht'", "did you mean width?"]),
        ("state = 3\n" + SIDECAR, ["state must be a table"]),
        ("downsample_ratio = 3\n" + SIDECAR, ["downsample_ratio must be a table"]),
        (SIDECAR + "[state]", ['[state] has no effect; it needs family = "recurrent"']),
        (f'sha256 = "{"0" * 64}"\n' + SIDECAR, ["sha256 has no effect in a sidecar"]),
        ('gpu_file = "other.onnx"\n' + SIDECAR, ["gpu_file has no effect in a sidecar"]),
        (SIDECAR.replace("width", "shape = [1]\nwidth"), ["shape has no effect in [input]"]),
        (
            SIDECAR.replace('name = "background"', 'name = "background"\nactivation = "none"'),
            ["activation has no effect in [[outputs]]: the mask is another output"],
        ),
        (SIDECAR + "[[outputs]]\nchannel = 0", ["channel has no effect in [[outputs]]"]),
        (
            'family = "recurrent"\n[input]\nname = "src"\nwidth = 192',
            ["width has no effect in [input]: recurrent models take frames of any size"],
        ),
        (
            SIDECAR + "[downsample_ratio]",
            ['[downsample_ratio] has no effect; it needs family = "recurrent"'],
        ),
    ],
)
def test_bad_sidecars(tmp_path: Path, sidecar: str | None, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        catalog.resolve(own_model(tmp_path, sidecar))
    for word in words:
        assert word in str(caught.value)


def test_own_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        catalog.resolve(str(tmp_path / "gone.onnx"))


def test_models_in_closed_folders(cache_folder: Path) -> None:
    cache_folder.mkdir(parents=True, exist_ok=True)
    with closed(cache_folder):
        for name in ("rvm-mobilenetv3", str(cache_folder / "own.onnx")):
            with pytest.raises((ModelError, ConfigError), match=r"onnx: Permission denied"):
                catalog.resolve(name)


def test_pull(server: Server, cache_folder: Path) -> None:
    path = cache_folder / "model.onnx"
    steps: list[tuple[int, int]] = []
    assert pull(url(server), path, on_progress=lambda done, total: steps.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert steps[-1] == (len(CONTENT), len(CONTENT))
    assert not pull(url(server), path), "what is there and intact is not fetched again"
    assert server.requests == 1


def test_pull_by_md5_and_without_a_size(server: Server, cache_folder: Path) -> None:
    path = cache_folder / "model.onnx"
    told = cache.Checksum(hashlib.md5(CONTENT).hexdigest(), "md5")
    steps: list[tuple[int, int]] = []

    def pull_md5(checksum: cache.Checksum) -> bool:
        return cache.pull(
            url(server),
            path,
            size_bytes=None,
            checksum=checksum,
            on_progress=lambda done, total: steps.append((done, total)),
        )

    with pytest.raises(ModelIntegrityError, match="MD5 differs"):
        pull_md5(told._replace(value="0" * 32))
    assert not path.exists()
    assert pull_md5(told)
    assert not pull_md5(told)
    assert steps[-1] == (len(CONTENT), len(CONTENT))


def test_pull_replaces_a_damaged_file(server: Server, cache_folder: Path) -> None:
    path = cache_folder / "model.onnx"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    assert pull(url(server), path)
    assert path.read_bytes() == CONTENT


def test_pull_of_another_file_keeps_nothing(server: Server, cache_folder: Path) -> None:
    server.content = b"something else"
    with pytest.raises(ModelIntegrityError, match="SHA-256 differs"):
        pull(url(server), cache_folder / "model.onnx")
    assert [p.name for p in cache_folder.iterdir()] == ["model.onnx.lock"]


def test_pull_offline_says_what_to_do_by_hand(server: Server, cache_folder: Path) -> None:
    path = cache_folder / "model.onnx"
    gone = url(server, "moved.onnx")
    with pytest.raises(ModelDownloadError) as caught:
        pull(gone, path)
    assert f"download {gone} and save it as {path}" in str(caught.value)
    assert not path.exists()


def test_pull_into_an_unusable_cache(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ModelDownloadError, match=f"cannot create folder {tmp_path / 'file'}: "):
        pull(url(server), tmp_path / "file" / "model.onnx")
    assert server.requests == 0


def test_processes_that_pull_one_model_fetch_it_once(server: Server, cache_folder: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bgsoft.models.cache import Checksum, pull\n"
        "url, path, size, sha256 = sys.argv[1:]\n"
        "print(pull(url, Path(path), size_bytes=int(size), checksum=Checksum(sha256)))"
    )
    values = [url(server), str(cache_folder / "model.onnx"), str(len(CONTENT)), SHA256]
    pulls = [
        subprocess.Popen([sys.executable, "-c", code, *values], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    results = [pull.communicate(timeout=60)[0].strip() for pull in pulls]
    assert sorted(results) == ["False", "False", "True"]
    assert server.requests == 1


def test_an_unknown_model_is_offered_those_that_find_people() -> None:
    with pytest.raises(ConfigError, match="unknown model 'nobody'") as caught:
        catalog.resolve("nobody")
    assert "selfie-general" in str(caught.value)
    assert "face" not in str(caught.value)
