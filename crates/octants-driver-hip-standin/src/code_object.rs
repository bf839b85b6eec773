//! [`Reader`]: parses code objects for AMD GPUs and finds their entry points and requirements. A launch executes
//! nothing. This verifies that the driver finds the code for a GPU, and launches it with the right names and sizes.

use std::collections::HashMap;

use crate::processor::{Code, Crash, Entry, GPU, Grid, LaunchEnvironment, Processor, machine_of};

/// The processor for code objects that are not emulated.
#[derive(Debug)]
pub struct Reader;

/// The type of the dynamic symbol table's section.
const DYNAMIC_SYMBOLS: u32 = 11;
const SYMBOL_BYTES: usize = 24;
/// The suffix of kernel descriptor symbols, and the descriptor's size.
const DESCRIPTION: &str = ".kd";
const DESCRIPTION_BYTES: usize = 64;
/// Offset of the kernarg size in the descriptor.
const ARGUMENT_BYTES: usize = 8;

impl Processor for Reader {
    fn takes(&self, image: &[u8]) -> bool {
        machine_of(image) == Some(GPU)
    }

    fn load(&self, image: &[u8]) -> Result<Box<dyn Code>, String> {
        let kernels = kernels(image).ok_or("the file ends too early")?;
        Ok(Box::new(Read { kernels }))
    }
}

struct Read {
    /// The kernarg size of each kernel.
    kernels: HashMap<String, usize>,
}

impl Code for Read {
    fn entry(&self, name: &str) -> Option<Entry> {
        Some(Entry { at: 0, parameter_bytes: *self.kernels.get(name)?, most_threads: 1024 })
    }

    fn most_resident(&self) -> u32 {
        u32::MAX
    }

    unsafe fn run(&self, _: Entry, _: Grid, _: &[u64], _: &LaunchEnvironment<'_>) -> Result<(), Crash> {
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let digits = bytes.get(at..at.checked_add(size)?)?;
    Some(digits.iter().rev().fold(0, |n, b| n << 8 | usize::from(*b)))
}

/// The kernels of a code object, with their kernarg sizes.
fn kernels(image: &[u8]) -> Option<HashMap<String, usize>> {
    let (sections, size, count) = (number(image, 40, 8)?, number(image, 58, 2)?, number(image, 60, 2)?);
    let section = |n: usize| image.get(sections + n * size..sections + (n + 1) * size);
    let mut found = HashMap::new();
    for table in (0..count).filter_map(section).filter(|s| number(s, 4, 4) == Some(DYNAMIC_SYMBOLS as usize)) {
        let (at, bytes) = (number(table, 24, 8)?, number(table, 32, 8)?);
        let names = number(section(number(table, 40, 4)?)?, 24, 8)?;
        for symbol in image.get(at..at + bytes)?.chunks_exact(SYMBOL_BYTES) {
            let name = image.get(names + number(symbol, 0, 4)?..)?.split(|b| *b == 0).next()?;
            let name = String::from_utf8_lossy(name);
            let Some(kernel) = name.strip_suffix(DESCRIPTION) else { continue };
            let description = in_file(image, number(symbol, 8, 8)?)?;
            let description = image.get(description..description + DESCRIPTION_BYTES)?;
            found.insert(kernel.to_string(), number(description, ARGUMENT_BYTES, 4)?);
        }
    }
    Some(found)
}

/// Converts an address to a file offset.
fn in_file(image: &[u8], address: usize) -> Option<usize> {
    let (segments, size, count) = (number(image, 32, 8)?, number(image, 54, 2)?, number(image, 56, 2)?);
    (0..count).find_map(|n| {
        let segment = image.get(segments + n * size..segments + (n + 1) * size)?;
        let (kind, offset) = (number(segment, 0, 4)?, number(segment, 8, 8)?);
        let (from, bytes) = (number(segment, 16, 8)?, number(segment, 32, 8)?);
        (kind == 1 && (from..from + bytes).contains(&address)).then(|| address - from + offset)
    })
}
