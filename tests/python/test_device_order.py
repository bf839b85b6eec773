"""Order between the work of several devices: events, waits, copies on streams, race checks, and tapes."""

import re
import time

import numpy as np
import pytest

import octants as qd
from octants.devices import list_devices

array = qd.types.ndarray(dtype=qd.f32, ndim=1)

# Options of the first device and of the second one, on the CPU.
BEDS = {
    "streams": ({"cpu_streams": True}, {}),
    "separate": ({"cpu_streams": True}, {"cpu_separate_memory": True}),
    "both separate": ({"cpu_separate_memory": True}, {}),
    "in order first": ({}, {"cpu_streams": True}),
    "in order second": ({"cpu_streams": True}, {"cpu_streams": False}),
    "scheduled first": ({"cpu_streams": True, "cpu_stream_schedule": "seed:3"}, {"cpu_stream_schedule": ""}),
    "scheduled second": ({"cpu_streams": True}, {"cpu_stream_schedule": "seed:4"}),
    "scheduled 1": ({"cpu_streams": True, "cpu_stream_schedule": "seed:1"}, {}),
    "scheduled 2": ({"cpu_streams": True, "cpu_stream_schedule": "seed:2"}, {}),
    "scheduled 5": ({"cpu_streams": True, "cpu_stream_schedule": "seed:5"}, {"cpu_stream_schedule": "seed:6"}),
}


def second_device(first, options):
    """A second device: of the same kind as the first if possible, unless it must have separate memory."""
    counts = {"amdgpu": 2, "cuda": sum(d.arch == "cuda" for d in list_devices()[0])}
    names = [f"{first.kind}:{n}" for n in range(counts.get(first.kind, 0))]
    name = next((name for name in names if name != first.name), "cpu:1")
    if first.kind != "cpu" and (name == "cpu:1" or options.get("cpu_separate_memory")):
        return qd.device("cpu:1", cpu_streams=True, **options)
    return qd.device(name, **({} if first.kind != "cpu" else options))


@pytest.fixture(params=BEDS)
def two(request):
    of_first, of_second = BEDS[request.param]
    qd.init(arch=qd.cpu, **of_first)
    first = qd.current_device()
    if first.kind != "cpu" and "cpu_streams" in of_second:
        of_second = {}
    return first, second_device(first, of_second)


@qd.kernel
def add_to(x: array, n: qd.f32):
    for i in x:
        x[i] = x[i] + n


@qd.kernel
def add_slowly(x: array, rounds: qd.i32):
    for i in range(1):
        value = x[0]
        for _ in range(rounds):
            value = value * 0.5 + 1.0
        if value < 100:
            x[0] = x[0] + 1


def made(device, n=8):
    return qd.ndarray(qd.f32, shape=n, device=device)


def test_a_stream_waits_for_an_event_of_another_device(two):
    first, second = two
    x, y = made(first), made(second)
    with qd.create_stream(device=first) as s, qd.create_stream(device=second) as t:
        for k in range(6):
            with qd.stream_scope(s):
                add_slowly(x, 60_000)
                witness, event = qd.create_event(), qd.create_event()
                witness.record()
                event.record()
            if k % 3 == 0:
                t.wait(event)
            elif k % 3 == 1:
                event.wait(t)
            else:
                t.wait(s)
            # Work that waits for the event may outlive it.
            event.destroy()
            with qd.stream_scope(t):
                add_to(y, 1)
            t.synchronize()
            # Only the other device's stream has waited for the first device's stream.
            assert witness.query()
            with second:
                back = qd.create_event()
                back.record(t)
                with first:
                    back.wait()
                    qd.default_stream().synchronize()
            assert back.query()
    assert x[0] == 6
    assert (y.to_numpy() == 6).all()


