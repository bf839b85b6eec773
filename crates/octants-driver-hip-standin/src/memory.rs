//! Device memory, which is allocated from the process's memory, and pinned host memory.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::faults::note;
use crate::lock::lock;
use crate::outcome::{Outcome, code};

/// The contents of new memory, and of freed memory.
const RUBBISH: u8 = 0xcd;
const GONE: u8 = 0xdd;
/// Number of bytes at either end of a block that are overwritten. Overwriting whole large blocks is too slow.
const SCRIBBLED: usize = 1 << 20;
/// Maximum size of freed blocks in quarantine, where a late access reads garbage instead of new data.
const QUARANTINE: usize = 8 << 20;

/// The kind of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Device memory from `hipMalloc`.
    Plain(i32),
    /// Device memory from a pool.
    Pool(i32, u64),
    /// Pinned host memory.
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AllocationState {
    /// The stream has not reached the allocation yet.
    Coming,
    Valid,
    /// The stream has not reached the deallocation yet.
    Going,
}

#[derive(Debug)]
struct Block {
    bytes: usize,
    kind: Kind,
    state: AllocationState,
}

#[derive(Debug, Default)]
struct Blocks {
    live: BTreeMap<u64, Block>,
    /// Free memory of pools: size, pool, address.
    kept: Vec<(usize, u64, u64)>,
    quarantine: Vec<(u64, usize)>,
    used: u64,
}

/// All allocations.
#[derive(Debug)]
pub struct Memory {
    blocks: Mutex<Blocks>,
    total: u64,
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, 256).expect("a size that there is memory for")
}

fn scribble(at: u64, bytes: usize, with: u8) {
    let part = bytes.min(SCRIBBLED);
    // SAFETY: the block is exclusively owned.
    unsafe {
        std::ptr::write_bytes(at as *mut u8, with, part);
        std::ptr::write_bytes((at as *mut u8).add(bytes - part), with, part);
    }
}

/// Reports a fault if a block was written to after it was freed.
fn check_untouched(at: u64, bytes: usize) {
    let part = bytes.min(SCRIBBLED);
    // SAFETY: the block is still owned. A late writer races with this read, which is a fault in any case.
    let ends =
        unsafe { [at, at + (bytes - part) as u64].map(|from| std::slice::from_raw_parts(from as *const u8, part)) };
    if ends.iter().any(|end| end.iter().any(|&byte| byte != GONE)) {
        scribble(at, bytes, GONE);
        note(format!("{bytes} bytes at {at:#x} were written to after they were given back"));
    }
}

impl Memory {
    /// Creates devices with this many bytes each.
    pub fn new(total: u64) -> Memory {
        Memory { blocks: Mutex::default(), total }
    }

    /// Free and total bytes of a device.
    pub fn info(&self) -> (u64, u64) {
        (self.total - lock(&self.blocks).used, self.total)
    }

    /// Numbers of live blocks: device, pool, pinned.
    pub fn live(&self) -> [usize; 3] {
        let blocks = lock(&self.blocks);
        let count = |of: fn(&Block) -> bool| {
            blocks.live.values().filter(|b| b.state != AllocationState::Going && of(b)).count()
        };
        [
            count(|b| matches!(b.kind, Kind::Plain(_))),
            count(|b| matches!(b.kind, Kind::Pool(..))),
            count(|b| b.kind == Kind::Host),
        ]
    }

    /// Allocates. Pool memory becomes valid when the stream reaches the allocation.
    pub fn allocate(&self, bytes: usize, kind: Kind) -> Outcome<u64> {
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let mut blocks = lock(&self.blocks);
        let state = if matches!(kind, Kind::Pool(..)) { AllocationState::Coming } else { AllocationState::Valid };
        if kind != Kind::Host && blocks.used + bytes as u64 > self.total {
            return Err(code::OUT_OF_MEMORY);
        }
        let known = blocks
            .kept
            .iter()
            .position(|(size, pool, _)| matches!(kind, Kind::Pool(_, p) if p == *pool) && *size == bytes);
        let at = match known {
            Some(known) => {
                let (bytes, _, at) = blocks.kept.swap_remove(known);
                check_untouched(at, bytes);
                at
            }
            // SAFETY: the size is not zero.
            None => unsafe { alloc(layout(bytes)) as u64 },
        };
        if at == 0 {
            return Err(code::OUT_OF_MEMORY);
        }
        if state == AllocationState::Valid {
            scribble(at, bytes, RUBBISH);
        }
        if kind != Kind::Host {
            blocks.used += bytes as u64;
        }
        blocks.live.insert(at, Block { bytes, kind, state });
        Ok(at)
    }

