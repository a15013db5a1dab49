"""Streams and events. There is one stream, and nothing is ever left waiting on it; events take the time."""

from __future__ import annotations

from typing import Any

import torch

from .selection import Device, checked_index


class Stream(torch.Stream):
    """The device's stream. Every stream is the default one: operations run when they are called.

    `priority` is accepted and means nothing.
    """

    def __new__(cls, device: Device = None, priority: int = 0, **kwargs: Any) -> Stream:
        if "stream_id" in kwargs:
            return super().__new__(cls, priority=priority, **kwargs)
        return super().__new__(cls, torch.device("flex", checked_index(device)), priority=priority, **kwargs)

    def __repr__(self) -> str:
        return f"torch.flex.Stream(device={self.device}, stream_id={self.stream_id})"


class _EventType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "flex"


class Event(torch.Event, metaclass=_EventType):
    """A moment on the stream. With `enable_timing`, `start.elapsed_time(end)` is the time between two recorded events
    in milliseconds. `blocking` means nothing here; `interprocess` events do not exist (NotImplementedError)."""

    # torch's event methods take no subclass for an argument: an instance is a torch.Event on the device.
    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        if interprocess:
            raise NotImplementedError("flex events cannot be shared between processes")
        return torch.Event(torch.device("flex", 0), enable_timing=enable_timing, blocking=blocking)


def current_stream(device: Device = None) -> Stream:
    """The device's one stream."""
    index = checked_index(device)
    return Stream(stream_id=0, device_index=index, device_type=torch._C._autograd.DeviceType.PrivateUse1.value)


def default_stream(device: Device = None) -> Stream:
    return current_stream(device)


def set_stream(stream: Stream | None) -> None:
    """Makes a stream the current one; None changes nothing."""
    if stream is not None:
        checked_index(stream.device)


class StreamContext:
    """Context manager that makes a stream the current one; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        set_stream(self.stream)

    def __exit__(self, *exception: Any) -> None:
        return None


def stream(stream: Stream | None) -> StreamContext:
    """StreamContext, by torch.cuda's name."""
    return StreamContext(stream)
