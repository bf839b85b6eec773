//! Data-dependent loops and branches on the CPU: in order, on real streams, and with separate memory.

#![allow(clippy::unwrap_used)]

mod hand_made;

use std::sync::Arc;

use hand_made::{artifact, parallel};
use octants_artifact::{Condition, GraphPart, ScalarKind};
use octants_driver_host::{HostConfig, HostDriver};
use octants_runtime::{Device, DeviceConfig, Pointer, Uninterruptible};

/// The element at this position of the array in slot 0.
fn element(position: u64) -> Condition {
    Condition { slot: Some(0), offset: 4 * position, kind: ScalarKind::I32 }
}

#[test]
fn a_loop_ends_at_a_zero_condition_and_a_branch_takes_one_side() {
    let configs = [
        HostConfig::default(),
        HostConfig { streams: true, ..HostConfig::default() },
        HostConfig { streams: true, schedule: Some(5), ..HostConfig::default() },
        HostConfig { separate_memory: true, ..HostConfig::default() },
        HostConfig { separate_memory: true, schedule: Some(2), ..HostConfig::default() },
    ];
    for config in configs {
        let config = HostConfig { max_threads: Some(2), ..config };
        let device = Device::new(HostDriver::new(config), DeviceConfig { seed: 1, sink: Arc::new(|_: &str| ()) });
        let mut artifact = artifact(2, vec![parallel("increment", "count_arg1", 5.0)]);
        let once = || vec![GraphPart::Tasks(0, 1)];
        let choice = |at| GraphPart::If { condition: element(at), then: once(), otherwise: Vec::new() };
        artifact.graph =
            vec![GraphPart::While { condition: element(0), body: once(), guarded: None }, choice(0), choice(1)];
        let kernel =
            device.load(&artifact).unwrap().with_pointers(vec![Pointer { slot: 0, written: true, buffer: None }]);
        let n = 10_000;
        let buffer = device.allocate(4 * n as u64).unwrap();
        buffer.write(0, &(-7i32).to_ne_bytes(), &Uninterruptible).unwrap();
        // SAFETY: the buffer lives and has this many elements.
        unsafe { device.default_stream().launch(&kernel, &[buffer.ptr().unwrap(), n as u64], &Uninterruptible) }
            .unwrap();
        let mut bytes = vec![0u8; 4 * n];
        buffer.read(0, &mut bytes, &Uninterruptible).unwrap();
        let values: Vec<i32> = bytes.chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().unwrap())).collect();
        // Seven rounds, and one more by the second choice.
        assert_eq!(values[0], 1);
        assert!(values[1..].iter().all(|v| *v == 8), "{:?}", &values[..5]);
        device.close(&Uninterruptible).unwrap();
    }
}
