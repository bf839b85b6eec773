//! Copies between devices, with a driver that records the calls of both.

#![allow(clippy::unwrap_used)]

mod recorded_devices;

use octants_runtime::*;
use recorded_devices::*;

const ALL: [CopiedRange; 2] = [CopiedRange { to: 0, from: 64, bytes: 64 }, CopiedRange { to: 64, from: 0, bytes: 64 }];

#[test]
fn a_copy_follows_earlier_uses_and_precedes_later_ones() {
    for on_stream in [false, true] {
        let ([here, there], log) = devices();
        let (to, from) = (here.allocate(128).unwrap(), there.allocate(128).unwrap());
        let (before, user, after) = (kernel(&there, "before"), kernel(&here, "user"), kernel(&there, "after"));
        let side = there.create_stream(0).unwrap();
        let stream = on_stream.then(|| here.create_stream(0).unwrap());
        from.write(0, &[7; 128], &Uninterruptible).unwrap();
        launch(&side, &before, &from);
        log.take();
        let copied = here.copy_between((&to, stream.as_ref()), (&there, &from), &ALL, &Uninterruptible).unwrap();
        assert!(copied);
        assert_eq!(log.count("copy_from_peer"), 2);
        launch(stream.as_ref().unwrap_or(here.default_stream()), &user, &to);
        launch(there.default_stream(), &after, &from);
        let launched = log.take_launched();
        let task = |name: &str| launched.iter().find(|l| l.task == name).unwrap();
        assert!(task("user").happens_after(task("before")), "the copy waits for the source's writer");
        assert!(task("after").happens_after(task("before")));
        // Freeing memory before the copy is done would be a mistake.
        drop((to, from));
        assert_eq!(log.mistakes(), [""; 0]);
        drop((side, stream, before, user, after));
        here.close(&Uninterruptible).unwrap();
        there.close(&Uninterruptible).unwrap();
        assert_eq!((log.mistakes(), log.leaks()), (vec![], vec![]));
    }
}

#[test]
fn a_failed_call_leaves_consistent_state() {
    for n in 0.. {
        let ([here, there], log) = devices();
        let (to, from) = (here.allocate(128).unwrap(), there.allocate(128).unwrap());
        let user = kernel(&there, "user");
        launch(there.default_stream(), &user, &from);
        log.fail_call(n);
        let end = here.copy_between((&to, None), (&there, &from), &ALL, &Uninterruptible);
        let failed = log.failed();
        drop((to, from, user));
        let _ = (here.close(&Uninterruptible), there.close(&Uninterruptible));
        assert_eq!((log.mistakes(), log.leaks()), (vec![], vec![]), "{n}: {failed:?}");
        if failed.is_none() || end.is_ok() {
            assert!(n > 5 && end.is_ok(), "{n}");
            break;
        }
        assert!(matches!(end.unwrap_err().kind(), ErrorKind::Call { .. }));
    }
}

#[test]
fn wrong_buffers_streams_and_ranges_are_refused() {
    let ([here, there], log) = devices();
    let (to, from) = (here.allocate(128).unwrap(), there.allocate(128).unwrap());
    let refused = |to: &Buffer, stream: Option<&Stream>, from: &Buffer, ranges: &[CopiedRange]| {
        here.copy_between((to, stream), (&there, from), ranges, &Uninterruptible).unwrap_err()
    };
    log.take();
    assert!(matches!(refused(&from, None, &from, &ALL).kind(), ErrorKind::ForeignDevice { what: "array" }));
    assert!(matches!(refused(&to, None, &to, &ALL).kind(), ErrorKind::ForeignDevice { what: "array" }));
    let other = there.default_stream();
    assert!(matches!(refused(&to, Some(other), &from, &ALL).kind(), ErrorKind::ForeignDevice { what: "stream" }));
    let outside = [CopiedRange { to: 100, from: 0, bytes: 64 }];
    assert!(matches!(refused(&to, None, &from, &outside).kind(), ErrorKind::OutOfRange { .. }));
    assert_eq!(log.take(), [""; 0]);
}

#[test]
fn a_stream_waits_for_what_is_queued_on_another_device() {
    for by_event in [false, true] {
        let ([here, there], log) = devices();
        let (own, other) = (here.allocate(64).unwrap(), there.allocate(64).unwrap());
        let (before, after, early) = (kernel(&there, "before"), kernel(&here, "after"), kernel(&here, "early"));
        let (waiting, side) = (here.create_stream(0).unwrap(), there.create_stream(0).unwrap());
        launch(&side, &before, &other);
        launch(&waiting, &early, &own);
        log.take();
        if by_event {
            let event = there.create_event(false).unwrap();
            event.record(&side).unwrap();
            assert!(!event.is_of_device_of(&waiting));
            event.wait(&waiting, &Uninterruptible).unwrap();
        } else {
            waiting.wait_for(&side, &Uninterruptible).unwrap();
        }
        // The host does not wait.
        assert_eq!(log.count("synchronize"), 0);
        launch(&waiting, &after, &own);
        let launched = log.take_launched();
        let task = |name: &str| launched.iter().find(|l| l.task == name).unwrap();
        assert!(task("after").happens_after(task("before")));
        assert!(!task("early").happens_after(task("before")));
        let event = there.create_event(false).unwrap();
        let refused = event.record(&waiting).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::ForeignDevice { what: "stream" }));
        drop((own, other, before, after, early, waiting, side, event));
        there.close(&Uninterruptible).unwrap();
        let gone = here.default_stream().wait_for(there.default_stream(), &Uninterruptible).unwrap_err();
        assert!(matches!(gone.kind(), ErrorKind::ProgramGone { .. }));
        here.close(&Uninterruptible).unwrap();
        assert_eq!((log.mistakes(), log.leaks()), (vec![], vec![]));
    }
}

#[test]
fn a_copy_on_a_stream_blocks_neither_the_host_nor_other_streams() {
    let ([here, there], log) = devices();
    let (to, from, own) = (here.allocate(128).unwrap(), there.allocate(128).unwrap(), there.allocate(128).unwrap());
    let user = kernel(&there, "user");
    let (stream, reads, idle) =
        (here.create_stream(0).unwrap(), there.create_stream(0).unwrap(), there.create_stream(0).unwrap());
    let write = kernel(&here, "write");
    launch(&reads, &user, &from);
    launch(&stream, &write, &to);
    log.take_launched();
    log.take();
    assert!(here.copy_between((&to, Some(&stream)), (&there, &from), &ALL, &Uninterruptible).unwrap());
    assert_eq!(log.count("synchronize"), 0);
    launch(&reads, &kernel(&there, "overwrite"), &from);
    launch(&idle, &kernel(&there, "apart"), &own);
    let late = there.create_stream(0).unwrap();
    launch(&late, &kernel(&there, "late"), &from);
    // Two unordered writers would be a mistake.
    assert_eq!(log.mistakes(), [""; 0]);
    drop((to, from, own, user, write, stream, reads, idle, late));
    here.close(&Uninterruptible).unwrap();
    there.close(&Uninterruptible).unwrap();
    assert_eq!((log.mistakes(), log.leaks()), (vec![], vec![]));
}
