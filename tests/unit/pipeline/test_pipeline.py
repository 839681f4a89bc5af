from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from bgsoft.errors import InferenceError, RenderCancelledError, StallError, VerificationError
from bgsoft.frame import Frame
from bgsoft.jobs import worker
from bgsoft.pipeline.channel import Channel, ChannelClosedError
from bgsoft.pipeline.metrics import Metrics
from bgsoft.pipeline.runner import Pipeline, RunOptions
from bgsoft.pipeline.trace import TraceRecorder
from bgsoft.ring import RingClosedError
from tests.fakes import FakeDecoder, FakeSink, FakeStage, small_ring


def build(
    decoder: FakeDecoder, stage: FakeStage, sink: FakeSink, *, slots: int = 4, **extra: Any
) -> Pipeline:
    ring, metrics = extra.pop("ring", small_ring(slots)), extra.pop("metrics", Metrics())
    options = RunOptions(**extra)
    return Pipeline(
        decoder=decoder, stage=stage, sink=sink, ring=ring, metrics=metrics, options=options
    )


def acting(
    where: str, action: Callable[[Frame], None], frames: int, **options: int
) -> tuple[FakeDecoder, FakeStage, FakeSink]:
    """Decoder, stage and sink, of which one does something with each frame."""
    decode, segment, picture, encode = (
        action if where == each else lambda _frame: None
        for each in ("decode", "segment", "picture", "encode")
    )
    decoder = FakeDecoder(list(range(frames)), decode)
    return decoder, FakeStage(picture, first=segment, **options), FakeSink(encode)


def alive_stage_threads() -> list[str]:
    """Stage threads of a pipeline that are alive; other tests may have left the lanes of a pool."""
    names = [t.name for t in threading.enumerate()]
    return [n for n in names if n.startswith("bgsoft-") and not n.startswith("bgsoft-lane_")]


def test_every_frame_arrives_once_in_order_with_its_pts() -> None:
    pts = [0, 33, 67, 100, 180, 181] * 1 + list(range(200, 400, 3))
    sink = FakeSink()
    result = build(FakeDecoder(pts), FakeStage(), sink).run()
    assert [seen[1] for seen in sink.seen] == pts
    assert [seen[0] for seen in sink.seen] == list(range(len(pts)))
    assert [seen[2] for seen in sink.seen] == [i % 256 for i in range(len(pts))]
    assert list(result.decoded_pts) == list(result.encoded_pts) == pts
    assert result.last_duration == 40
    assert result.first_frame_seconds is not None
    assert sink.finished
    assert alive_stage_threads() == []


def test_workers_know_every_thread_that_may_be_stuck() -> None:
    before, names = set(alive_stage_threads()), set[str]()
    stage = FakeStage(ahead=1)
    sink = FakeSink(lambda _frame: names.update(alive_stage_threads()))
    build(FakeDecoder(list(range(50))), stage, sink).run()
    assert names - before == worker.STAGE_THREADS


def test_batches_are_full_but_the_last() -> None:
    sink, stage = FakeSink(), FakeStage(batch=2)
    build(FakeDecoder(list(range(7))), stage, sink).run()
    assert stage.sizes == [2, 2, 2, 1]
    assert [seen[1] for seen in sink.seen] == list(range(7))


def test_a_trace_counts_the_frames_under_way() -> None:
    recorder = TraceRecorder()
    pipeline = build(FakeDecoder([1]), FakeStage(), FakeSink(), metrics=Metrics(recorder))
    pipeline.run()
    counted = {e["name"] for e in recorder.to_dict()["traceEvents"] if e["ph"] == "C"}
    assert counted == {"decoded", "finished", "slots in use"}


def test_a_batch_larger_than_the_ring_allows_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 6 slots"):
        build(FakeDecoder([]), FakeStage(batch=3), FakeSink())


@pytest.mark.parametrize(("batch", "held"), [(1, 8), (3, 8), (8, 8), (4, 1), (8, 3)])
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 16, 100])
@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_frames_that_are_held_back_come_once_and_in_order(
    batch: int, held: int, count: int, ahead: int
) -> None:
    """With the fewest slots allowed."""
    pts = [7 * index for index in range(count)]
    sink, stage = FakeSink(), FakeStage(batch=batch, held=held, ahead=ahead)
    result = build(FakeDecoder(pts), stage, sink, slots=2 * batch + stage.held).run()
    assert sink.seen == [(index, pts[index], index) for index in range(count)]
    assert list(result.decoded_pts) == list(result.encoded_pts) == pts
    assert stage.flushed
    assert sink.finished
    assert alive_stage_threads() == []


