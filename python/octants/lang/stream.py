"""The place of streams and events in older programs."""

from octants.streams import Event, Stream, create_event, create_stream, stream_parallel

__all__ = ["Event", "Stream", "create_event", "create_stream", "stream_parallel"]
