"""``bgsoft review`` on the command line."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Run
from tests.unit.review.pages import room, write, write_report


def test_a_page_is_written_and_kept_unless_it_may_be_replaced(run: Run, tmp_path: Path) -> None:
    pictures = room(8)
    source = write(tmp_path / "in.mkv", pictures)
    for picture in pictures[4:]:
        picture[60:120, 100:200] = 235
    result, page = write(tmp_path / "out.mkv", pictures), tmp_path / "new" / "sheet.html"
    report = write_report(tmp_path / "r.json", source, result, [20.0] * 4 + [8.0] * 4)
    command = "review", str(source), str(result), str(page)
    done = run(*command, "--report", str(report))
    assert done.code == 0, done.err
    assert done.err == f"{page}: 1 doubtful place, 0.0 MB\n"
    assert "<article" in page.read_text()
    page.write_text("mine")
    again = run(*command)
    assert again.code == 5
    assert "exists" in again.error_line
    assert page.read_text() == "mine"
    assert run(*command, "-y", "-q").code == 0
    assert "<article" in page.read_text()


def test_wrong_videos_and_pages_are_one_line(run: Run, tmp_path: Path) -> None:
    source, result = write(tmp_path / "in.mkv", room(8)), write(tmp_path / "out.mkv", room(7))
    done = run("review", str(source), str(result), str(tmp_path / "sheet.html"))
    assert done.code == 2
    text = f"cannot review {result}: it has 7 frames, and {source} has 8; name the video that"
    assert done.error_line == f"{text} it was made from, and for a part of it --report or --start"
    begun = run("review", source, result, tmp_path / "sheet.html", "--start", "0:00.04")
    assert (begun.code, begun.err.count("0 doubtful places")) == (0, 1)
    (tmp_path / "sheet.html").unlink()
    named = run("review", str(source), str(result), str(tmp_path / "sheet.pdf"))
    assert named.code == 2
    assert named.error_line.endswith("it is HTML; name a .html file")
    into = run(
        "review", str(source), str(source), str(source.with_suffix(".html")), "--report", "x"
    )
    assert (into.code, "cannot read the report x" in into.error_line) == (2, True)
    own = tmp_path / "in.html"
    own.write_bytes(source.read_bytes())
    over = run("review", str(own), str(result), str(own), "-y")
    assert over.code == 5
    assert own.read_bytes() == source.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.html", "in.mkv", "out.mkv"]