    /// Makes pool memory valid: the stream reached its allocation.
    pub fn make_valid(&self, at: u64) {
        let mut blocks = lock(&self.blocks);
        let Some(block) = blocks.live.get_mut(&at) else { return };
        if block.state == AllocationState::Coming {
            block.state = AllocationState::Valid;
        }
        let bytes = block.bytes;
        scribble(at, bytes, RUBBISH);
    }

    /// Whether a range is valid memory of a device. Reports a fault otherwise.
    pub fn check(&self, who: &str, at: u64, bytes: usize, device: i32) -> bool {
        let blocks = lock(&self.blocks);
        let found =
            blocks.live.range(..=at).next_back().filter(|(start, b)| at + bytes as u64 <= *start + b.bytes as u64);
        let wrong = match found.map(|(_, b)| (b.kind, b.state)) {
            None => "no memory of a device",
            Some((Kind::Plain(d) | Kind::Pool(d, _), _)) if d != device => "memory of another device",
            Some((_, AllocationState::Coming)) => "memory whose allocation the stream that made it has not come to",
            Some(_) => return true,
        };
        drop(blocks);
        note(format!("{who} of {bytes} bytes at {at:#x}: {wrong}"));
        false
    }

    /// The block that contains an address, if code of a device may access it now.
    pub fn usable(&self, at: u64, device: i32) -> Option<std::ops::Range<u64>> {
        let blocks = lock(&self.blocks);
        let (start, block) = blocks.live.range(..=at).next_back()?;
        let is_ours = match block.kind {
            Kind::Plain(d) | Kind::Pool(d, _) => d == device,
            Kind::Host => true,
        };
        let end = start + block.bytes as u64;
        (at < end && is_ours && block.state != AllocationState::Coming).then_some(*start..end)
    }

    /// Announces a stream-ordered deallocation. False if it is not pool memory.
    pub fn announce_release(&self, at: u64) -> bool {
        let mut blocks = lock(&self.blocks);
        match blocks.live.get_mut(&at) {
            Some(block) if matches!(block.kind, Kind::Pool(..)) && block.state != AllocationState::Going => {
                block.state = AllocationState::Going;
                true
            }
            _ => false,
        }
    }

    /// The kind of the block that begins at an address.
    pub fn kind(&self, at: u64) -> Option<Kind> {
        lock(&self.blocks).live.get(&at).map(|b| b.kind)
    }

    /// Whether an address is in pinned memory.
    pub fn is_pinned(&self, at: u64, bytes: usize) -> bool {
        let blocks = lock(&self.blocks);
        let found = blocks.live.range(..=at).next_back();
        found.is_some_and(|(start, b)| b.kind == Kind::Host && at + bytes as u64 <= *start + b.bytes as u64)
    }

    /// Frees a block.
    pub fn release(&self, at: u64) {
        let mut blocks = lock(&self.blocks);
        let Some(block) = blocks.live.remove(&at) else { return };
        scribble(at, block.bytes, GONE);
        if block.kind != Kind::Host {
            blocks.used -= block.bytes as u64;
        }
        if let Kind::Pool(_, pool) = block.kind {
            blocks.kept.push((block.bytes, pool, at));
        } else {
            blocks.quarantine.push((at, block.bytes));
        }
        Self::end_quarantine(&mut blocks);
    }

    /// Releases the free memory of a pool.
    pub fn trim(&self, pool: u64) {
        let mut blocks = lock(&self.blocks);
        let gone: Vec<_> =
            blocks.kept.extract_if(.., |(_, p, _)| *p == pool).map(|(bytes, _, at)| (at, bytes)).collect();
        blocks.quarantine.extend(gone);
        Self::end_quarantine(&mut blocks);
    }

    /// Reports a fault for each block in quarantine that was written to after it was freed.
    pub fn check_given_back(&self) {
        let blocks = lock(&self.blocks);
        let kept = blocks.kept.iter().map(|(bytes, _, at)| (*at, *bytes));
        kept.chain(blocks.quarantine.iter().copied()).for_each(|(at, bytes)| check_untouched(at, bytes));
    }

    fn end_quarantine(blocks: &mut Blocks) {
        let mut held: usize = blocks.quarantine.iter().map(|(_, bytes)| bytes).sum();
        while held > QUARANTINE {
            let (at, bytes) = blocks.quarantine.remove(0);
            held -= bytes;
            check_untouched(at, bytes);
            // SAFETY: allocated with this layout.
            unsafe { dealloc(at as *mut u8, layout(bytes)) }
        }
    }
}
