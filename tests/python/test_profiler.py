"""Times of kernels and tasks, timelines, time of compiling: in order, with real streams, and on a device."""

import json
import time
import xml.etree.ElementTree as ElementTree

import pytest

import octants as qd

Values = qd.types.ndarray(dtype=qd.f32, ndim=1)


@qd.func
def turned(x: qd.f32, rounds: qd.i32) -> qd.f32:
    for _ in range(rounds):
        x += 0.01 * (1.5 - x * x)
    return x


@qd.kernel
def turn(x: Values, rounds: qd.i32):
    qd.loop_config(serialize=True)
    for i in range(64):
        x[i] = turned(x[i], rounds)


@qd.kernel
def short(x: Values):
    for i in x:
        x[i] += 1.0


@qd.kernel
def two_loops(x: Values):
    for i in x:
        x[i] += 1.0
    qd.loop_config(name="doubling")
    for i in x:
        x[i] *= 2.0


@qd.kernel
def halves(x: Values, y: Values, rounds: qd.i32):
    with qd.stream_parallel():
        qd.loop_config(serialize=True)
        for i in range(64):
            x[i] = turned(x[i], rounds)
    with qd.stream_parallel():
        qd.loop_config(serialize=True)
        for i in range(64):
            y[i] = turned(y[i], rounds)


@pytest.fixture(params=[False, True], ids=["in order", "streams"])
def measured(request):
    qd.init(arch=qd.cpu, cpu_streams=request.param, kernel_profiler=True)
    yield
    qd.reset()


def arrays(count):
    return [qd.ndarray(qd.f32, shape=64) for _ in range(count)]


def test_times_match_the_kernels(measured):
    (x,) = arrays(1)
    turn(x, 10)
    short(x)
    qd.sync()
    qd.profiler.clear_kernel_profiler_info()
    start = time.perf_counter()
    for _ in range(3):
        turn(x, 20_000)
        short(x)
    qd.sync()
    wall = time.perf_counter() - start
    slow, fast = (qd.profiler.query_kernel_profiler_info(name) for name in ("turn", "short"))
    assert (slow.counter, fast.counter) == (3, 3)
    assert 0 < slow.min <= slow.avg <= slow.max <= slow.total
    assert slow.avg == pytest.approx(slow.total / 3)
    assert slow.min > fast.min > 0
    total = qd.profiler.get_kernel_profiler_total_time()
    assert total == pytest.approx((slow.total + fast.total) / 1e3)
    assert total < wall


def test_tasks_of_a_kernel_have_names(measured):
    (x,) = arrays(1)
    two_loops(x)
    kernel = qd.profiler.query_kernel_profiler_info("two_loops")
    first, second = (qd.profiler.query_kernel_profiler_info(f"two_loops:{t}") for t in ("0_range", "1_doubling"))
    assert (kernel.counter, first.counter, second.counter) == (1, 1, 1)
    assert kernel.total == pytest.approx(first.total + second.total)


def test_an_unmeasured_name_is_reported(measured, caplog):
    short(*arrays(1))
    assert qd.profiler.query_kernel_profiler_info("shrot").counter == 0
    assert "'shrot'" in caplog.text
    assert "short" in caplog.text.replace("'shrot'", "")


def test_clearing_removes_records(measured, capsys):
    (x,) = arrays(1)
    short(x)
    qd.profiler.clear_kernel_profiler_info()
    assert qd.profiler.get_kernel_profiler_total_time() == 0
    two_loops(x)
    qd.profiler.print_kernel_profiler_info("trace")
    printed = capsys.readouterr().out
    assert "two_loops:0_range" in printed
    assert "short" not in printed
    qd.profiler.print_kernel_profiler_info()
    assert "two_loops:1_doubling" in capsys.readouterr().out


def test_the_rows_of_the_table_sum_to_the_total(measured, capsys):
    (x,) = arrays(1)
    turn(x, 2_000)
    short(x)
    qd.profiler.print_kernel_profiler_info()
    lines = capsys.readouterr().out.splitlines()
    shares = {line.split()[-1]: float(line.split("%")[0]) for line in lines if "%" in line}
    assert shares.keys() == {"turn", "short"}
    assert sum(shares.values()) == pytest.approx(100, abs=0.02)
    with pytest.raises(ValueError, match="'count' or 'trace'"):
        qd.profiler.print_kernel_profiler_info("all")  # type: ignore[arg-type]


