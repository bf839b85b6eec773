//! Memory of a block or of a thread, which detects reads of uninitialized memory, and races between two barriers of the
//! block.

use std::collections::HashMap;

use octants_ir::{Buffer, MemorySpace, Scalar};

use crate::memory::{read_bytes, root_sizes, write_bytes};

/// How memory is accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
    /// A volatile read or an atomic update: those do not race with one another.
    Atomic,
}

/// The accessor, for ordering.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accessor {
    pub thread: u32,
    pub subgroup: u32,
    /// Number of barriers that its subgroup has passed.
    pub barriers: u64,
}

#[derive(Debug, Clone)]
struct Root {
    bytes: Vec<u8>,
    written: Vec<bool>,
    /// The accesses to a byte since the last barrier of the block.
    log: HashMap<u64, Vec<(Accessor, Access)>>,
}

/// The roots of shared or private memory.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadMemory {
    roots: Vec<Root>,
}

impl ThreadMemory {
    /// Memory that holds nothing.
    pub fn new(buffers: &[Buffer], space: MemorySpace) -> ThreadMemory {
        let root = |n: usize| Root { bytes: vec![0; n], written: vec![false; n], log: HashMap::new() };
        ThreadMemory { roots: root_sizes(buffers, space).into_iter().map(root).collect() }
    }

    /// Orders all accesses so far before those to come.
    pub fn order_accesses(&mut self) {
        self.roots.iter_mut().for_each(|r| r.log.clear());
    }

    /// Reads a scalar, if it was ever written; without an accessor no one else can.
    pub fn read(
        &mut self,
        root: u32,
        offset: u64,
        s: Scalar,
        by: Option<Accessor>,
        access: Access,
    ) -> Result<Option<u64>, String> {
        let r = &mut self.roots[root as usize];
        let bits = read_bytes(&r.bytes, offset, s)?;
        let first = offset as usize;
        by.map_or(Ok(()), |by| r.note(offset, by, access, false))?;
        Ok(r.written[first..first + s.bytes() as usize].iter().all(|w| *w).then_some(bits))
    }

    /// Writes a scalar.
    pub fn write(
        &mut self,
        root: u32,
        offset: u64,
        s: Scalar,
        bits: u64,
        by: Option<Accessor>,
        access: Access,
    ) -> Result<(), String> {
        let r = &mut self.roots[root as usize];
        let same = read_bytes(&r.bytes, offset, s)? == bits;
        by.map_or(Ok(()), |by| r.note(offset, by, access, same))?;
        write_bytes(&mut r.bytes, offset, s, bits)?;
        let first = offset as usize;
        r.written[first..first + s.bytes() as usize].fill(true);
        Ok(())
    }
}

impl Root {
    /// Records an access, or returns the access that it races with. Threads may store the same value.
    fn note(&mut self, offset: u64, by: Accessor, access: Access, same_value: bool) -> Result<(), String> {
        let log = self.log.entry(offset).or_default();
        for (other, theirs) in log.iter() {
            let ordered = other.thread == by.thread || (other.subgroup == by.subgroup && other.barriers != by.barriers);
            let harmless = match (theirs, access) {
                (Access::Read, Access::Read) | (Access::Atomic, Access::Atomic) => true,
                (Access::Write, Access::Write) => same_value,
                _ => false,
            };
            if !ordered && !harmless {
                return Err(format!(
                    "races with a{} of the same memory by thread {} since the last barrier",
                    match theirs {
                        Access::Read => " read",
                        Access::Write => " write",
                        Access::Atomic => "n atomic access",
                    },
                    other.thread
                ));
            }
        }
        if !log.contains(&(by, access)) {
            log.push((by, access));
        }
        Ok(())
    }
}