def test_chains_of_waits_go_through_several_devices_in_any_order(two):
    """Each link waits for one on the other device, in an order that a single device would not need."""
    random = np.random.default_rng(5)
    arrays = [made(device) for device in two]
    streams = [[qd.create_stream(device=device) for _ in range(3)] for device in two]
    launched = [0, 0]
    last = streams[0][0]
    links = []
    for _ in range(60):
        side, number = random.integers(2), random.integers(3)
        stream = streams[side][number]
        if stream is not last:
            stream.wait(last)
        with qd.stream_scope(stream):
            # All launches of a device use the same elements: a wait that is missing anywhere loses some.
            add_slowly(arrays[side], int(random.integers(1, 2000)))
            event = qd.create_event()
            event.record()
        launched[side] += 1
        links.append(event)
        last = stream
    last.synchronize()
    assert all(event.query() for event in links)
    assert [x[0] for x in arrays] == launched
    for stream in streams[0] + streams[1]:
        stream.destroy()


def test_a_wait_does_not_block_other_streams():
    qd.init(arch=qd.cpu, cpu_streams=True)
    first = qd.current_device()
    second = second_device(first, {})
    if second.kind != first.kind:
        pytest.skip("between devices of different kinds the host waits")
    x, y, z = made(first), made(second), made(second)
    add_to(x, 0)
    with second:
        add_to(z, 0)
    qd.sync()
    with (
        qd.create_stream(device=first) as s,
        qd.create_stream(device=second) as t,
        qd.create_stream(device=second) as u,
    ):
        with qd.stream_scope(s):
            add_slowly(x, 100_000_000)
        event = qd.create_event()
        event.record(s)
        begin = time.perf_counter()
        t.wait(event)
        with qd.stream_scope(t):
            add_to(y, 1)
        with qd.stream_scope(u):
            add_to(z, 1)
        u.synchronize()
        early = not event.query()
        took = time.perf_counter() - begin
        t.synchronize()
        assert event.query()
        assert (y.to_numpy() == 1).all()
        assert (z.to_numpy() == 1).all()
    if first.kind == "cpu":
        assert early, f"{took} s"


def test_copies_on_streams_are_ordered_by_events(two):
    first, second = two
    n = 5000
    x, y = made(first, n), made(second, n)
    expected = 0.0
    with qd.create_stream(device=first) as s, qd.create_stream(device=second) as t:
        for _ in range(8):
            with qd.stream_scope(s):
                add_to(x, 1)
            # After all uses of the source, on any device.
            y.copy_from(x, qd_stream=t)
            with qd.stream_scope(s):
                # The source stays as it is until it is copied.
                add_to(x, 100)
            with qd.stream_scope(t):
                add_to(y, 0.5)
            s.wait(t)
            x.copy_from(y, qd_stream=s)
            expected += 1.5
        s.synchronize()
        assert (x.to_numpy() == expected).all()


def test_new_streams_are_ordered_after_a_copy(two):
    first, second = two
    x, y = made(first), made(second)
    with qd.create_stream(device=second) as t:
        with qd.stream_scope(t):
            add_slowly(y, 60_000)
        x.fill(5)
        y.copy_from(x, qd_stream=t)
        with qd.create_stream(device=first) as late, qd.stream_scope(late):
            add_to(x, 1000)
        t.synchronize()
    assert (y.to_numpy() == 5).all()


def test_objects_of_another_device_are_refused(two):
    first, second = two
    event = qd.create_event(device=second)
    with qd.create_stream(device=first) as s, qd.create_stream(device=second) as t:
        with pytest.raises(RuntimeError, match="another device"):
            event.record(s)
        # Recording needs no block of the event's device.
        event.record(t)
        s.wait(event)
        with pytest.raises(RuntimeError, match=f"qd_stream is a stream of {second.name}"):
            add_to(made(first), 1, qd_stream=t)
        with pytest.raises(RuntimeError, match="another device's work cannot be recorded while this thread captures"):
            with qd.graph.capture():
                qd.default_stream().wait(t)
    with pytest.raises(RuntimeError, match="destroyed"):
        event.wait(t)


# Race checks


@pytest.fixture
def checked():
    qd.init(arch=qd.cpu, cpu_streams=True, check_races="full")
    first = qd.current_device()
    second = second_device(first, {})
    if second.kind != first.kind:
        pytest.skip("between devices of different kinds the host waits")
    return first, second


