"""Streams and events: one stream, events that take the time."""

import time

import pytest
import torch

flex = torch.flex


def test_every_stream_is_the_default_one():
    stream = flex.Stream()
    assert isinstance(stream, torch.Stream) and isinstance(flex.current_stream(), flex.Stream)
    assert stream == flex.current_stream() == flex.default_stream() == flex.Stream(device="flex:0", priority=-1)
    assert stream == torch.Stream(device="flex") and stream.device == torch.device("flex:0")
    assert stream.query() and stream.synchronize() is None
    assert "flex:0" in repr(stream)
    assert len({stream, flex.Stream()}) == 1


def test_stream_contexts():
    stream = flex.Stream()
    for context in (flex.stream(stream), flex.stream(None), flex.StreamContext(stream), stream):
        with context:
            assert flex.current_stream() == stream
            assert torch.ones(2, device="flex").sum() == 2
    flex.set_stream(stream)
    flex.set_stream(None)
    with pytest.raises(RuntimeError, match="flex has one device"):
        flex.Stream(device=1)


def test_record_stream():
    t = torch.ones(2, device="flex")
    assert t.record_stream(flex.current_stream()) is None


@pytest.mark.parametrize("kind", [flex.Event, lambda **options: torch.Event("flex", **options)])
def test_elapsed_time(kind):
    start, end = kind(enable_timing=True), kind(enable_timing=True)
    assert isinstance(start, torch.Event) and isinstance(start, flex.Event)
    start.record()
    begun = time.perf_counter()
    time.sleep(0.03)
    slept = 1e3 * (time.perf_counter() - begun)
    end.record(flex.current_stream())
    assert start.query() and start.synchronize() is None
    assert slept <= start.elapsed_time(end) < slept + 500
    assert end.elapsed_time(start) == -start.elapsed_time(end)


def test_elapsed_time_needs_timing_and_a_record():
    untimed = flex.Event(), flex.Event()
    [event.record() for event in untimed]
    with pytest.raises(ValueError, match="enable_timing=True"):
        untimed[0].elapsed_time(untimed[1])
    with pytest.raises(ValueError, match="must be recorded"):
        flex.Event(enable_timing=True).elapsed_time(flex.Event(enable_timing=True))
    with pytest.raises(NotImplementedError, match="between processes"):
        flex.Event(interprocess=True)


def test_events_and_streams_work_together():
    stream, event = flex.Stream(), flex.Event(enable_timing=True)
    event.record(stream)
    event.wait(stream)
    event.wait()
    stream.wait_event(event)
    stream.wait_stream(flex.default_stream())
    recorded = stream.record_event()
    assert isinstance(recorded, flex.Event) and recorded.query()
    assert stream.record_event(event) is event or event.query()
    assert not isinstance(torch.Event("cpu"), flex.Event)


def test_timing_a_computation():
    x = torch.randn(300, 300, device="flex")
    start, end = (flex.Event(enable_timing=True) for _ in range(2))
    begun = time.perf_counter()
    start.record()
    for _ in range(5):
        x = x @ x / 300
    end.record()
    flex.synchronize()
    assert 0 < start.elapsed_time(end) <= 1e3 * (time.perf_counter() - begun)
