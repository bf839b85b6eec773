//! Math functions: LLVM's intrinsics, which become libm calls, or vector calls inside vectorized loops.
//!
//! Each call lists the vector variants that the target offers; the vectorizer picks one of the width it needs.

use octants_ir::Scalar;

use crate::emit::{FloatCmp, IntCmp, V};
use crate::lowering::Lowering;

/// The least argument of an exponential for which the result is a normal number; smaller results are zero under fast
/// math.
fn least_normal_exponent(name: &str, s: Scalar) -> Option<f64> {
    match (name, s) {
        ("exp", Scalar::F32) => Some(-87.336_54),
        ("exp", Scalar::F64) => Some(-708.396),
        ("exp2", Scalar::F32) => Some(-126.0),
        ("exp2", Scalar::F64) => Some(-1022.0),
        _ => None,
    }
}

impl Lowering<'_, '_> {
    /// Calls the function with C's name `name`.
    pub fn math_call(&self, name: &'static str, s: Scalar, args: &[V]) -> V {
        let e = self.e;
        let intrinsic = match name {
            "sin" => "llvm.sin",
            "cos" => "llvm.cos",
            "tan" => "llvm.tan",
            "asin" => "llvm.asin",
            "acos" => "llvm.acos",
            "atan" => "llvm.atan",
            "sinh" => "llvm.sinh",
            "cosh" => "llvm.cosh",
            "tanh" => "llvm.tanh",
            "exp" => "llvm.exp",
            "exp2" => "llvm.exp2",
            "log" => "llvm.log",
            "log2" => "llvm.log2",
            "pow" => "llvm.pow",
            "atan2" => "llvm.atan2",
            _ => panic!("compiler bug: no function {name}"),
        };
        if let Some(value) = self.u.target.math(e, name, s, args) {
            return value;
        }
        let ty = e.scalar(s);
        let forms = self.u.target.vector_forms(name, s, args.len());
        let least = least_normal_exponent(name, s).filter(|_| !forms.is_empty()).map(|least| e.real(ty, least));
        // If the result underflows, the vector variants would call the scalar one per lane. The select below uses
        // another predicate than the clamp, because LLVM would fold two equal conditions. A NaN stays one.
        let clamped = least.map(|least| [e.select(e.fcmp(FloatCmp::LLVMRealOLT, args[0], least), least, args[0])]);
        let call = e.intrinsic(intrinsic, ty, clamped.as_ref().map_or(args, |clamped| clamped));
        let result = match (least, clamped) {
            (Some(least), Some([x])) => e.select(e.fcmp(FloatCmp::LLVMRealOLE, x, least), e.zero(ty), call),
            _ => call,
        };
        if forms.is_empty() || e.as_real(call).is_some() {
            return result;
        }
        let mut mappings = Vec::new();
        for form in forms {
            let operands = "v".repeat(args.len());
            let overload = if s == Scalar::F32 { "f32" } else { "f64" };
            mappings.push(format!("_ZGV_LLVM_N{}{operands}_{intrinsic}.{overload}({})", form.lanes, form.symbol));
            self.declare_vector_form(&form.symbol, form.lanes, s, args.len());
        }
        e.call_text_attribute(call, "vector-function-abi-variant", &mappings.join(","));
        result
    }

    fn declare_vector_form(&self, symbol: &str, lanes: u32, s: Scalar, operands: usize) {
        if self.u.helpers.borrow().contains_key(symbol) {
            return;
        }
        let e = self.e;
        let vector = e.vector_type(e.scalar(s), lanes);
        let f = e.add_function(symbol, e.function_type(vector, &mut vec![vector; operands]));
        self.u.vector_functions.borrow_mut().push(f);
        self.u.helpers.borrow_mut().insert(symbol.to_owned(), f);
    }

