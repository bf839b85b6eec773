//! A multi-index that many threads step through together: each starts at its own number and advances by the number of
//! threads, so that together they visit every index once.
//!
//! The start and the step are divided into digits once. From there digits are added with carry, so no extent can
//! overflow. Digits are unsigned, and have 32 bits if the axis allows it.

use crate::emit::{Bb, Emitter, IntCmp, V};

/// The walk of one walker.
pub(crate) struct Odometer {
    /// Number of values of each digit.
    sizes: Vec<V>,
    /// The digits to start from.
    starts: Vec<V>,
    /// The increment of each digit per step.
    steps: Vec<V>,
}

impl Odometer {
    /// `sizes` are i32 or i64 each, the fastest digit last. The walker has the number `first` among `walkers` walkers:
    /// both i32, not negative.
    pub fn new(e: &Emitter, mut sizes: Vec<V>, first: V, walkers: V) -> Odometer {
        // If a digit has no values, there is nothing to visit; the slowest digit shows this.
        let mut slowest = sizes[0];
        for size in &sizes[1..] {
            let empty = e.icmp(IntCmp::LLVMIntEQ, *size, e.zero(e.type_of(*size)));
            slowest = e.select(empty, e.zero(e.type_of(slowest)), slowest);
        }
        sizes[0] = slowest;
        let starts = split(e, &sizes, first);
        let mut steps = split(e, &sizes, walkers);
        steps[0] = e.intrinsic("llvm.umin", e.type_of(slowest), &[steps[0], slowest]);
        Odometer { sizes, starts, steps }
    }

    /// Whether there is an index for this walker at all.
    pub fn starts(&self, e: &Emitter) -> V {
        e.icmp(IntCmp::LLVMIntULT, self.starts[0], self.sizes[0])
    }

    /// The digits at the head of a loop that is entered from `from`.
    pub fn open(&self, e: &Emitter, from: Bb) -> Vec<V> {
        let digit = |start: &V| {
            let phi = e.phi(e.type_of(*start));
            e.add_incoming(phi, *start, from);
            phi
        };
        self.starts.iter().map(digit).collect()
    }

    /// The digits that follow, and whether there are none.
    pub fn step(&self, e: &Emitter, digits: &[V]) -> (Vec<V>, V) {
        let mut next = digits.to_vec();
        let mut carry: Option<V> = None;
        for k in (0..digits.len()).rev() {
            let ty = e.type_of(digits[k]);
            let digit = match carry {
                Some(c) => e.add(digits[k], e.zext(c, ty)),
                None => digits[k],
            };
            // Compared with the remaining room: a sum might not fit the type.
            let room = e.sub(self.sizes[k], self.steps[k]);
            let over = e.icmp(IntCmp::LLVMIntUGE, digit, room);
            let sum = e.add(digit, self.steps[k]);
            next[k] = if k == 0 { sum } else { e.select(over, e.sub(digit, room), sum) };
            carry = Some(over);
        }
        (next, carry.expect("compiler bug: an odometer without digits"))
    }
}

/// The digits of a number (i32, not negative). The first digit gets the remainder, which may exceed its size.
fn split(e: &Emitter, sizes: &[V], number: V) -> Vec<V> {
    let mut rest = number;
    let mut digits = vec![number; sizes.len()];
    for k in (0..sizes.len()).rev() {
        let ty = e.type_of(sizes[k]);
        let digit = if k == 0 {
            rest
        } else {
            // The number is less than any size that 32 bits do not hold.
            let size = if ty == e.i64 {
                let most = e.i64c(i64::from(u32::MAX));
                e.trunc(e.intrinsic("llvm.umin", e.i64, &[sizes[k], most]), e.i32)
            } else {
                sizes[k]
            };
            let size = if e.as_int(size).is_some_and(|n| n > 0) {
                size
            } else {
                e.intrinsic("llvm.umax", e.i32, &[size, e.i32c(1)])
            };
            let digit = e.urem(rest, size);
            rest = e.udiv(rest, size);
            digit
        };
        digits[k] = if ty == e.i64 { e.zext(digit, e.i64) } else { digit };
    }
    digits
}
