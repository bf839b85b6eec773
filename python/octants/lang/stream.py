"""Streams and events under the import path of older programs."""

from octants._streams.streams import Event, Stream, create_event, create_stream, stream_parallel

__all__ = ["Event", "Stream", "create_event", "create_stream", "stream_parallel"]
