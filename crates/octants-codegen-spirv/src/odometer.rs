//! A multi-index that many threads step through together: each starts at its own number and advances by the number of
//! threads, so that together they visit every index once.
//!
//! The start and the step are divided into digits once. From there digits are added with carry, so no extent can
//! overflow. Digits are unsigned, and have 32 bits if the axis allows it.

use crate::emit::{Emitter, Id};

/// The walk of one walker.
pub(crate) struct Odometer {
    /// Number of values of each digit.
    sizes: Vec<Id>,
    /// The digits to start from.
    pub starts: Vec<Id>,
    /// The increment of each digit per step.
    steps: Vec<Id>,
}

fn bits(e: &Emitter, v: Id) -> u32 {
    if e.type_of(v) == e.u64() { 64 } else { 32 }
}

impl Odometer {
    /// `sizes` are of 32 or 64 bits each, the fastest digit last. This walker is number `first` of
    /// `walkers`: both are 32 bits wide and not negative.
    pub fn new(e: &Emitter, mut sizes: Vec<Id>, first: Id, walkers: Id) -> Odometer {
        // If a digit has no values, there is nothing to visit; the slowest digit shows this.
        let mut slowest = sizes[0];
        for size in &sizes[1..] {
            let empty = e.ieq(*size, e.int(bits(e, *size), 0));
            slowest = e.select(empty, e.int(bits(e, slowest), 0), slowest);
        }
        sizes[0] = slowest;
        let starts = split(e, &sizes, first);
        let mut steps = split(e, &sizes, walkers);
        steps[0] = e.umin(steps[0], slowest);
        Odometer { sizes, starts, steps }
    }

    /// Whether there is an index for this walker at all.
    pub fn starts(&self, e: &Emitter) -> Id {
        e.ult(self.starts[0], self.sizes[0])
    }

    /// Whether these digits, after the walk, still denote an index.
    pub fn is_before_end(&self, e: &Emitter, digits: &[Id]) -> Id {
        e.ult(digits[0], self.sizes[0])
    }

    /// The digits that follow, and whether there are none.
    pub fn step(&self, e: &Emitter, digits: &[Id]) -> (Vec<Id>, Id) {
        let mut next = digits.to_vec();
        let mut carry: Option<Id> = None;
        for k in (0..digits.len()).rev() {
            let digit = match carry {
                Some(c) => e.add(digits[k], e.truth_to_int(c, bits(e, digits[k]))),
                None => digits[k],
            };
            // Compared with the remaining room: a sum might not fit the type.
            let room = e.sub(self.sizes[k], self.steps[k]);
            let over = e.uge(digit, room);
            let sum = e.add(digit, self.steps[k]);
            next[k] = if k == 0 { sum } else { e.select(over, e.sub(digit, room), sum) };
            carry = Some(over);
        }
        (next, carry.expect("compiler bug: an odometer without digits"))
    }
}

/// The digits of a number of 32 bits. The first digit gets the remainder, which may exceed its size.
fn split(e: &Emitter, sizes: &[Id], number: Id) -> Vec<Id> {
    let mut rest = number;
    let mut digits = vec![number; sizes.len()];
    for k in (0..sizes.len()).rev() {
        let width = bits(e, sizes[k]);
        let digit = if k == 0 {
            rest
        } else {
            // The number is less than any size that 32 bits do not hold.
            let size = match width {
                64 => e.trunc(e.umin(sizes[k], e.u64c(u64::from(u32::MAX))), 32),
                _ => sizes[k],
            };
            let size = e.select(e.ieq(size, e.u32c(0)), e.u32c(1), size);
            let digit = e.umod(rest, size);
            rest = e.udiv(rest, size);
            digit
        };
        digits[k] = e.zext(digit, width);
    }
    digits
}
