"""Drawings of captured graphs: steps from top to bottom, one column per stream, dependences, and the critical path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from octants._profiling.timelines import Task

_WIDE, _HIGH, _GAP, _MARGIN = 170, 40, 30, 20
_OF_PATH, _OF_STREAM, _OF_EVENT = "#e45756", "#4c78a8", "#f58518"

_LAUNCHES = 1 << 40
"""The id of a round is that of its launch plus a multiple of this."""

Steps = Sequence[tuple[str, int, list[int]]]
"""For each step: its label, its stream, and the steps it depends on."""


def times_of(steps: Steps, tasks: Sequence[Task]) -> list[float]:
    """Device time of each step in milliseconds, from the tasks of one launch of the graph.

    Fills and copies are not tasks, and count as zero. The rounds of a loop are summed up for its launch.
    """
    taken = [0.0] * len(steps)
    next_step = 0
    last_of: dict[str, int] = {}
    launches: dict[int, list[Task]] = {}
    for task in tasks:
        launches.setdefault(task.launch % _LAUNCHES, []).append(task)
    for number in sorted(launches):
        kernel = launches[number][0].kernel
        found = next((i for i in range(next_step, len(steps)) if steps[i][0] == kernel), last_of.get(kernel))
        if found is None:
            continue
        next_step, last_of[kernel] = max(next_step, found + 1), found
        taken[found] += sum(task.ms for task in launches[number])
    return taken


def critical_path(steps: Steps, taken: Sequence[float] | None) -> list[int]:
    """The steps on the longest path through the graph, by time; by number of steps if no times are known."""
    longest: list[tuple[float, int]] = []
    for i, (_, _, depends_on) in enumerate(steps):
        before = max(((longest[b][0], b) for b in depends_on), default=(0.0, -1))
        longest.append((before[0] + (taken[i] if taken is not None else 1.0), before[1]))
    path: list[int] = []
    at = max(range(len(steps)), key=lambda i: longest[i][0], default=-1)
    while at >= 0:
        path.append(at)
        at = longest[at][1]
    return path[::-1]


def _reduced(steps: Steps) -> list[list[int]]:
    """The transitive reduction: for each step, the dependences that no other dependence implies."""
    reach: list[set[int]] = []
    out = []
    for _, _, depends_on in steps:
        beyond = set().union(*(reach[b] for b in depends_on)) if depends_on else set()
        out.append([b for b in depends_on if b not in beyond])
        reach.append(beyond | set(depends_on))
    return out


def _edge(steps: Steps, earlier: int, later: int, reason: str | None) -> str:
    """The text of an edge."""
    lanes = steps[earlier][1], steps[later][1]
    if reason is not None:
        return f"{steps[later][0]} waits for {steps[earlier][0]}" + (f": {reason}" if reason else "")
    return f"order of stream {lanes[1]}" if lanes[0] == lanes[1] else "stream {1} waits for stream {0}".format(*lanes)


def drawing(
    steps: Steps,
    taken: Sequence[float] | None,
    reasons: Mapping[tuple[int, int], str] | None = None,
    lane_names: Mapping[int, str] | None = None,
) -> str:
    """The graph as SVG. Steps on the critical path have a red frame. Edges are blue for stream order, and orange where
    one stream waits for another. `reasons` are those of edges, by the earlier and the later step.
    """
    from html import escape  # imported here to keep `import octants` fast

    reasons, lane_names = reasons or {}, lane_names or {}
    edges, path = _reduced(steps), critical_path(steps, taken)
    rows: list[int] = []
    for depends_on in edges:
        rows.append(1 + max((rows[b] for b in depends_on), default=-1))
    lanes = sorted({lane for _, lane, _ in steps})
    # Unordered steps of one stream (fills of new memory) are placed next to each other.
    used: set[tuple[int, int]] = set()
    places = []
    for (_, lane, _), row in zip(steps, rows, strict=True):
        while (lane, row) in used:
            row += 1
        used.add((lane, row))
        places.append((_MARGIN + lanes.index(lane) * (_WIDE + _GAP), _MARGIN + 20 + row * (_HIGH + _GAP)))
    wide = 2 * _MARGIN + len(lanes) * (_WIDE + _GAP)
    high = _MARGIN * 2 + 40 + max((y for _, y in places), default=0) + _HIGH
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" font-family="sans-serif" font-size="11">',
        '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="context-stroke"/></marker></defs>',
    ]
    for i, lane in enumerate(lanes):
        name = lane_names.get(lane, f"stream {lane}")
        parts.append(f'<text x="{_MARGIN + i * (_WIDE + _GAP)}" y="{_MARGIN + 5}">{name}</text>')
    on_path = set(zip(path, path[1:], strict=False))
    for i, depends_on in enumerate(edges):
        for b in depends_on:
            (x1, y1), (x2, y2) = places[b], places[i]
            same = steps[b][1] == steps[i][1]
            color = _OF_PATH if (b, i) in on_path else _OF_STREAM if same else _OF_EVENT
            reason = escape(_edge(steps, b, i, reasons.get((b, i))))
            ends = f'x1="{x1 + _WIDE // 2}" y1="{y1 + _HIGH}" x2="{x2 + _WIDE // 2}" y2="{y2}"'
            parts.append(f'<line {ends} stroke="{color}" marker-end="url(#end)"><title>{reason}</title></line>')
    for i, (what, _, _) in enumerate(steps):
        x, y = places[i]
        frame = f'stroke="{_OF_PATH}" stroke-width="2"' if i in path else 'stroke="#888"'
        place = f'x="{x}" y="{y}" width="{_WIDE}" height="{_HIGH}"'
        time = "" if taken is None or not taken[i] else f"{taken[i] * 1e3:.1f} µs"
        title = f"{i}: {what}" + (f", {time}" if time else "")
        parts.append(f'<rect {place} rx="4" fill="white" {frame}><title>{escape(title)}</title></rect>')
        name = what if len(what) <= 26 else what[:25] + "…"
        parts.append(f'<text x="{x + 6}" y="{y + 16}">{escape(name)}</text>')
        parts.append(f'<text x="{x + 6}" y="{y + 32}" fill="#555">{time}</text>')
    if taken is not None:
        total = sum(taken[i] for i in path) * 1e3
        parts.append(f'<text x="{_MARGIN}" y="{high - 10}">critical path: {len(path)} steps, {total:.1f} µs</text>')
    else:
        parts.append(f'<text x="{_MARGIN}" y="{high - 10}">critical path: {len(path)} of {len(steps)} steps</text>')
    return "\n".join([*parts, "</svg>"])
