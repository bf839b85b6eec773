//! Memory of devices, which here is the process's own, and pinned memory of the host.

use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::faults::note;
use crate::lock::lock;
use crate::outcome::{Outcome, code};

/// What memory holds before anything is written, and after it was given back.
const RUBBISH: u8 = 0xcd;
const GONE: u8 = 0xdd;
/// Bytes at either end of a block that are overwritten: whole large blocks would take long.
const SCRIBBLED: usize = 1 << 20;
/// Bytes of blocks that are kept for a while after they were given back, so that a late access finds rubbish and not
/// another's data.
const QUARANTINE: usize = 8 << 20;

/// Whose memory it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A device's, from plain calls.
    Plain(i32),
    /// A device's, from a pool.
    Pool(i32, u64),
    /// Pinned memory of the host.
    Host,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Allocated on a stream that has not come there yet.
    Coming,
    Valid,
    /// Given back on a stream that has not come there yet.
    Going,
}

#[derive(Debug)]
struct Block {
    bytes: usize,
    kind: Kind,
    life: Life,
}

#[derive(Debug, Default)]
struct Blocks {
    live: BTreeMap<u64, Block>,
    /// What pools keep: size, pool, address.
    kept: Vec<(usize, u64, u64)>,
    quarantine: Vec<(u64, usize)>,
    used: u64,
}

/// All memory.
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
    // SAFETY: the block is ours, and no one else's.
    unsafe {
        std::ptr::write_bytes(at as *mut u8, with, part);
        std::ptr::write_bytes((at as *mut u8).add(bytes - part), with, part);
    }
}

/// Notes a fault where a block was written to after it was given back.
fn check_untouched(at: u64, bytes: usize) {
    let part = bytes.min(SCRIBBLED);
    // SAFETY: the block is ours still. A late writer would race with this: it is a fault in any case.
    let ends =
        unsafe { [at, at + (bytes - part) as u64].map(|from| std::slice::from_raw_parts(from as *const u8, part)) };
    if ends.iter().any(|end| end.iter().any(|&byte| byte != GONE)) {
        scribble(at, bytes, GONE);
        note(format!("{bytes} bytes at {at:#x} were written to after they were given back"));
    }
}

impl Memory {
    /// So many bytes of each device.
    pub fn new(total: u64) -> Memory {
        Memory { blocks: Mutex::default(), total }
    }

    /// Bytes of a device that are free, and all.
    pub fn info(&self) -> (u64, u64) {
        (self.total - lock(&self.blocks).used, self.total)
    }

    /// Counts of live blocks: plain, of pools, of the host.
    pub fn live(&self) -> [usize; 3] {
        let blocks = lock(&self.blocks);
        let count = |of: fn(&Block) -> bool| blocks.live.values().filter(|b| b.life != Life::Going && of(b)).count();
        [
            count(|b| matches!(b.kind, Kind::Plain(_))),
            count(|b| matches!(b.kind, Kind::Pool(..))),
            count(|b| b.kind == Kind::Host),
        ]
    }

    /// New memory. That of a pool is valid when the stream comes to it.
    pub fn allocate(&self, bytes: usize, kind: Kind) -> Outcome<u64> {
        if bytes == 0 {
            return Err(code::INVALID_VALUE);
        }
        let mut blocks = lock(&self.blocks);
        let life = if matches!(kind, Kind::Pool(..)) { Life::Coming } else { Life::Valid };
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
        if life == Life::Valid {
            scribble(at, bytes, RUBBISH);
        }
        if kind != Kind::Host {
            blocks.used += bytes as u64;
        }
        blocks.live.insert(at, Block { bytes, kind, life });
        Ok(at)
    }

    /// The stream has come to an allocation.
    pub fn make_valid(&self, at: u64) {
        let mut blocks = lock(&self.blocks);
        let Some(block) = blocks.live.get_mut(&at) else { return };
        if block.life == Life::Coming {
            block.life = Life::Valid;
        }
        let bytes = block.bytes;
        scribble(at, bytes, RUBBISH);
    }

    /// Whether memory is a device's and there; a fault otherwise.
    pub fn check(&self, who: &str, at: u64, bytes: usize, device: i32) -> bool {
        let blocks = lock(&self.blocks);
        let found =
            blocks.live.range(..=at).next_back().filter(|(start, b)| at + bytes as u64 <= *start + b.bytes as u64);
        let wrong = match found.map(|(_, b)| (b.kind, b.life)) {
            None => "no memory of a device",
            Some((Kind::Plain(d) | Kind::Pool(d, _), _)) if d != device => "memory of another device",
            Some((_, Life::Coming)) => "memory whose allocation the stream that made it has not come to",
            Some(_) => return true,
        };
        drop(blocks);
        note(format!("{who} of {bytes} bytes at {at:#x}: {wrong}"));
        false
    }

    /// The block that holds an address, where code of a device may use it now.
    pub fn usable(&self, at: u64, device: i32) -> Option<std::ops::Range<u64>> {
        let blocks = lock(&self.blocks);
        let (start, block) = blocks.live.range(..=at).next_back()?;
        let is_ours = match block.kind {
            Kind::Plain(d) | Kind::Pool(d, _) => d == device,
            Kind::Host => true,
        };
        let end = start + block.bytes as u64;
        (at < end && is_ours && block.life != Life::Coming).then_some(*start..end)
    }

    /// Announces that memory of a pool goes when a stream comes there. False where it is none.
    pub fn announce_release(&self, at: u64) -> bool {
        let mut blocks = lock(&self.blocks);
        match blocks.live.get_mut(&at) {
            Some(block) if matches!(block.kind, Kind::Pool(..)) && block.life != Life::Going => {
                block.life = Life::Going;
                true
            }
            _ => false,
        }
    }

    /// The kind of a block that begins there.
    pub fn kind(&self, at: u64) -> Option<Kind> {
        lock(&self.blocks).live.get(&at).map(|b| b.kind)
    }

    /// Whether an address is in pinned memory.
    pub fn is_pinned(&self, at: u64, bytes: usize) -> bool {
        let blocks = lock(&self.blocks);
        let found = blocks.live.range(..=at).next_back();
        found.is_some_and(|(start, b)| b.kind == Kind::Host && at + bytes as u64 <= *start + b.bytes as u64)
    }

    /// Takes memory back.
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

    /// What a pool keeps goes back.
    pub fn trim(&self, pool: u64) {
        let mut blocks = lock(&self.blocks);
        let gone: Vec<_> =
            blocks.kept.extract_if(.., |(_, p, _)| *p == pool).map(|(bytes, _, at)| (at, bytes)).collect();
        blocks.quarantine.extend(gone);
        Self::end_quarantine(&mut blocks);
    }

    /// Notes a fault for each block that was written to after it was given back, as far as memory of it is kept.
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
