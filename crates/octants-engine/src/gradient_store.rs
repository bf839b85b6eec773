//! The gradient store: memory of one launch in which a kernel's adjoint keeps the values that it cannot recompute.
//!
//! The required size depends on memory and arguments. A counting kernel with the same arguments computes it before any
//! gradient is written, so the allocated store always suffices. Counts are cached while they are valid
//! (`known_results`), because on a GPU each count requires a wait. If a parallel loop has more iterations than the
//! store has lanes, each lane runs several iterations in sequence. If memory is short, there are fewer lanes.

use std::sync::Arc;

use octants_artifact::StoreOfGradient;
use octants_autodiff::{STORE_PARAMS, StoreArguments};
use octants_ir::ArgLayout;
use octants_runtime::{Buffer, CountedStore, Device, DeviceError, ErrorKind, LoadedKernel, Result, Results};

use crate::session::Executable;

/// Words of 32 and of 64 bits.
const WORD_BYTES: [u64; 2] = [4, 8];

/// The data that a launch with a store needs.
pub(crate) struct GradientStore {
    /// Counts the words that the store must hold.
    pub count: Box<Executable>,
    /// First slots of the two buffers of words.
    pub buffers: [u32; 2],
    /// Slots of the parameters.
    pub params: [u32; STORE_PARAMS as usize],
    /// The stored values, for messages.
    pub kept: String,
}

/// A store of at most this size is not worth reducing.
const LITTLE_BYTES: u64 = 512 << 20;

/// How lanes run the iterations of a loop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lanes {
    /// Maximum number of of them.
    pub most: u64,
    /// Maximum number of lanes if the store would otherwise exceed [`LITTLE_BYTES`].
    pub at_once: u64,
    /// Lanes have the same number of turns, in blocks of this size.
    pub even: Option<u64>,
    /// A lane runs neighboring iterations and has neighboring words; else lanes take turns in both.
    pub neighbors: bool,
    /// Maximum number of bytes that the store may take.
    pub most_bytes: u64,
}

impl Lanes {
    /// The number of lanes for this many iterations.
    fn count(&self, iterations: u64) -> u64 {
        let most = self.most.min(iterations).max(1);
        let turns = iterations.div_ceil(most).max(1);
        match self.even {
            Some(block) if turns > 1 => iterations.div_ceil(turns).next_multiple_of(block).min(most),
            _ => most,
        }
    }
}

/// The counted sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted {
    iterations: u64,
    lane: [u64; 2],
    root: [u64; 2],
}

impl Counted {
    /// The result of a launch of the counting kernel.
    pub fn of(results: &Results) -> Counted {
        let &[iterations, lane32, lane64, root32, root64] = results.slots() else {
            panic!("compiler bug: the size of a gradient store has an unexpected type")
        };
        Counted { iterations, lane: [lane32, lane64], root: [root32, root64] }
    }
}

impl GradientStore {
    /// For the arguments of a store in slots of a layout.
    pub fn new(count: Executable, at: &StoreArguments, layout: &ArgLayout, kept: String) -> GradientStore {
        let buffer = |i: u32| {
            layout.buffers[(at.first_buffer + i) as usize]
                .expect("compiler bug: a gradient store that is not an ndarray")
        };
        let params = std::array::from_fn(|i| layout.params[at.first_param as usize + i]);
        GradientStore { count: Box::new(count), buffers: [buffer(0), buffer(1)], params, kept }
    }

    /// The part that is cached on disk with the counting code.
    pub fn to_stored(&self) -> Option<StoreOfGradient> {
        Some(StoreOfGradient {
            count: self.count.key?,
            pointers: self.count.pointers.clone(),
            buffers: self.buffers.to_vec(),
            params: self.params.to_vec(),
            kept: self.kept.clone(),
            depends: self.count.depends().cloned(),
        })
    }

    /// Created from the counting code, and the result of [`GradientStore::to_stored`].
    pub fn from_stored(count: Executable, stored: &StoreOfGradient) -> Option<GradientStore> {
        let buffers = stored.buffers.as_slice().try_into().ok()?;
        let params = stored.params.as_slice().try_into().ok()?;
        Some(GradientStore { count: Box::new(count), buffers, params, kept: stored.kept.clone() })
    }

