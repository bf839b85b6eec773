//! Random numbers: Philox4x32-10, a pure function of (seed, launch, task, iteration, draw).
//!
//! Each iteration keeps its linear index and the count of 32-bit words drawn so far in variables, which functions that
//! draw take by reference. The sequence is that of every other back end.

use octants_ir::Scalar;

use crate::emit::{Id, Op};
use crate::lowering::{Helper, Lowering, RandomState, Unit};
use rspirv::dr::Operand;
use rspirv::spirv::StorageClass;

const MULTIPLIERS: [u64; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Words of a `DeviceContext`.
const SEED: u32 = 3;
const LAUNCH: u32 = 4;

impl Lowering<'_, '_> {
    /// Creates the variables of a task.
    pub fn make_random_state(&mut self) {
        let variable = |s: Scalar| self.e.variable(self.e.array_type(self.e.scalar(s), 1));
        self.rng = Some(RandomState { linear: variable(Scalar::U64), draws: variable(Scalar::U32) });
    }

    fn first(&self, variable: Id, s: Scalar) -> Id {
        let pointer = self.e.pointer_type(StorageClass::Function, self.e.scalar(s));
        self.e.of(Op::AccessChain, pointer, &[variable, self.e.u32c(0)])
    }

    /// Starts the sequence of an iteration.
    pub fn start_random_sequence(&self, linear: Id) {
        if let Some(state) = self.rng {
            self.e.store(self.first(state.linear, Scalar::U64), linear);
            self.e.store(self.first(state.draws, Scalar::U32), self.e.u32c(0));
        }
    }

    /// Draws a scalar.
    pub fn random(&self, s: Scalar) -> Id {
        let e = self.e;
        let state = self.rng.expect("compiler bug: a draw without a random state");
        let counter = self.first(state.draws, Scalar::U32);
        let mut draws = e.load(e.u32(), counter);
        let wide = s.bits() == 64;
        if wide {
            draws = e.and(e.add(draws, e.u32c(1)), e.u32c(!1));
        }
        e.store(counter, e.add(draws, e.u32c(if wide { 2 } else { 1 })));
        let linear = e.load(e.u64(), self.first(state.linear, Scalar::U64));
        self.random_at(s, linear, draws)
    }

    /// A scalar of the sequence of an iteration, from the word with the number `draws` on, which is even for a scalar
    /// of 64 bits.
    pub fn random_at(&self, s: Scalar, linear: Id, draws: Id) -> Id {
        let e = self.e;
        let (low, high) = self.halves(linear);
        let block = e.lshr(draws, e.u32c(2));
        let (key0, key1) = self.random_key();
        let philox = self.u.helper(Helper::Philox);
        let four = e.vector_type(e.u32(), 4);
        let task = e.u32c(self.u.task);
        let words = e.of(Op::FunctionCall, four, &[philox, low, high, block, task, key0, key1]);
        let word = |i: u32| e.extract_value(words, e.u32(), i);
        let bit = |k: u32| e.ine(e.and(draws, e.u32c(k)), e.u32c(0));
        let second_half = bit(2);
        if s.bits() == 64 {
            let low = e.zext(e.select(second_half, word(2), word(0)), 64);
            let high = e.zext(e.select(second_half, word(3), word(1)), 64);
            let bits = e.or(low, e.shl(high, e.u64c(32)));
            if s != Scalar::F64 {
                return bits;
            }
            let mantissa = e.of(Op::ConvertUToF, e.scalar(s), &[e.lshr(bits, e.u64c(11))]);
            return e.fmul(mantissa, e.real(64, 2f64.powi(-53)));
        }
        let odd = bit(1);
        let first = e.select(odd, word(1), word(0));
        let second = e.select(odd, word(3), word(2));
        let bits = e.select(second_half, second, first);
        let fraction = |digits: i32| {
            let mantissa = e.lshr(bits, e.u32c(32 - digits as u32));
            e.fmul(e.of(Op::ConvertUToF, e.float_type(32), &[mantissa]), e.real(32, 2f64.powi(-digits)))
        };
        match s {
            Scalar::F32 => fraction(24),
            Scalar::F16 => e.float_convert(fraction(11), 16),
            Scalar::U1 => e.ine(e.and(bits, e.u32c(1)), e.u32c(0)),
            s => e.trunc(bits, s.bits()),
        }
    }

    /// The generator's key, mixed once per function from seed and launch.
    fn random_key(&self) -> (Id, Id) {
        if let Some(key) = self.random_key.get() {
            return key;
        }
        let e = self.e;
        let (seed, launch) = (self.context_word(SEED), self.context_word(LAUNCH));
        let key = e.at_entry(|| {
            // The finalizer of SplitMix64.
            let mut z = e.add(seed, e.mul(launch, e.u64c(0x9E37_79B9_7F4A_7C15)));
            for (shift, factor) in [(30, 0xBF58_476D_1CE4_E5B9_u64), (27, 0x94D0_49BB_1331_11EB)] {
                z = e.mul(e.xor(z, e.lshr(z, e.u64c(shift))), e.u64c(factor));
            }
            z = e.xor(z, e.lshr(z, e.u64c(31)));
            self.halves(z)
        });
        self.random_key.set(Some(key));
        key
    }
}

impl Unit<'_> {
    /// The generator: four counter words and two key words to four random words.
    pub fn lower_philox(&self, id: Id) {
        let e = &self.e;
        let four = e.vector_type(e.u32(), 4);
        let params = e.begin_function(id, four, &[e.u32(); 6]);
        let mut c: [Id; 4] = std::array::from_fn(|i| params[i]);
        let mut k: [Id; 2] = std::array::from_fn(|i| params[4 + i]);
        for round in 0..ROUNDS {
            if round > 0 {
                k = std::array::from_fn(|i| e.add(k[i], e.u32c(WEYL[i])));
            }
            let product = |i: usize, v: Id| {
                let p = e.mul(e.zext(v, 64), e.u64c(MULTIPLIERS[i]));
                (e.trunc(e.lshr(p, e.u64c(32)), 32), e.trunc(p, 32))
            };
            let (high0, low0) = product(0, c[0]);
            let (high1, low1) = product(1, c[2]);
            c = [e.xor(e.xor(high1, c[1]), k[0]), low1, e.xor(e.xor(high0, c[3]), k[1]), low0];
        }
        let all = e.op(Op::CompositeConstruct, four, c.iter().map(|w| Operand::IdRef(*w)).collect());
        e.ret_value(all);
        e.end_function();
    }
}