def test_without_the_option_nothing_is_measured(caplog, capsys):
    qd.init(arch=qd.cpu)
    short(*arrays(1))
    qd.profiler.print_kernel_profiler_info()
    assert qd.profiler.get_kernel_profiler_total_time() == 0
    assert qd.profiler.query_kernel_profiler_info("short").counter == 0
    assert caplog.text.count("kernel_profiler=True") == 3
    assert capsys.readouterr().out == ""


def test_two_streams_run_concurrently():
    qd.init(arch=qd.cpu, cpu_streams=True)
    x, y = arrays(2)
    a, b = qd.create_stream(), qd.create_stream()
    turn(x, 10)
    qd.sync()
    with qd.profiler.timeline({"one": a, "other": b}) as t:
        turn(x, 100_000, qd_stream=a)
        turn(y, 100_000, qd_stream=b)
    first, second = t.tasks
    assert t.lanes == ["one", "other"]
    assert {first.lane, second.lane} == {"one", "other"}
    assert max(first.begin_ms, second.begin_ms) < min(first.end_ms, second.end_ms), t.tasks
    assert first.begin_ms == 0
    assert first.depends_on == second.depends_on == ()
    turn(x, 10)
    assert len(t.tasks) == 2, "what comes later is not part of it"


def test_waits_forks_and_joins_are_edges():
    qd.init(arch=qd.cpu, cpu_streams=True)
    x, y = arrays(2)
    a, b = qd.create_stream(), qd.create_stream()
    halves(x, y, 1)
    qd.sync()
    with qd.profiler.timeline({"a": a, "b": b}) as t:
        turn(x, 2_000, qd_stream=a)
        with qd.create_event() as e:
            e.record(a)
            e.wait(b)
        halves(x, y, 2_000, qd_stream=b)
        short(x, qd_stream=b)
    tasks = t.tasks
    order = {task.name + "@" + task.lane: i for i, task in enumerate(tasks)}
    worker = next(lane for lane in t.lanes if lane.startswith("worker"))
    assert t.lanes == ["a", "b", worker]
    start, end = order["turn:0_serial@a"], order["short:0_range@b"]
    left, right = order[f"halves:0_serial@{worker}"], order["halves:1_serial@b"]
    assert [tasks[i].depends_on for i in (start, left, right, end)] == [(), (start,), (start,), (left,)]
    for i in (left, right):
        assert tasks[i].begin_ms >= tasks[start].end_ms - 1e-3
    assert tasks[end].begin_ms >= max(tasks[left].end_ms, tasks[right].end_ms) - 1e-3
    assert tasks[left].launch == tasks[right].launch


def test_a_timeline_tells_what_ran_beside_a_task(tmp_path):
    qd.init(arch=qd.cpu, cpu_streams=True)
    x, y, z = arrays(3)
    a, b = qd.create_stream(), qd.create_stream()
    # A GPU may wait for its work before it loads code.
    turn(x, 1, qd_stream=a)
    short(y, qd_stream=b)
    qd.sync()
    with qd.profiler.timeline({"a": a, "b": b}) as t:
        turn(x, 20_000_000, qd_stream=a)
        short(y, qd_stream=b)
        b.wait(a)
        short(z, qd_stream=b)
    first, second, third = sorted(t.tasks, key=lambda task: (task.lane, task.begin_ms))
    assert t.beside(first) == [second]
    assert t.beside(second) == [first]
    assert t.beside(third) == []
    t.save(tmp_path / "t.svg")
    titles = [
        title.text for title in ElementTree.parse(tmp_path / "t.svg").getroot().iter() if title.tag.endswith("title")
    ]
    assert sum(title.endswith("; beside short:0_range") for title in titles) == 1
    assert sum(title.endswith("; beside turn:0_serial") for title in titles) == 1
    assert sum(title.endswith("ms; waited for turn:0_serial") for title in titles) == 1


