//! Output of device code reaches the user through the stream's channel: in order, once, and not before it is complete
//! (S21). The driver simulates the device.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use octants_artifact::{
    Artifact, DeviceChannel, ScalarKind, Site, SiteKind, SitePart, SplitTask, TaskMeta, graph_of_groups,
};
use octants_driver_recording::{Log, Message, RecordingDriver};
use octants_runtime::{
    Device, DeviceConfig, Dispatcher, DispatchingCaller, Draw, ErrorKind, LoadedKernel, Result, Stream, Uninterruptible,
};

struct Bench {
    device: Device,
    log: Arc<Log>,
    text: Arc<Mutex<String>>,
}

impl Bench {
    fn new() -> Bench {
        let (log, text) = (Arc::new(Log::default()), Arc::new(Mutex::new(String::new())));
        let sink = text.clone();
        let config = DeviceConfig { seed: 1, sink: Arc::new(move |t: &str| sink.lock().unwrap().push_str(t)) };
        Bench { device: Device::new(RecordingDriver::new(log.clone()).with_channels(), config), log, text }
    }

    /// A kernel whose site 0 prints its name and a number, and whose site 1 asserts.
    fn kernel(&self, name: &str, results: usize, groups: &[Option<u32>]) -> LoadedKernel {
        let number = SitePart::Value { kind: ScalarKind::I64, shape: vec![], format: None };
        let site = |kind, word: &str| Site {
            kind,
            parts: vec![SitePart::Text(format!("{name} {word} ")), number.clone(), SitePart::Text("\n".into())],
            location: format!("{name}.py:7"),
        };
        let task = TaskMeta { name: "t".into(), ..TaskMeta::default() };
        let artifact = Artifact {
            kernel: name.into(),
            frame_bytes: 64,
            result: vec![ScalarKind::U64; results],
            tasks: vec![task; groups.len()],
            graph: graph_of_groups(groups),
            sites: vec![site(SiteKind::Print, "prints"), site(SiteKind::Assert, "fails with")],
            ..Artifact::default()
        };
        self.device.load(&artifact).unwrap()
    }

    fn prints(&self, value: u64) {
        self.log.say(Message { site: 0, values: vec![value], fails: false, written: true });
    }

    fn fails(&self, value: u64) {
        self.log.say(Message { site: 1, values: vec![value], fails: true, written: true });
    }

    fn text(&self) -> String {
        std::mem::take(&mut *self.text.lock().unwrap())
    }

    fn finish(self) {
        let _ = self.device.close(&Uninterruptible);
        drop(self.device);
        assert_eq!(self.log.mistakes(), Vec::<String>::new());
        assert_eq!(self.log.leaks(), Vec::<String>::new());
    }
}

fn launch(stream: &Stream, kernel: &LoadedKernel) {
    // SAFETY: the driver runs nothing.
    unsafe { stream.launch(kernel, &[], &Uninterruptible) }.unwrap();
}

#[test]
fn s21_text_is_printed_in_order_when_the_host_waits() {
    let bench = Bench::new();
    let (a, b) = (bench.kernel("a", 0, &[None]), bench.kernel("b", 0, &[None]));
    let stream = bench.device.create_stream(0).unwrap();
    for (kernel, value) in [(&a, 1), (&b, 2), (&a, 3)] {
        bench.prints(value);
        launch(&stream, kernel);
    }
    assert_eq!(bench.text(), "", "nothing is known before a wait");
    stream.synchronize(&Uninterruptible).unwrap();
    assert_eq!(bench.text(), "a prints 1\nb prints 2\na prints 3\n");
    stream.synchronize(&Uninterruptible).unwrap();
    assert_eq!(bench.text(), "", "once");
    bench.prints(4);
    launch(&stream, &b);
    bench.device.synchronize(&Uninterruptible).unwrap();
    assert_eq!(bench.text(), "b prints 4\n");
    drop((a, b, stream));
    bench.finish();
}

#[test]
fn s21_a_failure_is_an_error_of_the_next_wait_and_of_no_other_stream() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[None]);
    let (stream, other) = (bench.device.create_stream(0).unwrap(), bench.device.create_stream(0).unwrap());
    bench.fails(5);
    bench.fails(6);
    launch(&stream, &kernel);
    other.synchronize(&Uninterruptible).unwrap();
    let error = stream.synchronize(&Uninterruptible).unwrap_err();
    let ErrorKind::Assertion(failure) = error.kind() else { panic!("{error}") };
    assert_eq!(
        (failure.message.as_str(), failure.location.as_str(), failure.stream),
        ("k fails with 5\n", "k.py:7", 1)
    );
    stream.synchronize(&Uninterruptible).unwrap();
    bench.fails(7);
    launch(&stream, &kernel);
    assert!(
        stream.synchronize(&Uninterruptible).unwrap_err().to_string().contains("k fails with 7"),
        "the flag is down again"
    );
    drop((kernel, stream, other));
    bench.finish();
}

#[test]
fn s21_groups_print_through_the_launching_stream() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[Some(0), Some(1), Some(2)]);
    let stream = bench.device.create_stream(0).unwrap();
    bench.prints(1);
    bench.fails(2);
    launch(&stream, &kernel);
    assert!(stream.synchronize(&Uninterruptible).unwrap_err().to_string().contains("on stream 1"));
    assert_eq!(bench.text(), "k prints 1\n");
    drop((kernel, stream));
    bench.finish();
}

#[test]
fn s21_a_launch_with_a_result_reports_at_once() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 1, &[None]);
    bench.prints(1);
    bench.fails(2);
    // SAFETY: the driver runs nothing.
    let end = unsafe { bench.device.default_stream().launch(&kernel, &[], &Uninterruptible) };
    assert!(end.unwrap_err().to_string().contains("k fails with 2"));
    assert_eq!(bench.text(), "k prints 1\n");
    drop(kernel);
    bench.finish();
}

