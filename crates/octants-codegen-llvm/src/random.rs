//! Random numbers: Philox4x32-10, a pure function of (seed, launch, task, iteration, draw).
//!
//! Each iteration has a state in stack memory, which functions that draw take by pointer: the linear index of the
//! iteration (i64), the number of 32-bit words drawn so far (i32), the number of the task (i32). Four draws in a row
//! share one block of the generator once the optimizer knows the count, because a function without side effects
//! computes the block.

use octants_artifact::DeviceContext;
use octants_ir::Scalar;

use crate::emit::{IntCmp, T, V};
use crate::lowering::Lowering;

const DRAWS: i64 = 8;
const TASK: i64 = 12;
const STATE_BYTES: u64 = 16;

const MULTIPLIERS: [i64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [i64; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

impl Lowering<'_, '_> {
    /// Makes the state in a task's frame.
    pub fn make_random_state(&mut self) {
        self.parallel.rng = Some(self.stack(self.e.array_type(self.e.i8, STATE_BYTES), 8));
    }

    /// Starts the sequence of an iteration.
    pub fn start_random_sequence(&self, linear: V) {
        let e = self.e;
        if let Some(state) = self.parallel.rng {
            e.store(state, linear, 8);
            e.store(e.byte_offset(state, DRAWS), e.i32c(0), 4);
            e.store(e.byte_offset(state, TASK), e.i32c(i64::from(self.u.task.get())), 4);
        }
    }

    /// Draws a scalar.
    pub fn random(&self, s: Scalar) -> V {
        let e = self.e;
        let state = self.parallel.rng.expect("compiler bug: a draw without a random state");
        let counter = e.byte_offset(state, DRAWS);
        let mut draws = e.load(e.i32, counter, 4);
        let wide = s.bits() == 64;
        if wide {
            draws = e.and(e.add(draws, e.i32c(1)), e.i32c(-2));
        }
        e.store(counter, e.add(draws, e.i32c(if wide { 2 } else { 1 })), 4);
        let linear = e.load(e.i64, state, 8);
        let task = e.load(e.i32, e.byte_offset(state, TASK), 4);
        self.random_at(s, linear, draws, task)
    }

    /// A scalar of the sequence of an iteration, from the word with the number `draws` on, which is even for a scalar
    /// of 64 bits.
    pub fn random_at(&self, s: Scalar, linear: V, draws: V, task: V) -> V {
        let e = self.e;
        let wide = s.bits() == 64;
        let block = e.lshr(draws, e.i32c(2));
        let low = e.trunc(linear, e.i32);
        let high = e.trunc(e.lshr(linear, e.i64c(32)), e.i32);
        let (key0, key1) = self.random_key();
        let words = e.call(self.philox(), &[low, high, block, task, key0, key1]);
        e.set_fast_call(words, true);
        let word = |i| e.extract_value(words, i);
        let bit = |k: i64| e.icmp(IntCmp::LLVMIntNE, e.and(draws, e.i32c(k)), e.i32c(0));
        let second_half = bit(2);
        if wide {
            let low = e.zext(e.select(second_half, word(2), word(0)), e.i64);
            let high = e.zext(e.select(second_half, word(3), word(1)), e.i64);
            let bits = e.or(low, e.shl(high, e.i64c(32)));
            if s != Scalar::F64 {
                return bits;
            }
            let mantissa = e.lshr(bits, e.i64c(11));
            return e.fmul(e.uitofp(mantissa, e.f64), e.real(e.f64, 2f64.powi(-53)));
        }
        let odd = bit(1);
        let first = e.select(odd, word(1), word(0));
        let second = e.select(odd, word(3), word(2));
        let bits = e.select(second_half, second, first);
        match s {
            Scalar::F32 => {
                let mantissa = e.lshr(bits, e.i32c(8));
                e.fmul(e.uitofp(mantissa, e.f32), e.real(e.f32, 2f64.powi(-24)))
            }
            Scalar::F16 => {
                let mantissa = e.lshr(bits, e.i32c(21));
                e.fptrunc(e.fmul(e.uitofp(mantissa, e.f32), e.real(e.f32, 2f64.powi(-11))), e.f16)
            }
            s if s.bits() == 32 => bits,
            s => e.trunc(bits, e.scalar(s)),
        }
    }

    /// The generator's key, mixed once per function from seed and launch.
    fn random_key(&self) -> (V, V) {
        if let Some(key) = self.code.random_key.get() {
            return key;
        }
        let e = self.e;
        let key = self.at_entry(|| {
            let metadata = &self.u.metadata;
            let invariant = |load| metadata.mark_invariant(load);
            let (seed, mut launch) = self.u.target.random_key(e, &invariant, self.code.context);
            if let Some(at) = self.u.target.of_loop_at(e, &invariant, self.code.context) {
                let rounds = e.call(self.rounds(e.type_of(at)), &[at]);
                e.set_fast_call(rounds, true);
                launch = e.add(launch, e.shl(rounds, e.i64c(DeviceContext::LAUNCH_BITS.into())));
            }
            // The finalizer of SplitMix64.
            let mut z = e.add(seed, e.mul(launch, e.i64c(0x9E37_79B9_7F4A_7C15_u64 as i64)));
            for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9_u64), (27, 0x94D0_49BB_1331_11EB)] {
                z = e.mul(e.xor(z, e.lshr(z, e.i64c(shift))), e.i64c(factor as i64));
            }
            z = e.xor(z, e.lshr(z, e.i64c(31)));
            (e.trunc(z, e.i32), e.trunc(e.lshr(z, e.i64c(32)), e.i32))
        });
        self.code.random_key.set(Some(key));
        key
    }

    /// The module's function that reads the number of rounds at an address of this type: none at null.
    fn rounds(&self, address: T) -> V {
        const NAME: &str = "octants.rounds";
        if let Some(f) = self.u.helpers.borrow().get(NAME) {
            return *f;
        }
        let e = self.e;
        let f = e.add_function(NAME, e.function_type(e.i64, &mut [address]));
        e.set_internal(f);
        e.set_fast_call(f, false);
        e.function_attribute(f, "inlinehint", 0);
        self.u.target.finish_function(e, f);
        self.u.helpers.borrow_mut().insert(NAME.to_owned(), f);
        let [entry, counted, not] = [c"entry", c"counted", c"not"].map(|name| e.add_block(f, name));
        let at = e.param(f, 0);
        let is_null = || e.icmp(IntCmp::LLVMIntEQ, e.ptrtoint(at, e.i64), e.i64c(0));
        e.in_block(entry, || e.cond_br(is_null(), not, counted));
        e.in_block(counted, || e.ret(e.load(e.i64, at, 8)));
        e.in_block(not, || e.ret(e.i64c(0)));
        f
    }

    /// The module's generator: four counter words and two key words to four random words.
    fn philox(&self) -> V {
        const NAME: &str = "octants.philox";
        if let Some(f) = self.u.helpers.borrow().get(NAME) {
            return *f;
        }
        let e = self.e;
        let ret = e.struct_type(&mut [e.i32; 4]);
        let f = e.add_function(NAME, e.function_type(ret, &mut [e.i32; 6]));
        e.set_internal(f);
        e.set_fast_call(f, false);
        e.function_attribute(f, "memory", 0);
        e.function_attribute(f, "willreturn", 0);
        e.function_attribute(f, "inlinehint", 0);
        self.u.target.finish_function(e, f);
        self.u.helpers.borrow_mut().insert(NAME.to_owned(), f);
        let entry = e.add_block(f, c"entry");
        e.in_block(entry, || {
            let mut c: [V; 4] = std::array::from_fn(|i| e.param(f, i));
            let mut k: [V; 2] = std::array::from_fn(|i| e.param(f, 4 + i));
            for round in 0..ROUNDS {
                if round > 0 {
                    k = std::array::from_fn(|i| e.add(k[i], e.i32c(WEYL[i])));
                }
                let product = |i: usize, v: V| {
                    let p = e.mul(e.zext(v, e.i64), e.i64c(MULTIPLIERS[i]));
                    (e.trunc(e.lshr(p, e.i64c(32)), e.i32), e.trunc(p, e.i32))
                };
                let (high0, low0) = product(0, c[0]);
                let (high1, low1) = product(1, c[2]);
                c = [e.xor(e.xor(high1, c[1]), k[0]), low1, e.xor(e.xor(high0, c[3]), k[1]), low0];
            }
            let mut all = e.undef(ret);
            for (i, word) in c.into_iter().enumerate() {
                all = e.insert_value(all, word, i);
            }
            e.ret(all);
        });
        f
    }
}
