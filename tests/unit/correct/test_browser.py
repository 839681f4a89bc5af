"""The page in headless Chromium: regions are drawn by the mouse, timed by keys, and saved."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bgsoft.correct.page import CorrectionPage
from bgsoft.rendering.configure import build_config
from bgsoft.settings.config import FaceMode, MatteQuality, RenderConfig
from tests.chromium import Browser, needs_chromium
from tests.unit.review.pages import room, write

pytestmark = [needs_chromium, pytest.mark.slow]

MOVING = """\
[[region]]
action = "drop"  # by hand
keys = [{ at = 0, box = "0,0,40,40" }, { at = 1, box = "50%,0,40,40" }]
"""
SHOWN = "document.body.dataset.shown === '{}' && !document.querySelector('#stage.stale')"


class Editor:
    def __init__(self, browser: Browser) -> None:
        self.browser = browser

    def at(self, x: float, y: float, picture: str = "source") -> tuple[float, float]:
        """Where a point of the video is in the window."""
        sides = f"(r => [r.x, r.y, r.width, r.height])({picture}.getBoundingClientRect())"
        left, top, width, height = self.browser.evaluate(sides)
        return left + x * width / 320, top + y * height / 180

    def text(self, selector: str) -> str:
        return str(self.browser.evaluate(f"document.querySelector('{selector}').textContent"))

    def brightness(self, x: int, y: int) -> float:
        """Of the shown matte, from 0 to 255."""
        script = f"""(async () => {{
            await matte.decode();
            const canvas = new OffscreenCanvas(320, 180).getContext("2d");
            canvas.drawImage(matte, 0, 0, 320, 180);
            return canvas.getImageData({x}, {y}, 1, 1).data[0];
        }})()"""
        return float(self.browser.evaluate(script))


def settings(clip: Path) -> RenderConfig:
    flags: dict[str, Any] = {
        "face": {"mode": FaceMode.OFF},
        "segment": {"matte": MatteQuality.FAST},
    }
    return build_config(clip, Path("/dev/null"), preset="soft", flags=flags)


def test_regions_are_drawn_timed_and_saved(tmp_path: Path) -> None:
    clip, file = write(tmp_path / "in.mkv", room(50)), tmp_path / "in.regions.toml"
    file.write_text(MOVING)
    with CorrectionPage(settings(clip), file) as page, Browser(tmp_path / "profile") as browser:
        browser.open(page.url)
        browser.wait(SHOWN.format(0))
        editor = Editor(browser)
        assert editor.brightness(150, 150) < 128

        # A rectangle of what is kept, from frame 10 to 12 on.
        browser.key("k")
        browser.drag(editor.at(100, 100), editor.at(120, 110), editor.at(200, 160))
        browser.wait("document.querySelectorAll('#regions li').length === 2")
        browser.wait(SHOWN.format(0))
        assert editor.brightness(150, 150) > 250
        assert editor.brightness(30, 150) < 128
        for _ in range(10):
            browser.key("ArrowRight")
        browser.key("[")
        browser.key("ArrowRight")
        browser.key("ArrowRight")
        browser.key("]")
        browser.key("ArrowRight")
        browser.wait(SHOWN.format(13))
        assert "0:00.400 to 0:00.520" in editor.text("#regions li.here .title")
        assert editor.brightness(150, 150) < 128

        # An ellipse in the result, moved by its middle, and a polygon after a wrong corner.
        browser.key("e")
        browser.click("[data-action=hide][role=radio]")
        browser.drag(editor.at(20, 20, "result"), editor.at(60, 50, "result"))
        browser.drag(editor.at(40, 35), editor.at(45, 30), editor.at(140, 55))
        browser.key("p")
        browser.key("d")
        for corner in ((300, 10), (310, 12)):
            browser.drag(editor.at(*corner), editor.at(*corner))
        browser.key("Escape")
        for corner in ((220, 20), (300, 30), (260, 90), (220, 20)):
            browser.drag(editor.at(*corner), editor.at(*corner))

        # The timeline: a click in its middle, and a drag to its end.
        left, top, width = browser.evaluate(
            "(r => [r.x, r.y, r.width])(timeline.getBoundingClientRect())"
        )
        browser.drag((left + width * 0.505, top + 30), (left + width * 0.505, top + 30))
        browser.wait(SHOWN.format(25))
        browser.drag((left + 5, top + 30), (left + width / 2, top + 30), (left + width - 1, top))
        browser.wait(SHOWN.format(49))
        assert "1.960" in editor.text("#clock")

        # A region too many goes, comes back, and goes.
        browser.click("#add")
        browser.click("#regions li.here .title")
        browser.key("Delete")
        assert browser.evaluate("regions.length") == 4
        browser.click("#undo")
        assert browser.evaluate("regions.length") == 5
        browser.click("#regions li:last-child .title")
        browser.key("Delete")

        assert file.read_text() == MOVING
        browser.click("#save")
        browser.wait("message.textContent.startsWith('Saved')")
        loaded = browser.evaluate(
            "performance.getEntriesByType('resource').map((each) => new URL(each.name).host)"
        )
        # A blob has no host.
        assert set(loaded) <= {page.url.split("/")[2], ""}
    assert file.read_text().startswith(MOVING)
    _, keep, hide, drop = tomllib.loads(file.read_text())["region"]
    assert (keep["action"], keep["from"], keep["to"]) == ("keep", 0.4, 0.52)
    assert (hide["action"], drop["action"]) == ("hide", "drop")
    assert set(hide) == {"action", "ellipse"}
    for text, place in (
        (keep["box"], "100,100,100,60"),
        (hide["ellipse"], "120,40,40,30"),
        (drop["polygon"], "220,20 300,30 260,90"),
    ):
        numbers = [
            [int(part) for part in each.replace(" ", ",").split(",")] for each in (text, place)
        ]
        assert np.abs(np.subtract(*numbers)).max() <= 1, text


def test_nothing_is_lost_that_changes_while_regions_are_saved(tmp_path: Path) -> None:
    clip, file = write(tmp_path / "in.mkv", room(3)), tmp_path / "in.regions.toml"

    def boxes() -> list[str]:
        return [region["box"] for region in tomllib.loads(file.read_text())["region"]]

    def save() -> None:
        browser.evaluate("dispatchEvent(new KeyboardEvent('keydown', { key: 's', ctrlKey: true }))")

    def type_place(text: str) -> None:
        browser.evaluate("document.querySelector('#field-place').select()")
        browser.call("Input.insertText", text=text)

    with CorrectionPage(settings(clip), file) as page, Browser(tmp_path / "profile") as browser:
        browser.open(page.url)
        browser.wait(SHOWN.format(0))
        editor = Editor(browser)
        browser.click("#add")
        type_place("1,2,30,40")
        save()  # the field still has the focus
        browser.wait("message.textContent.startsWith('Saved')")
        assert boxes() == ["1,2,30,40"]
        type_place("5,6,30,40")
        with page._working:  # its answers wait
            save()
            browser.key("r")
            browser.drag(editor.at(100, 50), editor.at(120, 60), editor.at(200, 120))
            browser.evaluate("message.textContent = ''")
        browser.wait("message.textContent.startsWith('Saved')")
        assert boxes() == ["5,6,30,40"]
        assert browser.evaluate("regions.length === 2 && !$('save').disabled")

        # An error stays until a later try; a result does not end it.
        text = file.read_text()
        file.write_text("")
        save()
        browser.wait("message.textContent.includes('another program')")
        browser.key("ArrowRight")
        browser.wait(SHOWN.format(1))
        assert "another program" in editor.text("#message")
        file.write_text(text)
        save()
        browser.wait("message.textContent.startsWith('Saved')")
        assert boxes()[0] == "5,6,30,40"
        assert len(boxes()) == 2