def test_a_timeline_has_the_lanes_of_inferred_concurrency():
    qd.init(arch=qd.cpu, cpu_streams=True, concurrency="auto")
    x, y = arrays(2)
    with qd.profiler.timeline() as t:
        turn(x, 100)
        short(y)
        short(x)
    turned, *shorts = sorted(t.tasks, key=lambda task: task.kernel != "turn")
    assert len(t.lanes) == 2
    assert sorted(task.lane == turned.lane for task in shorts) == [False, True]


def test_a_timeline_is_saved_as_a_trace_and_as_a_drawing(tmp_path):
    qd.init(arch=qd.cpu, cpu_streams=True)
    x, y = arrays(2)
    a, b = qd.create_stream(), qd.create_stream()
    with qd.profiler.timeline({"a & b": a}) as t:
        turn(x, 100, qd_stream=a)
        b.wait(a)
        short(y, qd_stream=b)
    t.save(tmp_path / "new" / "t.json")
    t.save(str(tmp_path / "t.svg"))
    events = json.loads((tmp_path / "new" / "t.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    runs = {e["name"]: e for e in events if e["ph"] == "X"}
    assert set(names.values()) == {"a & b", f"stream {b.number}"}
    assert {name: names[e["tid"]] for name, e in runs.items()} == {
        "turn:0_serial": "a & b",
        "short:0_range": f"stream {b.number}",
    }
    assert all(e["dur"] > 0 for e in runs.values())
    (start,), (finish,) = ([e for e in events if e["ph"] == ph] for ph in "sf")
    assert start["id"] == finish["id"]
    before, behind = runs["turn:0_serial"], runs["short:0_range"]
    assert (start["tid"], finish["tid"], finish["ts"]) == (before["tid"], behind["tid"], behind["ts"])
    assert before["ts"] <= start["ts"] < before["ts"] + before["dur"]
    drawing = ElementTree.parse(tmp_path / "t.svg").getroot()
    kinds = [element.tag.split("}")[1] for element in drawing]
    assert (kinds.count("rect"), kinds.count("line")) == (2, 1)
    titles = [title.text for title in drawing.iter("{http://www.w3.org/2000/svg}title")]
    assert titles[-1] == "short:0_range waited for turn:0_serial"
    assert titles[1].endswith("ms; waited for turn:0_serial")
    assert behind["args"]["order"] == "waited for turn:0_serial"
    assert "a & b" in [element.text for element in drawing]
    with pytest.raises(ValueError, match=r"\.json.*\.svg.*t\.png"):
        t.save(tmp_path / "t.png")


def test_timelines_nest_and_cover_their_blocks():
    qd.init(arch=qd.cpu)
    (x,) = arrays(1)
    with qd.profiler.timeline() as outer:
        short(x)
        with qd.profiler.timeline() as inner:
            short(x)
        short(x)
    short(x)
    assert [len(t.tasks) for t in (outer, inner)] == [3, 1]
    assert outer.lanes == ["default stream"]


def test_misuse_of_a_timeline_is_reported():
    qd.init(arch=qd.cpu)
    t = qd.profiler.timeline()
    with pytest.raises(RuntimeError, match="was not started"):
        t.stop()
    with t:
        with pytest.raises(RuntimeError, match="after it has stopped"):
            t.tasks  # noqa: B018
        with pytest.raises(RuntimeError, match="can only be started once"):
            t.start()
    qd.reset()
    with pytest.raises(RuntimeError, match="program of this timeline has ended"):
        t.tasks  # noqa: B018
    qd.init(arch=qd.cpu)
    with qd.profiler.timeline():
        qd.reset()
    with pytest.raises(RuntimeError, match="init"):
        qd.profiler.timeline().start()


@qd.kernel
def fresh(x: Values):
    for i in x:
        x[i] = 1.0


@qd.kernel
def other(x: Values, n: qd.i32):
    for i in range(n):
        x[i] = 2.0


def compiled_twice():
    """The report of two kernels, one of them compiled for two types."""
    qd.init(arch=qd.cpu)
    x = qd.ndarray(qd.f32, shape=64)
    short(x)
    short(x.to_numpy()[::2])
    other(x, 3)
    return qd.profiler.compile_report()


def test_compilations_are_reported_by_kernel_and_phase():
    report = compiled_twice()
    assert report.phases == ("parse", "lower", "passes", "codegen", "link", "load")
    assert sorted(report.kernels) == ["other", "short"]
    assert [one.kernel for one in report.compilations] == ["short", "short", "other"]
    for one in report.compilations:
        assert not one.kept
        assert all(one.phase_ms(phase) > 0 for phase in ("parse", "lower", "passes", "codegen", "link"))
        assert one.ms == pytest.approx(sum(one.phase_ms(phase) for phase in report.phases))
        steps = one.steps
        assert all(a.begin_ms + a.ms <= b.begin_ms + 1e-6 for a, b in zip(steps, steps[1:], strict=False))
        assert {"optimize", "emit"} <= {step.name for step in steps if step.phase == "codegen"}
    assert report.total_ms == pytest.approx(sum(one.ms for one in report.compilations))
    assert report.compilations[0].begin_ms < report.compilations[2].begin_ms


def test_cache_hits_are_reported(tmp_path):
    reports = []
    for _ in range(2):
        qd.init(arch=qd.cpu, offline_cache=True, offline_cache_file_path=str(tmp_path))
        other(qd.ndarray(qd.f32, shape=4), 3)
        reports.append(qd.profiler.compile_report())
    stored, found = (report.compilations[0] for report in reports)
    assert (stored.kept, found.kept) == (False, True)
    assert stored.phase_ms("load") > 0
    assert found.phase_ms("load") > 0
    assert found.phase_ms("codegen") == 0
    assert "found on disk: 1" in reports[1].text()


def test_reports_are_saved_as_text_and_as_a_drawing(tmp_path):
    report = compiled_twice()
    report.save(tmp_path / "deep" / "report.txt")
    assert (tmp_path / "deep" / "report.txt").read_text() == f"{report}\n"
    report.save(tmp_path / "report.svg")
    drawing = ElementTree.parse(tmp_path / "report.svg").getroot()
    svg = "{http://www.w3.org/2000/svg}"
    blocks = [(r.find(f"{svg}title").text.split(":")[0], r) for r in drawing.iter(f"{svg}rect")]
    widths = {name: float(r.get("width")) for name, r in blocks}
    names = [name for name, _ in blocks]
    assert names[0] == "all kernels"
    assert {"short (2 times)", "other (once)"} <= set(names)
    assert widths["short (2 times)"] + widths["other (once)"] == pytest.approx(widths["all kernels"], abs=1)
    # Enclosing blocks are drawn below a block.
    level = {name: float(r.get("y")) for name, r in blocks}
    assert level["all kernels"] > level["other (once)"] > level["codegen"] > level["optimize"]
    with pytest.raises(ValueError, match="saved as .svg"):
        report.save(tmp_path / "report.png")


def test_compilations_are_printed_and_forgotten(capsys):
    qd.init(arch=qd.cpu)
    fresh(*arrays(1))
    qd.profiler.print_scoped_profiler_info()
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.endswith(" fresh"))
    *times, total, count, _ = line.split()
    assert count == "1"
    assert sum(map(float, times)) == pytest.approx(float(total), abs=0.05)
    assert float(total) > 0.1
    qd.profiler.clear_scoped_profiler_info()
    qd.profiler.print_scoped_profiler_info()
    assert "fresh" not in capsys.readouterr().out


def test_memory_use_is_reported(capsys):
    qd.init(arch=qd.cpu)
    x = qd.ndarray(qd.f32, shape=4 << 20)
    qd.profiler.print_memory_profiler_info()
    assert "16.0" in capsys.readouterr().out
    assert x.shape == (4 << 20,)


def test_hardware_counters_are_refused(caplog):
    qd.init(arch=qd.cpu)
    assert qd.profiler.set_kernel_profiler_toolkit()
    assert not qd.profiler.set_kernel_profiler_toolkit("cupti")
    with qd.profiler.collect_kernel_profiler_metrics([qd.profiler.CuptiMetric("x")]):
        pass
    assert caplog.text.count("only measures time") == 2
