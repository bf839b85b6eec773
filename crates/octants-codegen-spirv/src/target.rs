//! [`DeviceFeatures`]: the features of a Vulkan device that code depends on, and their text in a `CodeTarget`.
//!
//! A target's processor is `subgroup` followed by the number of threads of a subgroup. Its features are
//! comma-separated words, including `shared=` with the bytes of shared memory.

use octants_artifact::CodeTarget;
use octants_ir::{CodegenError, CostTable, Scalar, TargetInfo};

/// The architecture of all targets.
pub const TRIPLE: &str = "spirv64-vulkan1.2";

/// Prefix of a processor name.
const SUBGROUP: &str = "subgroup";
/// Prefix of the shared memory size.
const SHARED: &str = "shared=";

/// See [`DeviceFeatures::fences_wait`].
const FENCES_WAIT: &str = "fences_wait";

/// See [`DeviceFeatures::limits_loops`].
const LIMITS_LOOPS: &str = "limits_loops";

/// Bytes of shared memory that every device has.
const LEAST_SHARED: u32 = 16 << 10;

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $word:literal),* $(,)?) => {
        /// The capabilities of a device.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct DeviceFeatures {
            /// Threads of a subgroup.
            pub subgroup_size: u32,
            /// Bytes of shared memory of a block.
            pub shared_bytes: u32,
            /// A driver bug: a memory barrier waits for all threads of the block, as a control barrier does.
            pub fences_wait: bool,
            /// Another driver bug: a thread that has run many iterations leaves all its loops. The code then records
            /// this.
            pub limits_loops: bool,
            $($(#[$doc])* pub $name: bool,)*
        }

        impl DeviceFeatures {
            /// A device that has all of them.
            pub const ALL: DeviceFeatures =
                DeviceFeatures {
                    subgroup_size: 32,
                    shared_bytes: 32 << 10,
                    fences_wait: false,
                    limits_loops: false,
                    $($name: true,)*
                };

            /// A device that has none of them.
            pub const NONE: DeviceFeatures =
                DeviceFeatures {
                    subgroup_size: 32,
                    shared_bytes: LEAST_SHARED,
                    fences_wait: false,
                    limits_loops: false,
                    $($name: false,)*
                };

            /// The target of code for such a device.
            pub fn code_target(&self) -> CodeTarget {
                let mut words = vec![format!("{SHARED}{}", self.shared_bytes)];
                if self.fences_wait { words.push(FENCES_WAIT.to_owned()); }
                if self.limits_loops { words.push(LIMITS_LOOPS.to_owned()); }
                $(if self.$name { words.push($word.to_owned()); })*
                CodeTarget::Device {
                    triple: TRIPLE.into(),
                    cpu: format!("{SUBGROUP}{}", self.subgroup_size),
                    features: words.join(","),
                }
            }

            fn set(&mut self, word: &str) -> bool {
                match word {
                    FENCES_WAIT => self.fences_wait = true,
                    LIMITS_LOOPS => self.limits_loops = true,
                    $($word => self.$name = true,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

features! {
    /// 8-bit integers, in memory too.
    int8 = "int8",
    /// 16-bit integers, in memory too.
    int16 = "int16",
    /// 16-bit floats, in memory too.
    float16 = "float16",
    /// 64-bit floats.
    float64 = "float64",
    /// Atomic updates of 64-bit integers in global memory.
    atomic_int64 = "atomic_int64",
    /// Atomic updates of 64-bit integers in shared memory.
    shared_atomic_int64 = "shared_atomic_int64",
    /// Atomic sums of 32-bit floats in global memory.
    atomic_float32 = "atomic_float32",
    /// Atomic sums of 32-bit floats in shared memory.
    shared_atomic_float32 = "shared_atomic_float32",
    /// Atomic sums of 64-bit floats in global memory.
    atomic_float64 = "atomic_float64",
    /// Zeros keep their signs, infinities and NaN are computed with, for 32-bit floats.
    special_float32 = "special_float32",
    /// The same for 64-bit floats.
    special_float64 = "special_float64",
    /// The same for 16-bit floats.
    special_float16 = "special_float16",
    /// Conversions to 16-bit floats round to nearest even.
    rounds_float16 = "rounds_float16",
    /// Votes, ballots and shuffles of a subgroup.
    subgroups = "subgroups",
    /// A counter of ticks.
    clock = "clock",
}

impl DeviceFeatures {
    /// The features of a target.
    pub fn of(target: &CodeTarget) -> Result<DeviceFeatures, CodegenError> {
        let CodeTarget::Device { triple, cpu, features } = target else {
            return Err(CodegenError::new("the CPU cannot run SPIR-V"));
        };
        let unknown = |what: &str| CodegenError::new(format!("`{what}` is not a SPIR-V target"));
        if triple != TRIPLE {
            return Err(unknown(triple));
        }
        let size = cpu.strip_prefix(SUBGROUP).and_then(|n| n.parse().ok());
        let subgroup_size = size.filter(|n: &u32| n.is_power_of_two() && *n <= 128).ok_or_else(|| unknown(cpu))?;
        let mut found = DeviceFeatures { subgroup_size, ..DeviceFeatures::NONE };
        for word in features.split(',').filter(|w| !w.is_empty()) {
            match word.strip_prefix(SHARED).map(str::parse) {
                Some(Ok(bytes)) => found.shared_bytes = bytes,
                Some(Err(_)) => return Err(unknown(word)),
                None if found.set(word) => {}
                None => return Err(unknown(word)),
            }
        }
        Ok(found)
    }

    /// The capabilities that scheduling uses for such a device.
    pub fn info(&self) -> TargetInfo {
        TargetInfo {
            has_grid: true,
            subgroup_size: self.subgroup_size,
            max_shared_bytes: u64::from(self.shared_bytes),
            // A word, aligned as arrays are.
            assertion_bytes: 16,
            has_vectors: false,
            // Two blocks fit.
            shared_bytes: u64::from(self.shared_bytes / 2).min(32 << 10),
            private_bytes: 0,
            registers: 128,
            full_grid: 32,
            waits_for_loads: false,
            counts_in_32_bits: true,
            has_constant_loads: true,
            products: &[],
            loads_matrices: false,
            copies_async: false,
            merges_accesses: false,
            unrolls_parallel_loops: false,
            types_shared_memory: true,
            costs: CostTable::GENERIC,
        }
    }

    /// Why values of a type cannot be computed with; `None` if they can.
    pub fn missing(&self, s: Scalar) -> Option<&'static str> {
        match s {
            Scalar::I8 | Scalar::U8 if !self.int8 => Some("this device has no 8-bit integers in shaders"),
            Scalar::I16 | Scalar::U16 if !self.int16 => Some("this device has no 16-bit integers in shaders"),
            Scalar::F16 if !self.float16 => Some("this device has no 16-bit floats in shaders: use f32"),
            Scalar::F64 if !self.float64 => Some("this device has no 64-bit floats in shaders: use f32"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_follow_from_the_target() {
        let faulty = DeviceFeatures { fences_wait: true, limits_loops: true, ..DeviceFeatures::ALL };
        for features in [DeviceFeatures::ALL, DeviceFeatures::NONE, faulty] {
            assert_eq!(DeviceFeatures::of(&features.code_target()), Ok(features));
        }
        let of = |cpu: &str, words: &str| {
            let (triple, cpu, features) = (TRIPLE.into(), cpu.into(), words.into());
            DeviceFeatures::of(&CodeTarget::Device { triple, cpu, features }).map(|f| f.subgroup_size)
        };
        assert_eq!(of("subgroup8", "int8"), Ok(8));
        for (cpu, words) in [("subgroup12", ""), ("sm_80", ""), ("subgroup8", "int7"), ("subgroup8", "shared=many")] {
            assert!(of(cpu, words).is_err(), "{cpu} {words}");
        }
    }
}