@pytest.mark.parametrize("how", ["stream", "event", "host", "third device"])
def test_a_wait_of_another_device_orders_launches(checked, how):
    first, second = checked
    x = made(first)
    with qd.create_stream(device=first) as a, qd.create_stream(device=first) as b, qd.create_stream(device=second) as t:
        add_to(x, 1, qd_stream=a)
        if how == "stream":
            t.wait(a)
            b.wait(t)
        elif how == "event":
            event, after = qd.create_event(), qd.create_event(device=second)
            event.record(a)
            event.wait(t)
            after.record(t)
            after.wait(b)
        elif how == "host":
            t.wait(a)
            t.synchronize()
        elif first.kind == "cpu":
            with qd.create_stream(device=qd.device("cpu:2")) as u:
                t.wait(a)
                u.wait(t)
                b.wait(u)
        else:
            pytest.skip("there is no third device")
        add_to(x, 1, qd_stream=b)
        with pytest.raises(qd.RaceError) as raised:
            add_to(x, 1, qd_stream=a)
        # The other way round nothing orders them.
        assert f"of {first.name}" in str(raised.value)
        a.wait(b)
        add_to(x, 1, qd_stream=a)
        qd.sync()
    assert x[0] == 3


def test_a_copy_without_a_wait_is_a_race(checked):
    first, second = checked
    x, y = made(first), made(second)
    with (
        qd.create_stream(device=first) as a,
        qd.create_stream(device=second) as t,
        qd.create_stream(device=second) as u,
    ):
        add_to(x, 1, qd_stream=a)
        y.copy_from(x, qd_stream=t)
        # The reader does not wait for the copy.
        with second, pytest.raises(qd.RaceError) as raised:
            add_to(y, 1, qd_stream=u)
        text = str(raised.value)
        assert re.search(rf"a copy on stream \d+ of {second.name} writes", text)
        assert text.count("test_device_order.py") >= 2
        event = qd.create_event(device=second)
        event.record(t)
        u.wait(event)
        with second:
            add_to(y, 1, qd_stream=u)
        # A stream that has used the source before writes to it after the copy.
        add_to(x, 1, qd_stream=a)
        # A stream that nothing orders does not, unless it waits for the other device.
        with qd.create_stream(device=second) as v:
            a.wait(t)
            y.copy_from(x, qd_stream=u)
            v.wait(u)
            y.copy_from(x, qd_stream=v)
        qd.sync()
    assert y[0] == 2


def test_a_stream_that_never_used_the_source_has_to_wait_for_its_copy(checked):
    first, second = checked
    x, y = made(first), made(second)
    with qd.create_stream(device=first) as b, qd.create_stream(device=second) as t:
        y.copy_from(x, qd_stream=t)
        with pytest.raises(qd.RaceError):
            add_to(x, 1, qd_stream=b)
        b.wait(t)
        add_to(x, 1, qd_stream=b)
        qd.sync()
    assert y[0] == 0


@pytest.mark.parametrize("separate", [False, True])
def test_work_in_host_addressable_memory_is_ordered(separate):
    options = {"cpu_separate_memory": True} if separate else {"cpu_streams": True}
    qd.init(arch=qd.cpu, check_races="full", **options)
    first = qd.current_device()
    second = second_device(first, {})
    x, y = made(first), made(second)
    x.fill(3)
    with qd.create_stream() as s:
        # The stream is newer than the fill.
        add_to(x, 1, qd_stream=s)
        x.fill(1)
        add_to(x, 1, qd_stream=s)
        y.copy_from(x)
        add_to(x, 1, qd_stream=s)
        with second, qd.create_stream() as t:
            add_to(y, 1, qd_stream=t)
            x.copy_from(y)
        add_to(x, 1, qd_stream=s)
    assert x[0] == 4


