"""The page in headless Chromium, where one is installed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from bgsoft.review.review import write_review
from tests.chromium import CHROMIUM, FLAGS, needs_chromium
from tests.unit.review.pages import room, write, write_report

SCRIPT = """
const press = (key) => document.dispatchEvent(new KeyboardEvent("keydown", { key }));
const at = () => document.activeElement.id || "-";
const seen = [];
for (const key of ["j", "j", "j", "k"]) { press(key); seen.push(at()); }
press("b");
seen.push(getComputedStyle(document.querySelector(".box")).display);
marks[1].dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true }));
seen.push(at());
const pointer = (kind, x, y) => {
  const target = document.querySelector("#d2 figure div"), r = target.getBoundingClientRect();
  const clientX = r.left + x * r.width, clientY = r.top + y * r.height;
  target.dispatchEvent(new PointerEvent(kind, { clientX, clientY, bubbles: true }));
};
pointer("pointerdown", 0.75, 0.5);
pointer("pointermove", 0.25, 0.9);
pointer("pointerup", 0.25, 0.9);
seen.push(document.querySelector("#d2 pre").textContent.match(/box = "(.*)"/)[1]);
press("c");
const pictures = [...document.images];
addEventListener("load", () => setTimeout(() => {
  seen.push(pictures.every((picture) => picture.complete && picture.naturalWidth > 0));
  seen.push(document.querySelectorAll("button")[1].textContent);
  const loaded = performance.getEntriesByType("resource");
  seen.push(loaded.filter((each) => !each.name.startsWith("data:")).length);
  document.title = seen.join(" ");
}, 100));
"""

pytestmark = needs_chromium


def test_keys_go_from_doubt_to_doubt(tmp_path: Path) -> None:
    assert CHROMIUM is not None
    pictures = room(30)
    pair = write(tmp_path / "in.mkv", pictures), write(tmp_path / "out.mkv", pictures)
    doubtful = [{"frame": 9 * n, "boxes": [[90 * n, 40, 90 * n + 40, 90]]} for n in range(3)]
    report = write_report(tmp_path / "r.json", *pair, [20.0] * 30, doubtful=doubtful)
    page = tmp_path / "page.html"
    write_review(*pair, page, report=report)
    page.write_text(page.read_text().replace("</script>", SCRIPT + "</script>"))
    more = (f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", "--dump-dom")
    command = [CHROMIUM, *FLAGS, *more, page.as_uri()]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    title = re.search("<title>(.*)</title>", shown)
    assert title is not None
    assert title[1] == "d1 d2 d3 d2 none d2 80,90,160,72 true Copied 0"
