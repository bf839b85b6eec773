//! [`Pattern`]: a value that a device can fill memory with in one call.

/// A few bytes that repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // The variants say it.
pub enum Pattern {
    Byte(u8),
    Half(u16),
    Word(u32),
}

impl Pattern {
    /// The shortest pattern that an element repeats; `None` if it has three bytes, or more than four.
    pub fn of(element: &[u8]) -> Option<Pattern> {
        let repeats = |size: usize| {
            let (whole, rest) = (element.chunks_exact(size), element.len() % size);
            rest == 0 && whole.clone().all(|part| *part == element[..size])
        };
        match *element {
            [] => None,
            [a, ..] if repeats(1) => Some(Pattern::Byte(a)),
            [a, b, ..] if repeats(2) => Some(Pattern::Half(u16::from_ne_bytes([a, b]))),
            [a, b, c, d, ..] if repeats(4) => Some(Pattern::Word(u32::from_ne_bytes([a, b, c, d]))),
            _ => None,
        }
    }

    /// Its length.
    pub fn bytes(self) -> u64 {
        match self {
            Pattern::Byte(_) => 1,
            Pattern::Half(_) => 2,
            Pattern::Word(_) => 4,
        }
    }

    /// This many repetitions.
    pub fn repeat(self, count: u64) -> Vec<u8> {
        match self {
            Pattern::Byte(b) => b.to_ne_bytes().repeat(count as usize),
            Pattern::Half(h) => h.to_ne_bytes().repeat(count as usize),
            Pattern::Word(w) => w.to_ne_bytes().repeat(count as usize),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_repeated_pattern_is_found() {
        let of = |element: &[u8]| Pattern::of(element).map(|p| (p.bytes(), p.repeat(element.len() as u64 / p.bytes())));
        for (element, size) in
            [(&[7][..], 1), (&[0; 24], 1), (&[1, 2], 2), (&[1, 2, 1, 2, 1, 2], 2), (&[1, 2, 3, 4], 4)]
        {
            assert_eq!(of(element), Some((size, element.to_vec())), "{element:?}");
        }
        for element in [&[][..], &[1, 2, 3], &[1, 2, 1], &[1, 2, 3, 1, 2, 3], &[1, 2, 3, 4, 5, 6, 7, 8]] {
            assert_eq!(of(element), None, "{element:?}");
        }
    }
}