    /// `a ** b` on floats; small constant exponents are products.
    pub fn float_pow(&self, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        let ty = e.scalar(s);
        match e.as_real(b) {
            Some(0.0) => e.real(ty, 1.0),
            Some(0.5) if self.u.options.fast_math => e.intrinsic("llvm.sqrt", ty, &[a]),
            Some(x) if x.fract() == 0.0 && (x.abs() <= 4.0 || (self.u.options.fast_math && x.abs() <= 32.0)) => {
                let power = self.product_power(a, x.abs() as u32, &|x, y| e.fmul(x, y));
                if x < 0.0 { e.fdiv(e.real(ty, 1.0), power) } else { power }
            }
            _ => self.math_call("pow", s, &[a, b]),
        }
    }

    /// `a` to a positive constant, by squaring.
    fn product_power(&self, a: V, exponent: u32, mul: &dyn Fn(V, V) -> V) -> V {
        let mut result = None;
        let (mut square, mut rest) = (a, exponent);
        loop {
            if rest & 1 == 1 {
                result = Some(result.map_or(square, |r| mul(r, square)));
            }
            rest >>= 1;
            match result {
                Some(r) if rest == 0 => return r,
                _ => square = mul(square, square),
            }
        }
    }

    /// `a ** b` on integers.
    pub fn int_pow(&self, s: Scalar, a: V, b: V) -> V {
        let e = self.e;
        let ty = e.scalar(s);
        if s == Scalar::U1 {
            return e.or(a, e.not(b));
        }
        match e.as_int(b) {
            Some(0) => return e.int(ty, 1),
            Some(n @ 1..=64) => return self.product_power(a, n as u32, &|x, y| e.mul(x, y)),
            _ => {}
        }
        let helper = self.int_pow_helper(s);
        let call = e.call(helper, &[a, b]);
        e.set_fast_call(call, true);
        call
    }

    /// A function of the module that multiplies by squaring.
    fn int_pow_helper(&self, s: Scalar) -> V {
        let name = format!("octants.pow.{s}");
        if let Some(f) = self.u.helpers.borrow().get(&name) {
            return *f;
        }
        let e = self.e;
        let ty = e.scalar(s);
        let f = e.add_function(&name, e.function_type(ty, &mut [ty, ty]));
        e.set_internal(f);
        e.set_fast_call(f, false);
        e.function_attribute(f, "memory", 0);
        e.function_attribute(f, "willreturn", 0);
        self.u.target.finish_function(e, f);
        self.u.helpers.borrow_mut().insert(name, f);
        let (base, exponent) = (e.param(f, 0), e.param(f, 1));
        let (zero, one) = (e.zero(ty), e.int(ty, 1));
        let here = e.block();
        let entry = e.add_block(f, c"entry");
        let head = e.add_block(f, c"head");
        let inside = e.add_block(f, c"body");
        let exit = e.add_block(f, c"exit");
        e.position(entry);
        if s.is_signed() {
            // Negative exponents: 1 for 1, +-1 for -1, 0 otherwise.
            let negative = e.add_block(f, c"negative");
            e.cond_br(e.icmp(IntCmp::LLVMIntSLT, exponent, zero), negative, head);
            e.position(negative);
            let minus_one = e.int(ty, -1);
            let odd = e.icmp(IntCmp::LLVMIntNE, e.and(exponent, one), zero);
            let sign = e.select(odd, minus_one, one);
            let unit = e.select(e.icmp(IntCmp::LLVMIntEQ, base, minus_one), sign, zero);
            e.ret(e.select(e.icmp(IntCmp::LLVMIntEQ, base, one), one, unit));
        } else {
            e.br(head);
        }
        e.position(head);
        let (result, square, rest) = (e.phi(ty), e.phi(ty), e.phi(ty));
        e.add_incoming(result, one, entry);
        e.add_incoming(square, base, entry);
        e.add_incoming(rest, exponent, entry);
        e.cond_br(e.icmp(IntCmp::LLVMIntEQ, rest, zero), exit, inside);
        e.position(inside);
        let odd = e.icmp(IntCmp::LLVMIntNE, e.and(rest, one), zero);
        e.add_incoming(result, e.select(odd, e.mul(result, square), result), inside);
        e.add_incoming(square, e.mul(square, square), inside);
        e.add_incoming(rest, e.lshr(rest, one), inside);
        e.br(head);
        e.position(exit);
        e.ret(result);
        e.position(here);
        f
    }
}
