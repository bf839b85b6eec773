//! [`CodeObject`]: a linked code object, loaded: its segments in memory of this process, and its kernels.

use std::collections::HashMap;
use std::ops::Range;

use crate::metadata::{self, KernelMetadata};

/// A kernel's descriptor and metadata.
#[derive(Debug, Clone)]
pub struct Kernel {
    /// Entry point, as an offset in the image.
    pub entry: u64,
    /// Shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Private memory per thread, in bytes.
    pub private_bytes: u32,
    /// Size of the kernarg segment, with hidden arguments.
    pub argument_bytes: u32,
    /// Descriptor bits: floating-point modes.
    pub resources_1: u32,
    /// Descriptor bits: system scalar registers.
    pub resources_2: u32,
    /// Descriptor bits: user scalar registers.
    pub properties: u16,
    /// Kernarg preload: the number of words, and the first one.
    pub preloaded: (u32, u32),
    /// The metadata.
    pub metadata: KernelMetadata,
}

/// A code object in memory.
#[derive(Debug)]
pub struct CodeObject {
    /// The loaded segments. Stored as words for alignment.
    image: Vec<u64>,
    /// Executable ranges of the image.
    pub code: Vec<Range<u64>>,
    /// Kernels by name.
    pub kernels: HashMap<String, Kernel>,
    /// The processor number in the ELF flags.
    pub machine: u32,
}

const LOADED: u64 = 1;
const DYNAMIC: u64 = 2;
const NOTES: u64 = 4;
const EXECUTABLE: u64 = 1;
/// The type of the metadata note.
const METADATA_NOTE: u64 = 32;
const SYMBOL_BYTES: u64 = 24;
const DESCRIPTOR_BYTES: u64 = 64;
/// Relocation types in linked code objects: a symbol's address, and the image's address plus an addend.
const ABSOLUTE_64: u64 = 3;
const RELATIVE_64: u64 = 13;

/// Little-endian access to bytes.
struct File<'a>(&'a [u8]);