    /// Allocates a store of the counted size, and sets its argument slots.
    pub fn make(
        &self,
        counted: Counted,
        lanes: Lanes,
        slots: &mut [u64],
        allocate: impl Fn(u64) -> Result<Buffer>,
    ) -> Result<Vec<Buffer>> {
        let mut count = lanes.count(counted.iterations);
        let (of_lane, of_root) = (bytes_of(counted.lane), bytes_of(counted.root));
        let least = of_root.saturating_add(of_lane);
        if let Some(few) = LITTLE_BYTES.checked_div(of_lane) {
            count = count.min(few.max(lanes.at_once));
        }
        if let Some(fitting) = lanes.most_bytes.saturating_sub(of_root).checked_div(of_lane) {
            count = count.min(fitting.max(1));
        }
        if least > lanes.most_bytes {
            return Err(self.too_large(least, lanes.most_bytes, None));
        }
        loop {
            match self.allocate(&counted, count, &allocate) {
                Ok(buffers) => {
                    self.set_arguments(&counted, count, lanes.neighbors, &buffers, slots)?;
                    return Ok(buffers.into_iter().flatten().collect());
                }
                Err(error) if !matches!(error.kind(), ErrorKind::OutOfMemory { .. }) => return Err(error),
                Err(_) if count > 1 => count = count.div_ceil(2),
                Err(error) => return Err(self.too_large(least, lanes.most_bytes, Some(error.to_string()))),
            }
        }
    }

    fn too_large(&self, bytes: u64, most: u64, cause: Option<String>) -> DeviceError {
        let limit = cause.unwrap_or_else(|| format!("the option `ad_store_bytes` allows {most}"));
        let message = format!(
            "the gradient of kernel `{}` needs {bytes} bytes per thread to store {}: {limit}. Split the loop into \
             several kernel calls, or carry less from one iteration to the next",
            self.count.name().trim_end_matches("_grad_count"),
            self.kept,
        );
        ErrorKind::StoreTooLarge { message }.into()
    }

    fn allocate(
        &self,
        counted: &Counted,
        lanes: u64,
        allocate: &impl Fn(u64) -> Result<Buffer>,
    ) -> Result<[Option<Buffer>; 2]> {
        let mut out = [None, None];
        for class in 0..2 {
            let words = counted.root[class].saturating_add(counted.lane[class].saturating_mul(lanes));
            if words > 0 {
                out[class] = Some(allocate(words.saturating_mul(WORD_BYTES[class]))?);
            }
        }
        Ok(out)
    }

    fn set_arguments(
        &self,
        counted: &Counted,
        lanes: u64,
        neighbors: bool,
        buffers: &[Option<Buffer>; 2],
        slots: &mut [u64],
    ) -> Result<()> {
        for (class, buffer) in buffers.iter().enumerate() {
            let slot = self.buffers[class] as usize;
            slots[slot] = 0;
            slots[slot + 1] = 0;
            if let Some(buffer) = buffer {
                slots[slot] = buffer.ptr()?;
                slots[slot + 1] = buffer.bytes() / WORD_BYTES[class];
            }
        }
        let (step, strides) = if neighbors { (1, counted.lane) } else { (lanes, [1, 1]) };
        let values = [lanes, step, strides[0], strides[1], counted.root[0], counted.root[1], u64::from(neighbors)];
        for (&slot, value) in self.params.iter().zip(values) {
            slots[slot as usize] = value;
        }
        Ok(())
    }
}

/// The store of a captured launch: each run of the launch allocates another.
pub(crate) struct StoreOfEachRun {
    pub store: Arc<GradientStore>,
    pub lanes: Lanes,
    pub device: Device,
}

impl CountedStore for StoreOfEachRun {
    fn count(&self) -> &LoadedKernel {
        self.store.count.kernel()
    }

    fn allocate(&self, counted: &Results, args: &mut [u64]) -> Result<Vec<Buffer>> {
        self.store.make(Counted::of(counted), self.lanes, args, |bytes| self.device.allocate_unset(bytes))
    }
}

/// The total bytes of the words of each length, saturating on overflow.
fn bytes_of(words: [u64; 2]) -> u64 {
    words.iter().zip(WORD_BYTES).fold(0, |sum: u64, (n, b)| sum.saturating_add(n.saturating_mul(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_run_equal_numbers_of_iterations() {
        let lanes = |most, even, n| Lanes { most, at_once: 1, even, neighbors: false, most_bytes: 0 }.count(n);
        assert_eq!(lanes(1000, Some(32), 900), 900);
        assert_eq!(lanes(1000, Some(32), 1001), 512, "two turns each");
        assert_eq!(lanes(1000, Some(32), 2900), 992, "three");
        assert_eq!(lanes(1000, Some(256), 1999), 1000, "no more than there may be");
        assert_eq!(lanes(1000, None, 1001), 1000);
        assert_eq!(lanes(1000, Some(32), 0), 1);
    }

    #[test]
    fn sizes_saturate_instead_of_overflowing() {
        assert_eq!(bytes_of([3, 5]), 52);
        assert_eq!(bytes_of([1, 1 << 61]), u64::MAX);
    }
}