@pytest.mark.parametrize("slow", ["decode", "segment", "picture", "encode"])
def test_no_thread_waits_for_ever_whichever_is_slow(slow: str) -> None:
    def wait(frame: Frame) -> None:
        time.sleep(0.001)

    decoder, stage, sink = acting(slow, wait, 60, batch=3, held=8, ahead=1)
    build(decoder, stage, sink, slots=20).run()
    assert [seen[0] for seen in sink.seen] == list(range(60))


def test_too_few_slots_for_the_frames_held_back_are_refused() -> None:
    with pytest.raises(ValueError, match="2 with 8 frames held back: it needs 12 slots"):
        build(FakeDecoder([]), FakeStage(batch=2, held=8), FakeSink(), slots=11)


@pytest.mark.parametrize("at", [0, 5, 19])
def test_an_error_in_a_held_frame_stops_the_run(at: int) -> None:
    """The last held frames are released at the end of the run."""

    def fail(frame: Frame) -> None:
        if frame.index == at:
            raise InferenceError("broken", pts=frame.pts)

    sink = FakeSink()
    with pytest.raises(InferenceError, match="broken") as caught:
        build(FakeDecoder(list(range(20))), FakeStage(fail, held=8), sink, slots=10).run()
    assert (caught.value.stage, caught.value.pts) == ("picture", at)
    assert len(sink.seen) <= at
    assert not sink.finished
    assert alive_stage_threads() == []


def test_a_frame_that_the_stage_keeps_fails_the_run() -> None:
    class Forgetful(FakeStage):
        def flush(self) -> list[Frame]:
            return super().flush()[1:]

    with pytest.raises(VerificationError, match="9 frames were decoded, 8 encoded"):
        build(FakeDecoder(list(range(9))), Forgetful(held=4), FakeSink(), slots=6).run()


def test_a_slow_sink_bounds_the_frames_under_way() -> None:
    ring = small_ring(4)
    most = 0

    def look(_frame: Frame) -> None:
        nonlocal most
        most = max(most, ring.in_use)
        time.sleep(0.002)

    build(FakeDecoder(list(range(50))), FakeStage(), FakeSink(look), ring=ring).run()
    assert 1 <= most <= 4
    assert ring.in_use == 0


@pytest.mark.parametrize("held", [0, 8])
@pytest.mark.parametrize("where", ["decode", "segment", "picture", "encode"])
def test_the_first_error_stops_all_threads_and_names_its_stage(where: str, held: int) -> None:
    def fail(frame: Frame) -> None:
        if frame.index == 7:
            raise InferenceError("broken", pts=frame.pts)

    decoder, stage, sink = acting(where, fail, 1000, held=held, ahead=int(where == "segment"))
    with pytest.raises(InferenceError, match="broken") as caught:
        build(decoder, stage, sink, slots=4 + stage.held).run()
    assert (caught.value.stage, caught.value.pts) == (where, 7)
    assert alive_stage_threads() == []
    assert decoder.closed
    assert not sink.finished


@pytest.mark.parametrize("where", ["decode", "segment", "picture", "encode"])
@pytest.mark.parametrize("how", ["stall", "cancel"])
def test_a_stage_that_never_returns_ends_the_run(where: str, how: str) -> None:
    back, reached, cancel = threading.Event(), threading.Event(), threading.Event()

    def hang(frame: Frame) -> None:
        if frame.index == 7:
            reached.set()
            back.wait()

    decoder, stage, sink = acting(where, hang, 1000, ahead=1)
    seconds = 0.4 if how == "stall" else None
    pipeline = build(decoder, stage, sink, stall_seconds=seconds, leave_seconds=0.2, cancel=cancel)
    if how == "cancel":
        threading.Thread(target=lambda: (reached.wait(), cancel.set())).start()
    with pytest.raises(StallError if how == "stall" else RenderCancelledError) as caught:
        pipeline.run()
    assert caught.value.stage == (where if how == "stall" else None)
    assert pipeline.stuck
    assert alive_stage_threads() == [f"bgsoft-{where}"]
    back.set()
    while alive_stage_threads():
        time.sleep(0.01)
    assert not sink.finished


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_comes_out_though_the_encoder_does_not_return(waits: bool) -> None:
    """Unless the encoder waits for the consumer of the frames."""
    back, reached, failed = threading.Event(), threading.Event(), threading.Event()

    def fail(frame: Frame) -> None:
        if frame.index == 7:
            assert reached.wait(30)
            failed.set()
            raise InferenceError("broken")

    def hang(_frame: Frame) -> None:
        reached.set()
        back.wait()

    extra = {
        "stall_seconds": None,
        "leave_seconds": 0.2,
        "outside": time.monotonic_ns if waits else int,
    }
    decoder, stage, sink = FakeDecoder(list(range(16))), FakeStage(fail), FakeSink(hang)
    pipeline = build(decoder, stage, sink, slots=16, **extra)
    take = (failed.wait, partial(back.wait, 0.6 if waits else 8), back.set)
    threading.Thread(target=lambda: [step() for step in take], daemon=True).start()
    with pytest.raises(InferenceError, match="broken"):
        pipeline.run()
    assert bool(pipeline.stuck) is not waits
    back.set()
    while alive_stage_threads():
        time.sleep(0.01)