impl File<'_> {
    fn number(&self, at: u64, bytes: u64) -> Option<u64> {
        let digits = self.0.get(at as usize..at.checked_add(bytes)? as usize)?;
        Some(digits.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    /// Offset, address, bytes in the file, bytes in memory, flags of each segment of a kind.
    fn segments(&self, kind: u64) -> Option<Vec<[u64; 5]>> {
        let (table, size, count) = (self.number(32, 8)?, self.number(54, 2)?, self.number(56, 2)?);
        let mut found = Vec::new();
        for at in (0..count).map(|n| table + n * size) {
            if self.number(at, 4)? == kind {
                found.push([
                    self.number(at + 8, 8)?,
                    self.number(at + 16, 8)?,
                    self.number(at + 32, 8)?,
                    self.number(at + 40, 8)?,
                    self.number(at + 4, 4)?,
                ]);
            }
        }
        Some(found)
    }

    fn metadata(&self) -> Option<HashMap<String, KernelMetadata>> {
        for [offset, _, bytes, ..] in self.segments(NOTES)? {
            let mut at = offset;
            while at + 12 <= offset + bytes {
                let (name, content, kind) = (self.number(at, 4)?, self.number(at + 4, 4)?, self.number(at + 8, 4)?);
                let from = at + 12 + name.next_multiple_of(4);
                if kind == METADATA_NOTE {
                    return metadata::kernels(self.0.get(from as usize..(from + content) as usize)?);
                }
                at = from + content.next_multiple_of(4);
            }
        }
        None
    }
}

impl CodeObject {
    /// Loads a file.
    pub fn load(file: &[u8]) -> Result<CodeObject, String> {
        let header = File(file);
        let machine = header.number(48, 4).ok_or("the file ends in its header")? as u32 & 0xff;
        let mut object = CodeObject { image: Vec::new(), code: Vec::new(), kernels: HashMap::new(), machine };
        object.load_segments(&header).ok_or("the file ends in a segment")?;
        let dynamic = object.dynamic(&header).ok_or("there is no table of dynamic symbols")?;
        object.relocate(&dynamic)?;
        let metadata = header.metadata().ok_or("there are no metadata")?;
        object.find_kernels(&dynamic, &metadata).ok_or("a kernel has no descriptor or no metadata")?;
        Ok(object)
    }

    /// The address of the image in this process.
    pub fn base(&self) -> u64 {
        self.image.as_ptr() as u64
    }

    /// The addresses of the whole image.
    pub fn addresses(&self) -> Range<u64> {
        self.base()..self.base() + 8 * self.image.len() as u64
    }

    /// The image.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the slice has this size, and all bit patterns are valid.
        unsafe { std::slice::from_raw_parts(self.image.as_ptr().cast(), 8 * self.image.len()) }
    }

    fn number(&self, at: u64, bytes: u64) -> Option<u64> {
        File(self.bytes()).number(at, bytes)
    }

    fn load_segments(&mut self, file: &File<'_>) -> Option<()> {
        let segments = file.segments(LOADED)?;
        let end = segments.iter().map(|[_, address, _, bytes, _]| address + bytes).max()?;
        // Decoding may read up to 32 bytes past the last instruction.
        self.image = vec![0; (end as usize + 64).div_ceil(8)];
        for [offset, address, bytes, _, flags] in segments {
            let content = file.0.get(offset as usize..(offset + bytes) as usize)?;
            // SAFETY: the image has room for all segments.
            unsafe {
                let to = self.image.as_mut_ptr().cast::<u8>().add(address as usize);
                std::ptr::copy_nonoverlapping(content.as_ptr(), to, content.len());
            }
            if flags & EXECUTABLE != 0 {
                self.code.push(address..address + bytes);
            }
        }
        Some(())
    }

    /// The entries of the dynamic section, by their tags.
    fn dynamic(&self, file: &File<'_>) -> Option<HashMap<u64, u64>> {
        let [_, address, _, bytes, _] = *file.segments(DYNAMIC)?.first()?;
        (0..bytes / 16)
            .map(|n| address + 16 * n)
            .map(|at| Some((self.number(at, 8)?, self.number(at + 8, 8)?)))
            .collect()
    }

    fn relocate(&mut self, dynamic: &HashMap<u64, u64>) -> Result<(), String> {
        let (Some(table), Some(bytes)) = (dynamic.get(&7), dynamic.get(&8)) else { return Ok(()) };
        for at in (0..bytes / 24).map(|n| table + 24 * n) {
            let read = |offset| self.number(at + offset, 8).ok_or("a relocation is outside the image");
            let (place, info, addend) = (read(0)?, read(8)?, read(16)?);
            let value = match info & 0xffff_ffff {
                RELATIVE_64 => addend,
                ABSOLUTE_64 => {
                    let symbols = dynamic.get(&6).ok_or("there are no symbols")?;
                    let symbol = symbols + SYMBOL_BYTES * (info >> 32);
                    addend + self.number(symbol + 8, 8).ok_or("a symbol is outside the image")?
                }
                other => return Err(format!("a relocation of kind {other}")),
            };
            let value = value.wrapping_add(self.base());
            let word = self.image.get_mut(place as usize / 8).filter(|_| place % 8 == 0);
            *word.ok_or("a relocation is outside the image")? = value;
        }
        Ok(())
    }

    fn find_kernels(&mut self, dynamic: &HashMap<u64, u64>, metadata: &HashMap<String, KernelMetadata>) -> Option<()> {
        let (symbols, names) = (*dynamic.get(&6)?, *dynamic.get(&5)?);
        let text = |at: u64| self.bytes().get(at as usize..)?.split(|b| *b == 0).next();
        let count = self.symbol_count(dynamic)?;
        let mut kernels = HashMap::new();
        for at in (0..count).map(|n| symbols + SYMBOL_BYTES * n) {
            let name = String::from_utf8_lossy(text(names + self.number(at, 4)?)?).into_owned();
            let Some(kernel) = name.strip_suffix(".kd") else { continue };
            let descriptor = self.number(at + 8, 8)?;
            kernels.insert(kernel.to_string(), self.kernel(descriptor, metadata.get(kernel)?)?);
        }
        self.kernels = kernels;
        Some(())
    }

    /// The number of dynamic symbols, from the hash table.
    fn symbol_count(&self, dynamic: &HashMap<u64, u64>) -> Option<u64> {
        if let Some(hash) = dynamic.get(&4) {
            return self.number(hash + 4, 4);
        }
        let hash = *dynamic.get(&0x6fff_fef5)?;
        let (buckets, first, bloom) = (self.number(hash, 4)?, self.number(hash + 4, 4)?, self.number(hash + 8, 4)?);
        let table = hash + 16 + 8 * bloom;
        let last = (0..buckets).filter_map(|n| self.number(table + 4 * n, 4)).max()?;
        let chain = |n: u64| self.number(table + 4 * buckets + 4 * (n - first), 4);
        let mut end = last.max(first);
        while last >= first && chain(end)? & 1 == 0 {
            end += 1;
        }
        Some(end + 1)
    }

    fn kernel(&self, at: u64, metadata: &KernelMetadata) -> Option<Kernel> {
        self.bytes().get(at as usize..(at + DESCRIPTOR_BYTES) as usize)?;
        let word = |offset| self.number(at + offset, 4).map(|n| n as u32);
        let preload = self.number(at + 58, 2)? as u32;
        Some(Kernel {
            entry: at.wrapping_add(self.number(at + 16, 8)?),
            shared_bytes: word(0)?,
            private_bytes: word(4)?,
            argument_bytes: word(8)?,
            resources_1: word(48)?,
            resources_2: word(52)?,
            properties: self.number(at + 56, 2)? as u16,
            preloaded: (preload & 0x7f, preload >> 7),
            metadata: metadata.clone(),
        })
    }
}
