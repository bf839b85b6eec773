//! [`LastLaunches`]: the kernel launched last on each stream, so that an error found later can name it.
//!
//! Streams are hashed to a fixed number of slots. Two that share a slot may be blamed for each other's kernel. In
//! return, recording a launch costs one store, without sharing between threads.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::symbols::RawStream;

const PLACES: usize = 64;

/// A slot on its own cache line. Zero for none, else a kernel's number plus one.
#[repr(align(64))]
#[derive(Debug, Default)]
struct Place(AtomicU32);

/// The last kernel of each stream.
#[derive(Debug)]
pub struct LastLaunches {
    places: Box<[Place]>,
    names: Mutex<Vec<String>>,
}

impl Default for LastLaunches {
    fn default() -> LastLaunches {
        LastLaunches { places: (0..PLACES).map(|_| Place::default()).collect(), names: Mutex::default() }
    }
}

fn place_of(stream: RawStream) -> usize {
    // Handles are addresses: their low bits are alike, which the product's high bits are not.
    ((stream as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

impl LastLaunches {
    /// The number that identifies this kernel in records. Kernels are distinguished by where they are defined, if that
    /// is known.
    pub fn number_of(&self, kernel: &str, defined_at: Option<&str>) -> u32 {
        let kernel = defined_at.map_or(format!("`{kernel}`"), |place| format!("`{kernel}` (defined at {place})"));
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.iter().position(|n| *n == kernel) {
            return known as u32;
        }
        names.push(kernel);
        names.len() as u32 - 1
    }

    /// The kernel of a number, for an error's text.
    pub fn name(&self, kernel: u32) -> String {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.get(kernel as usize).cloned().unwrap_or_default()
    }

    /// Records a launch.
    #[inline]
    pub fn note(&self, stream: RawStream, kernel: u32) {
        self.places[place_of(stream)].0.store(kernel + 1, Ordering::Relaxed);
    }

    /// The kernels that were launched last, for an error's text: on a stream, or on any.
    pub fn suspects(&self, stream: Option<RawStream>) -> Vec<String> {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let places = match stream {
            Some(stream) => std::slice::from_ref(&self.places[place_of(stream)]),
            None => &self.places,
        };
        let mut found: Vec<u32> = places.iter().map(|p| p.0.load(Ordering::Relaxed)).filter(|n| *n > 0).collect();
        found.sort_unstable();
        found.dedup();
        found.iter().filter_map(|n| names.get(*n as usize - 1).cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_last_kernel_of_its_stream() {
        let last = LastLaunches::default();
        let (a, b) = (0x5500_1230 as RawStream, 0x5500_1900 as RawStream);
        assert_ne!(place_of(a), place_of(b));
        let (f, g) = (last.number_of("f", None), last.number_of("g", Some("a.py:3")));
        assert_eq!(last.number_of("f", None), f);
        last.note(a, f);
        last.note(b, g);
        assert_eq!(last.suspects(Some(a)), ["`f`"]);
        assert_eq!(last.suspects(None), ["`f`", "`g` (defined at a.py:3)"]);
        assert!(last.suspects(Some(0x10 as RawStream)).is_empty());
    }
}