#[test]
fn s21_an_event_prints_the_text_of_completed_launches() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[None]);
    let (stream, event) = (bench.device.create_stream(0).unwrap(), bench.device.create_event(false).unwrap());
    bench.prints(1);
    bench.log.say(Message { site: 0, values: vec![2], fails: false, written: false });
    bench.prints(3);
    launch(&stream, &kernel);
    event.record(&stream).unwrap();
    // Work after the event is under way.
    launch(&stream, &kernel);
    event.synchronize(&Uninterruptible).unwrap();
    assert_eq!(bench.text(), "k prints 1\n");
    event.synchronize(&Uninterruptible).unwrap();
    assert_eq!(bench.text(), "");
    drop((kernel, stream, event));
    bench.finish();
}

#[test]
fn s21_a_failure_seen_by_an_event_is_reported_once() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[None]);
    let (stream, event) = (bench.device.create_stream(0).unwrap(), bench.device.create_event(false).unwrap());
    bench.fails(1);
    launch(&stream, &kernel);
    event.record(&stream).unwrap();
    launch(&stream, &kernel);
    assert!(event.synchronize(&Uninterruptible).unwrap_err().to_string().contains("k fails with 1"));
    event.synchronize(&Uninterruptible).unwrap();
    stream.synchronize(&Uninterruptible).unwrap();
    bench.fails(2);
    launch(&stream, &kernel);
    assert!(stream.synchronize(&Uninterruptible).unwrap_err().to_string().contains("k fails with 2"));
    drop((kernel, stream, event));
    bench.finish();
}

#[test]
fn s21_messages_that_do_not_fit_are_counted() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[None]);
    let stream = bench.device.create_stream(0).unwrap();
    let room = ((1u64 << 20) - DeviceChannel::BYTES) / 8 / 2;
    for round in 0..2 {
        (0..room + 3).for_each(|n| bench.prints(n));
        launch(&stream, &kernel);
        stream.synchronize(&Uninterruptible).unwrap();
        let text = bench.text();
        assert!(text.contains(&format!("k prints {}\n(3 more lines were lost", room - 1)), "round {round}");
        assert_eq!(text.lines().count() as u64, room + 1);
    }
    drop((kernel, stream));
    bench.finish();
}

#[test]
fn s21_a_full_channel_is_drained_between_launches() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[None]);
    let stream = bench.device.create_stream(0).unwrap();
    for n in 0..200 {
        (0..1000).for_each(|_| bench.prints(n));
        launch(&stream, &kernel);
    }
    stream.synchronize(&Uninterruptible).unwrap();
    let text = bench.text();
    assert_eq!(text.lines().count(), 200_000, "no line is lost");
    assert!(text.ends_with("k prints 199\n"));
    drop((kernel, stream));
    bench.finish();
}

#[test]
fn s21_a_dropped_stream_leaves_its_failure_to_the_program() {
    let bench = Bench::new();
    let kernel = bench.kernel("k", 0, &[None]);
    let stream = bench.device.create_stream(0).unwrap();
    bench.prints(1);
    bench.fails(2);
    launch(&stream, &kernel);
    drop(stream);
    assert_eq!(bench.text(), "k prints 1\n");
    assert!(bench.device.synchronize(&Uninterruptible).unwrap_err().to_string().contains("k fails with 2"));
    drop(kernel);
    bench.finish();
}

#[test]
fn kernels_without_output_have_no_channel() {
    let bench = Bench::new();
    let artifact = Artifact { kernel: "quiet".into(), ..Artifact::default() };
    let kernel = bench.device.load(&artifact).unwrap();
    let stream = bench.device.create_stream(0).unwrap();
    launch(&stream, &kernel);
    assert_eq!(bench.log.count("allocate_pinned"), 0);
    drop((kernel, stream));
    bench.finish();
}

/// Launches a kernel before each task.
struct LaunchesBetween<'a> {
    bench: &'a Bench,
    stream: &'a Stream,
    kernel: &'a LoadedKernel,
}

impl Dispatcher for LaunchesBetween<'_> {
    fn dispatch(&self, _: usize, _: Draw, run: &mut dyn FnMut(i32, i32) -> Result<()>) -> Result<()> {
        self.bench.prints(1);
        launch(self.stream, self.kernel);
        assert_eq!(self.bench.text(), "between prints 1\n", "the channel of a nested launch ends with it");
        run(0, 1)
    }
}

#[test]
fn s21_a_launch_between_the_tasks_of_another_prints() {
    let bench = Bench::new();
    let task = TaskMeta { name: "t".into(), split: Some(SplitTask::default()), ..TaskMeta::default() };
    let artifact = Artifact {
        kernel: "split".into(),
        arg_slots: 2,
        tasks: vec![task],
        graph: graph_of_groups(&[None]),
        ..Artifact::default()
    };
    let (split, kernel) = (bench.device.load(&artifact).unwrap(), bench.kernel("between", 0, &[None]));
    let stream = bench.device.create_stream(0).unwrap();
    let dispatcher = LaunchesBetween { bench: &bench, stream: &stream, kernel: &kernel };
    let caller = DispatchingCaller { caller: &Uninterruptible, dispatcher: &dispatcher };
    for _ in 0..2 {
        // SAFETY: the driver runs nothing.
        unsafe { stream.launch(&split, &[0, 0], &caller) }.unwrap();
    }
    bench.prints(2);
    launch(&stream, &kernel);
    stream.synchronize(&Uninterruptible).unwrap();
    assert_eq!(bench.text(), "between prints 2\n");
    drop((split, kernel, stream));
    bench.finish();
}
