//! Launches on several devices of one process: exchanges between the devices, and copies of the first device's memory.

#![allow(clippy::unwrap_used)]

mod recorded_devices;

use octants_runtime::*;
use recorded_devices::*;

fn copy((to, a): (usize, &Buffer), (from, b): (usize, &Buffer)) -> PeerCopy {
    let range = |device, buffer: &Buffer, offset| PeerRange { device, buffer: buffer.clone(), offset };
    PeerCopy { to: range(to, a, 0), from: range(from, b, 64), bytes: 64 }
}

#[test]
fn copies_are_ordered_between_earlier_and_later_work() {
    let ([one, two], log) = devices();
    let (a, b) = (one.allocate(128).unwrap(), two.allocate(128).unwrap());
    let kernels = [(&one, "before one"), (&two, "before two"), (&one, "meanwhile one"), (&one, "after one")];
    let [before_one, before_two, meanwhile, after_one] = kernels.map(|(device, name)| kernel(device, name));
    let after_two = kernel(&two, "after two");
    let sides = [one.create_stream(0).unwrap(), two.create_stream(0).unwrap()];
    let streams = [one.default_stream().clone(), two.default_stream().clone()];
    // The second device only sends.
    let exchange = PeerExchange::new(&[&one, &two], &sides, vec![copy((0, &a), (1, &b))]).unwrap();
    launch(&streams[0], &before_one, &a);
    launch(&streams[1], &before_two, &b);
    log.take();
    exchange.begin(&streams, &Uninterruptible).unwrap();
    launch(&streams[0], &meanwhile, &a);
    assert_eq!(log.count("copy_from_peer"), 1);
    let late = kernel(&one, "late");
    launch(&sides[0], &late, &a);
    exchange.finish(&streams, &Uninterruptible).unwrap();
    launch(&streams[0], &after_one, &a);
    launch(&streams[1], &after_two, &b);
    assert_eq!(log.count("synchronize"), 0, "the host does not wait");
    let launched = log.take_launched();
    let task = |name: &str| launched.iter().find(|l| l.task == name).unwrap();
    assert!(task("late").happens_after(task("before one")) && task("late").happens_after(task("before two")));
    assert!(!task("late").happens_after(task("meanwhile one")));
    assert!(!task("meanwhile one").happens_after(task("before two")));
    // Sent data must not be overwritten before it is copied.
    assert!(task("after two").happens_after(task("before one")));
    assert!(task("after one").happens_after(task("before two")));
    drop((exchange, a, b, sides, streams, before_one, before_two, meanwhile, after_one, after_two, late));
    one.close(&Uninterruptible).unwrap();
    two.close(&Uninterruptible).unwrap();
    assert_eq!((log.mistakes(), log.leaks()), (vec![], vec![]));
}

#[test]
fn exchanges_of_mismatched_memory_are_refused() {
    let ([one, two], _log) = devices();
    let (a, b) = (one.allocate(128).unwrap(), two.allocate(128).unwrap());
    let sides = [one.create_stream(0).unwrap(), two.create_stream(0).unwrap()];
    let refused = |copy| PeerExchange::new(&[&one, &two], &sides, vec![copy]).unwrap_err();
    assert!(matches!(refused(copy((1, &a), (1, &b))).kind(), ErrorKind::ForeignDevice { what: "array" }));
    assert!(matches!(refused(copy((2, &a), (1, &b))).kind(), ErrorKind::ForeignDevice { what: "array" }));
    let outside = PeerCopy { bytes: 65, ..copy((0, &a), (1, &b)) };
    assert!(matches!(refused(outside).kind(), ErrorKind::OutOfRange { .. }));
}

#[test]
fn memory_is_copied_when_it_may_have_changed() {
    let ([one, two], log) = devices();
    let (memory, other) = (one.allocate(256).unwrap(), one.allocate(256).unwrap());
    let (writes, mirrors) = (kernel(&one, "writes"), Mirrors::new(&one, &two));
    let stream = two.default_stream();
    let address = memory.ptr().unwrap() + 8;
    let copies = |address: u64| {
        log.take();
        let found = mirrors.address(address, true, stream, &Uninterruptible).unwrap().unwrap();
        let copy = two.buffer_at(found).unwrap();
        assert_eq!((copy.bytes(), found - copy.ptr().unwrap()), (256, 8));
        log.count("copy_from_peer")
    };
    assert_eq!(copies(address), 1, "never copied");
    assert_eq!(copies(address), 0);
    assert_eq!(copies(other.ptr().unwrap() + 8), 1);
    launch(one.default_stream(), &writes, &memory);
    assert_eq!(copies(address), 1, "a launch has written");
    memory.write(0, &[1; 4], &Uninterruptible).unwrap();
    assert_eq!(copies(address), 1, "the host has written");
    assert_eq!(copies(address), 0);
    launch(one.default_stream(), &writes, &memory);
    mirrors.note_written(address);
    assert_eq!(copies(address), 0, "a launch on both has written");
    memory.expose();
    assert_eq!((copies(address), copies(address)), (1, 1), "others may write at any time");
    assert_eq!(mirrors.address(0xdead_0000, false, stream, &Uninterruptible).unwrap(), None);
    let before = two.bytes_in_use();
    drop((memory, other));
    // The copies go when others are made.
    let next = one.allocate(16).unwrap();
    mirrors.address(next.ptr().unwrap(), true, stream, &Uninterruptible).unwrap();
    assert!(two.bytes_in_use() < before);
}
