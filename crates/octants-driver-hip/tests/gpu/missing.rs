//! Libraries that lack functions, like older ones, and one without devices.

use std::process::Command;

use octants_driver_gpu::{GpuConfig, GpuDriver, Unavailable};
use octants_driver_hip::symbols::{DESCRIBE, NAMES, Own, since};
use octants_runtime::{CopiedRange, Uninterruptible};

use crate::suite::kernels::{launch, launch_slow, mad};
use crate::suite::{Gpu, values};
use crate::vendor;

/// A library without a function: a copy of the whole one, in which the function has another name.
fn open_without(name: &str) -> Result<GpuDriver, Unavailable> {
    let mut bytes = std::fs::read(vendor::standin()).unwrap();
    let exported = format!("\0{name}\0").into_bytes();
    let places: Vec<usize> =
        bytes.windows(exported.len()).enumerate().filter(|(_, w)| *w == exported).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "{name} is exported");
    places.iter().for_each(|at| bytes[at + 1] = b'_');
    let path = std::env::temp_dir().join(format!("octants-without-{name}-{}.so", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let opened = octants_driver_hip::open(&GpuConfig { library: Some(path.clone()), ..GpuConfig::default() });
    std::fs::remove_file(&path).unwrap();
    opened
}

/// The error of one that cannot be opened.
fn refusal(name: &str) -> String {
    open_without(name).map(|_| ()).unwrap_err().0
}

#[test]
fn s23_a_missing_required_function_is_named_with_the_version_that_has_it() {
    let all = NAMES.signatures().into_iter().chain(Own::SIGNATURES.iter().copied()).map(|f| f.symbol);
    let others = [NAMES.pool_access, NAMES.launch_resident];
    let is_optional = |name: &&str| POOLS.contains(name) || GRAPHS.contains(name) || others.contains(name);
    for name in all.filter(|name| !is_optional(name)) {
        let expected = format!("HIP's library has no {name}: ROCm {} or newer is needed", since(name));
        assert_eq!(refusal(name), expected);
    }
}

/// The functions that recorded iterations and graphs of other libraries need.
const GRAPHS: [&str; 6] = [
    NAMES.graph_instantiate,
    NAMES.graph_launch,
    NAMES.graph_exec_destroy,
    NAMES.capture_begin,
    NAMES.capture_end,
    NAMES.graph_destroy,
];
const POOLS: [&str; 6] =
    [NAMES.pool_create, NAMES.pool_destroy, NAMES.pool_set, NAMES.pool_trim, NAMES.pool_allocate, NAMES.pool_free];

#[test]
fn s23_without_shared_pools_the_library_copies_between_devices() {
    let from = Gpu::with(open_without(NAMES.pool_access).unwrap());
    let to = Gpu::with(open_without(NAMES.pool_access).unwrap());
    let (x, y) = (from.numbers(1 << 10), to.numbers(1 << 10));
    let range = CopiedRange { to: 0, from: 0, bytes: 4 << 10 };
    assert!(to.device.copy_between((&y, None), (&from.device, &x), &[range], &Uninterruptible).unwrap());
    assert_eq!(values(&y), values(&x));
}

#[test]
fn s23_without_stream_ordered_memory_plain_memory_keeps_the_same_order() {
    for name in POOLS {
        let driver = open_without(name).unwrap();
        let gpu = Gpu::with(driver);
        let kernel = mad(&gpu);
        let (slow, fast) = (gpu.device.create_stream(0).unwrap(), gpu.device.create_stream(0).unwrap());
        let x = gpu.numbers(1 << 16);
        launch_slow(&slow, &kernel, &x, 50_000_000, (0, 9)).unwrap();
        drop(x);
        let new: Vec<_> = (0..8).map(|_| gpu.numbers(1 << 16)).collect();
        new.iter().for_each(|y| launch(&fast, &kernel, y, (1, 1)).unwrap());
        assert!(new.iter().all(|y| values(y).iter().all(|&v| v == 1)), "without {name}");
        drop(new);
        let error = gpu.device.allocate(1 << 50).unwrap_err().to_string();
        assert!(error.contains("are free"), "{error}");
    }
}

#[test]
fn the_architecture_is_read_from_the_older_properties_struct() {
    open_without(DESCRIBE[0]).unwrap();
    // The newer one is used if both exist.
    open_without(DESCRIBE[1]).unwrap();
}

#[test]
fn without_a_device_the_error_states_the_reason() {
    for hidden in ["", "-1"] {
        let test = std::env::current_exe().unwrap();
        let ran = Command::new(test)
            .args(["--ignored", "--exact", "missing::child_that_sees_no_device", "--test-threads=1"])
            .env("HIP_VISIBLE_DEVICES", hidden)
            .output()
            .unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&text));
        assert!(String::from_utf8_lossy(&text).contains("1 passed"));
    }
}

#[test]
#[ignore = "run by without_a_device_the_error_states_the_reason"]
fn child_that_sees_no_device() {
    let config = GpuConfig { library: Some(vendor::standin()), ..GpuConfig::default() };
    let reason = octants_driver_hip::open(&config).map(|_| ()).unwrap_err().0;
    assert!(reason.starts_with("no AMD GPU was found") && reason.contains("HIP_VISIBLE_DEVICES"), "{reason}");
}
