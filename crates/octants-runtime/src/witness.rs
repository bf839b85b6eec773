//! [`Witness`]: the elements that a launch certainly touches.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::race::Touch;

/// An element that a launch certainly touches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Touched {
    /// The same for elements of the same array or field, whichever kernel touches them.
    pub memory: u64,
    /// The user's name of the array or field.
    pub buffer: Arc<str>,
    /// The element.
    pub index: Vec<i64>,
    /// The part of it, by positions of components.
    pub path: Vec<i64>,
    /// The address of the element, if known.
    pub address: Option<u64>,
    /// The kind of access.
    pub touch: Touch,
    /// `path:line` of the access.
    pub at: Arc<str>,
}

/// Determines the elements that launches of a kernel certainly access.
pub trait Witness: fmt::Debug + Send + Sync {
    /// Some elements that a launch with these arguments touches, and more of those whose indices are near some numbers.
    fn touches(&self, args: &[u64], near: &[i64]) -> Vec<Touched>;

    /// All elements that a launch with these arguments certainly touches, up to a limit. With `reads_memory`, values in
    /// memory are known: the host can address it, and the work before the launch is done.
    fn all_touches(&self, args: &[u64], reads_memory: bool) -> Vec<Touched>;

    /// Whether values in memory may decide which elements are accessed.
    fn depends_on_memory(&self) -> bool;

    /// Whether the value of an argument slot determines which elements are accessed.
    fn is_decided_by(&self, slot: usize) -> bool;
}

impl Touched {
    /// Both touch the same part of an element, and they are neither both reads nor both updates.
    fn races_with(&self, other: &Touched) -> bool {
        let harmless = matches!((self.touch, other.touch), (Touch::Read, Touch::Read) | (Touch::Update, Touch::Update));
        !harmless && self.path.iter().zip(&other.path).all(|(a, b)| a == b)
    }
}

/// The identity of an element in two launches: its address, or the array and the index in it. Only the first part of an
/// element has an address here, because an overlapping array may have elements without parts.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    At(u64),
    In(u64, &'a [i64]),
}

impl Touched {
    fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let begins = self.path.iter().all(|part| *part == 0);
        self.address.filter(|_| begins).map(Key::At).into_iter().chain([Key::In(self.memory, &self.index)])
    }
}

/// An element that two launches touch; two writes rather than a write and a read.
pub(crate) fn meet<'a>(a: &'a [Touched], b: &'a [Touched]) -> Option<(&'a Touched, &'a Touched)> {
    let mut known: HashMap<Key<'_>, Vec<&Touched>> = HashMap::new();
    for touched in a {
        touched.keys().for_each(|key| known.entry(key).or_default().push(touched));
    }
    let mut found = None;
    for touched in b {
        let others = touched.keys().filter_map(|key| known.get(&key)).flatten();
        for other in others.filter(|o| o.races_with(touched)) {
            if (other.touch, touched.touch) == (Touch::Write, Touch::Write) {
                return Some((other, touched));
            }
            found.get_or_insert((*other, touched));
        }
    }
    found
}

/// The smallest and the largest indices that are touched.
pub(crate) fn ends(of: &[Touched]) -> Vec<i64> {
    let mut ends: Vec<i64> = Vec::new();
    let axes = of.iter().map(|t| t.index.len()).max().unwrap_or(0);
    for axis in 0..axes {
        let indices = of.iter().filter_map(|t| t.index.get(axis).copied());
        ends.extend(indices.clone().min());
        ends.extend(indices.max());
    }
    ends
}