def test_a_slow_render_has_not_stalled() -> None:
    """The render, and the models' first run, take longer than the limit for one frame."""

    class SlowStart(FakeStage):
        def start(self) -> None:
            time.sleep(1.6)

    stage = SlowStart(lambda _frame: time.sleep(0.05), batch=2, held=3)
    sink = FakeSink()
    pipeline = build(FakeDecoder(list(range(36))), stage, sink, slots=7, stall_seconds=1.5)
    pipeline.run()
    assert len(sink.seen) == 36
    assert not pipeline.stuck


@pytest.mark.parametrize("held", [0, 8])
def test_cancelling_stops_the_run(held: int) -> None:
    cancel = threading.Event()

    def stop(frame: Frame) -> None:
        if frame.index == 3:
            cancel.set()
        time.sleep(0.005)

    stage, sink = FakeStage(held=held), FakeSink(stop)
    decoder = FakeDecoder(list(range(100_000)))
    with pytest.raises(RenderCancelledError):
        build(decoder, stage, sink, slots=4 + held, cancel=cancel).run()
    assert not stage.flushed
    assert not sink.finished
    assert alive_stage_threads() == []


def test_an_error_in_the_progress_callback_stops_the_run() -> None:
    def tick() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(
            FakeDecoder(list(range(100_000))),
            FakeStage(),
            FakeSink(lambda _f: time.sleep(0.002)),
            on_tick=tick,
        ).run()
    assert alive_stage_threads() == []


def test_a_changed_timestamp_fails_the_run() -> None:
    def shift(frame: Frame) -> None:
        if frame.index == 2:
            frame.pts += 1

    with pytest.raises(VerificationError, match="the pts of frame 2, 20, became 21"):
        build(FakeDecoder([0, 10, 20, 30]), FakeStage(shift), FakeSink()).run()


def test_no_frames_is_an_empty_result() -> None:
    result = build(FakeDecoder([]), FakeStage(), FakeSink()).run()
    assert len(result.encoded_pts) == 0
    assert result.first_frame_seconds is None


def test_ring_refuses_a_double_release() -> None:
    ring = small_ring(2)
    planes = ring.acquire()
    ring.release(planes)
    with pytest.raises(ValueError, match="not in use"):
        ring.release(planes)


def test_ring_close_wakes_a_waiter() -> None:
    ring = small_ring(1)
    ring.acquire()
    woken: list[bool] = []

    def wait() -> None:
        with pytest.raises(RingClosedError):
            ring.acquire()
        woken.append(True)

    thread = threading.Thread(target=wait)
    thread.start()
    ring.close()
    thread.join(5)
    assert woken == [True]


def test_ring_hands_out_distinct_slots() -> None:
    ring = small_ring(4)
    slots = [ring.acquire() for _ in range(4)]
    assert len({id(s.luma) for s in slots}) == 4
    assert ring.in_use == 4


def test_channel_abort_wakes_a_full_putter_and_readers() -> None:
    channel: Channel[int] = Channel(1)
    channel.put(1)
    outcome: list[str] = []

    def put() -> None:
        try:
            channel.put(2)
        except ChannelClosedError:
            outcome.append("closed")

    thread = threading.Thread(target=put)
    thread.start()
    channel.abort()
    thread.join(5)
    assert outcome == ["closed"]
    with pytest.raises(ChannelClosedError):
        next(iter(channel))