@pytest.mark.on_cpu
@pytest.mark.in_place
def test_host_views_of_memory_of_another_device_are_checked():
    qd.init(arch=qd.cpu, cpu_streams=True, check_races="full")
    first, second = qd.current_device(), qd.device("cpu:1")
    x = made(first)
    view = np.from_dlpack(x)
    with qd.create_stream() as s, qd.create_stream(device=second) as t:
        add_slowly(x, 2_000_000)
        qd.sync()
        add_slowly(x, 2_000_000, qd_stream=s)
        with second, pytest.raises(qd.RaceError) as raised:
            add_to(view, 1, qd_stream=t)
        assert f"of {first.name}" in str(raised.value)
        assert f"of {second.name}" in str(raised.value)
        t.wait(s)
        with second:
            add_to(view, 1, qd_stream=t)
    assert x[0] == 3


# Tapes


@qd.kernel
def square(x: qd.template(), y: qd.template()):
    for i in x:
        y[i] += x[i] * x[i]


@qd.kernel
def total(x: qd.template(), loss: qd.template()):
    for i in x:
        loss[None] += x[i]


def gradient_of_chain(devices, on_streams):
    """y = x**2 on the first device, z = y**2 on the second one, their sum on the third."""
    fields = [[qd.field(qd.f64, shape=5, needs_grad=True, device=device) for _ in range(2)] for device in devices]
    loss = qd.field(qd.f64, shape=(), needs_grad=True, device=devices[-1])
    fields[0][0].from_numpy(np.arange(5.0))
    streams = [qd.create_stream(device=device) for device in devices] if on_streams else None

    def on(k, kernel, *args):
        if streams:
            with qd.stream_scope(streams[k]):
                kernel(*args)
        else:
            with devices[k]:
                kernel(*args)

    with qd.ad.Tape(loss, grad_check=[fields[0][0]]):
        for k in range(len(devices)):
            if k:
                fields[k][0].copy_from(fields[k - 1][1])
            on(k, square, *fields[k])
        on(len(devices) - 1, total, fields[-1][1], loss)
    value, gradient = loss[None], fields[0][0].grad.to_numpy()
    for stream in streams or []:
        stream.destroy()
    return value, gradient


@pytest.mark.parametrize("on_streams", [False, True])
def test_a_tape_records_launches_of_two_devices(two, on_streams):
    first, second = two
    value, gradient = gradient_of_chain([first, second, first], on_streams)
    expected, gradient_of_one = gradient_of_chain([second] * 3, False)
    assert value == expected == sum(i**8 for i in range(5))
    np.testing.assert_allclose(gradient, gradient_of_one)
    np.testing.assert_allclose(gradient, [8 * i**7 for i in range(5)])


def test_gradients_that_the_user_wrote_run_on_the_device_of_their_call(two):
    first, second = two
    seen = []

    @qd.ad.grad_replaced
    def forward():
        seen.append(qd.current_device())

    @qd.ad.grad_for(forward)
    def backward():
        seen.append(qd.current_device())

    with qd.ad.Tape():
        forward()
        with second:
            forward()
    assert seen == [first, second, second, first]


# Names


def test_a_name_without_a_number_is_the_device_that_init_takes():
    for arch in (qd.cpu, qd.vulkan, qd.cuda, qd.amdgpu):
        try:
            getattr(qd.init, "original", qd.init)(arch=arch, enable_fallback=False)
        except RuntimeError:
            continue
        default = qd.current_device()
        assert re.fullmatch(r"[a-z]+:\d+", default.name)
        assert qd.device(default.kind) == default
        assert qd.device(default.name) == default
        assert qd.device(f"{default.kind}:0").name == f"{default.kind}:0"


def test_vulkan_without_a_number_is_one_of_its_devices():
    if all(d.arch != "vulkan" for d in list_devices()[0]):
        pytest.skip("no Vulkan device")
    qd.init(arch=qd.cpu)
    try:
        one = qd.device("vulkan")
    except RuntimeError as error:
        pytest.skip(str(error))
    assert re.fullmatch(r"vulkan:\d+", one.name)
    assert qd.device(one.name) == qd.device("vulkan") == one
