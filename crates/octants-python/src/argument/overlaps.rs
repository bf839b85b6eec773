//! Finds arrays of a call that share memory.

use smallvec::SmallVec;

use super::Gathered;
use crate::array_view::Unwritable;

/// Above this number of arrays, overlaps are found by sorting.
const MANY_SPANS: usize = 16;

/// Bytes that an array argument covers.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Which value or array.
    pub leaf: u32,
    /// First byte.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Why it must not be written, if so.
    pub unwritable: Option<Unwritable>,
    /// In the host's memory.
    pub host: bool,
    /// There are bytes between the elements.
    pub gaps: bool,
    /// Words of the array: equal ones mean the same array.
    pub(super) words: (u32, u32),
}

impl Span {
    /// The same, counted from these leaves and words on.
    pub fn moved_back(&self, leaves: usize, words: usize) -> Span {
        let (leaves, words) = (leaves as u32, words as u32);
        Span { leaf: self.leaf - leaves, words: (self.words.0 - words, self.words.1 - words), ..*self }
    }

    /// The same after these leaves and words.
    pub fn moved_on(&self, leaves: u32, words: u32) -> Span {
        Span { leaf: self.leaf + leaves, words: (self.words.0 + words, self.words.1 + words), ..*self }
    }
}

/// Two array arguments that share bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// One.
    pub first: u32,
    /// The other, which comes later.
    pub second: u32,
    /// They are the same array.
    pub same: bool,
}

impl Gathered<'_> {
    /// Some two array arguments share bytes.
    pub fn overlapping(&self) -> bool {
        if self.spans.len() > MANY_SPANS {
            // In the order of memory only neighbors need to be compared.
            let mut sorted: SmallVec<[(u64, u64); 128]> =
                self.spans.iter().filter(|s| s.low < s.high).map(|s| (s.low, s.high)).collect();
            sorted.sort_unstable();
            return sorted.windows(2).any(|pair| pair[1].0 < pair[0].1);
        }
        // Arrays in the order of their memory are compared only to the bounds of all earlier ones.
        let (mut low, mut high) = (u64::MAX, 0);
        self.spans.iter().enumerate().any(|(i, a)| {
            let near = a.low < high && low < a.high;
            (low, high) = (low.min(a.low), high.max(a.high));
            near && self.spans[..i].iter().any(|b| a.low < b.high && b.low < a.high)
        })
    }

    /// An array's address, extents and, if it is not contiguous, strides.
    pub fn words_of(&self, span: &Span) -> &[u64] {
        &self.words[span.words.0 as usize..span.words.1 as usize]
    }

    /// The words of all arrays.
    pub fn array_words(&self) -> impl Iterator<Item = u64> + '_ {
        self.spans.iter().flat_map(|span| self.words_of(span).iter().copied())
    }

    /// The array arguments that share bytes, in the order of the later one and then of the earlier one.
    pub fn overlaps(&self) -> Vec<Overlap> {
        // In the order of memory an array meets those that follow it until one begins after its end.
        let mut sorted: Vec<&Span> = self.spans.iter().filter(|s| s.low < s.high).collect();
        sorted.sort_unstable_by_key(|s| s.low);
        let mut out = Vec::new();
        for (i, a) in sorted.iter().enumerate() {
            for b in sorted[i + 1..].iter().take_while(|b| b.low < a.high) {
                let (first, second) = if a.leaf < b.leaf { (a, b) } else { (b, a) };
                let same = self.words_of(first) == self.words_of(second);
                out.push(Overlap { first: first.leaf, second: second.leaf, same });
            }
        }
        out.sort_unstable_by_key(|o| (o.second, o.first));
        out
    }
}
