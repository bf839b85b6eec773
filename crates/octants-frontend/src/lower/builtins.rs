//! The table of built-in functions: for each name the number of arguments and the lowering.
//!
//! Math functions are not here: single operations are in the IR's operation table, the others in `arith`.

use std::rc::Rc;

use octants_diag::{Code, Diagnostic, Result};
use octants_ir::{AtomicOp, Op, Scalar, SubgroupOp, ThreadScope, Type};

use super::Lowerer;
use crate::arith;
use crate::ast::{Comparison, Operator, UnaryOperator};
use crate::value::Value;
use crate::world::{Entity, Obj};

/// A call of a built-in function.
pub(super) struct Call {
    /// The function, to be called at compile time.
    pub obj: Obj,
    /// Its name, for errors and for functions that share code.
    pub name: String,
    pub args: Vec<Value>,
    pub kwargs: Vec<(String, Value)>,
}

impl Call {
    /// The argument of a keyword.
    pub(super) fn keyword(&self, name: &str) -> Option<Value> {
        self.kwargs.iter().find(|(k, _)| k == name).map(|(_, v)| v.clone())
    }
}

/// How many positional arguments a function takes, and the error about any other number of them.
enum Arity {
    /// The function looks by itself.
    Any,
    Exactly(usize, &'static str),
    AtLeast(usize, &'static str),
    AtMost(usize, &'static str),
}

/// A built-in function.
struct Builtin {
    name: &'static str,
    arity: Arity,
    lower: fn(&mut Lowerer<'_>, Call) -> Result<Value>,
}

use Arity::{Any, AtLeast, AtMost, Exactly};

const fn row(name: &'static str, arity: Arity, lower: fn(&mut Lowerer<'_>, Call) -> Result<Value>) -> Builtin {
    Builtin { name, arity, lower }
}

/// Functions without arguments.
const NONE: Arity = Exactly(0, "this function takes no arguments");

/// A hint that changes nothing on any back end.
fn ignore_hint(_: &mut Lowerer<'_>, _: Call) -> Result<Value> {
    Ok(Value::None)
}

/// By name, in the order of `str`.
static BUILTINS: &[Builtin] = &[
    row("BufferView", Any, |l, c| l.lower_buffer_view(c)),
    row("Matrix", Any, |l, c| l.lower_matrix(&c.args, &c.kwargs)),
    row("Struct", Any, |l, c| l.lower_struct(c)),
    row("Vector", Any, |l, c| l.lower_matrix(&c.args, &c.kwargs)),
    row("all", Exactly(1, "`all` takes one argument"), |l, c| l.lower_fold(c)),
    row("any", Exactly(1, "`any` takes one argument"), |l, c| l.lower_fold(c)),
    row("assume_in_range", AtLeast(1, "`assume_in_range` takes a value"), |l, c| l.lower_promise(c)),
    row("assume_local", Exactly(2, "`assume_local` takes an array and a row index"), |l, c| l.lower_assume_local(c)),
    row(
        "atomic_cas",
        Exactly(3, "`atomic_cas` takes an element or a variable, the expected value and the new value"),
        |l, c| l.lower_compare_and_swap(c),
    ),
    row("bit_cast", Exactly(2, "`bit_cast` takes a value and a type"), |l, c| l.lower_bit_cast(c)),
    row("block_dim_adaptive", Any, ignore_hint),
    row("block_local", Any, |l, c| l.lower_cached(c)),
    row("bool", Exactly(1, "`bool()` takes one argument"), |l, c| l.lower_conversion(Scalar::U1, c)),
    row("cache_read_only", Any, |l, c| l.lower_cached(c)),
    row("cast", Exactly(2, "`cast` takes a value and a type"), |l, c| l.lower_cast(c)),
    row("cell_is_active", Exactly(2, "`cell_is_active` takes cells and indices"), |l, c| l.lower_cell_is_active(c)),
    row("cell_number", Exactly(2, "`cell_number` takes cells and indices"), |l, c| l.lower_cell_number(c)),
    row("clock_counter", NONE, |l, _| Ok(Value::Rt(l.b.push(Op::Clock, Scalar::I64.into())))),
    row("enumerate", AtLeast(1, "`enumerate` takes an iterable"), |l, c| l.lower_enumerate(c)),
    row("flat_values", Exactly(1, "`flat_values` takes one argument"), |l, c| l.lower_flat_values(c)),
    row("float", Exactly(1, "`float()` takes one argument"), |l, c| l.lower_conversion(l.options.default_fp, c)),
    row("get_addr", Exactly(2, "`get_addr` takes a field or an array, and the indices of an element"), |l, c| {
        l.lower_address(c)
    }),
    row("getattr", Any, |l, c| l.lower_getattr(c)),
    row("grouped", Any, |l, c| l.lower_grouped(c)),
    row("hasattr", Any, |l, c| l.lower_hasattr(c)),
    row("int", Exactly(1, "`int()` takes one argument"), |l, c| l.lower_conversion(l.options.default_ip, c)),
    row("isinstance", Exactly(2, "`isinstance` takes a value and a type"), |l, c| l.lower_isinstance(c)),
    row("len", Exactly(1, "`len` takes one argument"), |l, c| l.lower_len(c)),
    row("list", AtMost(1, "`list` takes one argument"), |l, c| l.lower_sequence(c, Value::list)),
    row("loop_config", Any, |l, c| l.lower_loop_config(c)),
    row("loop_unique", AtLeast(1, "`loop_unique` takes a value"), |l, c| l.lower_promise(c)),
    row("max", Any, |l, c| l.lower_extremum(c)),
    row("mesh_local", Any, |l, c| l.lower_mesh_local(&c.args)),
    row("mesh_patch_idx", NONE, |l, _| l.lower_patch_index()),
    row("min", Any, |l, c| l.lower_extremum(c)),
    row("ndrange", Any, |l, c| l.lower_ndrange(c)),
    row("no_activate", Any, ignore_hint),
    row("one", Exactly(1, "`one` takes one argument"), |l, c| l.constant_like(&c.args[0], 1)),
    row("outer", Exactly(2, "`outer` takes two vectors"), |l, c| l.lower_outer(c)),
    row("print", Any, |l, c| l.lower_print(&c.args, &c.kwargs).map(|()| Value::None)),
    row("random", Any, |l, c| l.lower_random(c)),
    row("range", Any, |l, c| l.lower_range(c)),
    row("reversed", Exactly(1, "`reversed` takes one argument"), |l, c| l.lower_reversed(c)),
    row("simt.SharedArray", AtMost(2, "`SharedArray` takes a shape and a type"), |l, c| l.lower_shared_array(c)),
    row("simt.ballot", Exactly(1, "`ballot` takes a predicate"), |l, c| l.lower_ballot(c)),
    row("simt.block_count", Exactly(1, "`sync_count_nonzero` takes a predicate"), |l, c| l.lower_block_count(c)),
    row("simt.block_fence", NONE, |l, _| l.lower_fence(ThreadScope::Block)),
    row("simt.block_index", NONE, |l, c| l.lower_grid_value(c)),
    row("simt.block_size", NONE, |l, c| l.lower_grid_value(c)),
    row("simt.block_sync", NONE, |l, c| l.lower_barrier(c, ThreadScope::Block)),
    row("simt.blocks", NONE, |l, c| l.lower_grid_value(c)),
    row("simt.fragment_index", Exactly(4, "`fragment_index` takes a kind, a role, a component and an axis"), |l, c| {
        l.lower_fragment_index(c)
    }),
    row("simt.grid_fence", NONE, |l, _| l.lower_fence(ThreadScope::Device)),
    row("simt.group_size", NONE, |l, _| l.lower_group_size()),
    row("simt.lane", NONE, |l, c| l.lower_grid_value(c)),
    row("simt.log2_group_size", NONE, |l, _| l.lower_log2_group_size()),
    row("simt.product", Exactly(4, "`product` takes a kind and three fragments"), |l, c| l.lower_product(c)),
    row("simt.require_block_size", Exactly(1, "`require_block_size` takes a size"), |l, c| {
        l.lower_required_block_size(c)
    }),
    row("simt.shuffle", Exactly(2, "`shuffle` takes a value and an index"), |l, c| {
        l.lower_shuffle(c, SubgroupOp::Shuffle)
    }),
    row("simt.shuffle_down", Exactly(2, "`shuffle_down` takes a value and an offset"), |l, c| {
        l.lower_shuffle(c, SubgroupOp::ShuffleDown)
    }),
    row("simt.shuffle_up", Exactly(2, "`shuffle_up` takes a value and an offset"), |l, c| {
        l.lower_shuffle(c, SubgroupOp::ShuffleUp)
    }),
    row("simt.shuffle_xor", Exactly(2, "`shuffle_xor` takes a value and a mask"), |l, c| {
        l.lower_shuffle(c, SubgroupOp::ShuffleXor)
    }),
    row("simt.subgroup_sync", NONE, |l, c| l.lower_barrier(c, ThreadScope::Subgroup)),
    row("simt.thread_index", NONE, |l, c| l.lower_grid_value(c)),
    row("static", Any, |l, c| l.lower_static(c)),
    row("static_assert", AtLeast(1, "static_assert takes a condition"), |l, c| l.lower_static_assert(c)),
    row("static_print", Any, |l, c| l.lower_static_print(c)),
    row("stop_grad", AtLeast(1, "`stop_grad` takes a value or a field"), |l, c| l.stop_gradient(&c.args[0])),
    row("stream_parallel", Any, |l, _| {
        l.err(Code::Syntax, "write `with qd.stream_parallel():` at the top level of the kernel")
    }),
    row("sum", Exactly(1, "`sum` takes one argument"), |l, c| l.lower_fold(c)),
    row("tuple", AtMost(1, "`tuple` takes one argument"), |l, c| l.lower_sequence(c, Value::tuple)),
    row("volatile_load", Exactly(1, "`volatile_load` takes an element of a field or an array"), |l, c| {
        l.lower_volatile_load(c)
    }),
    row("zero", Exactly(1, "`zero` takes one argument"), |l, c| l.constant_like(&c.args[0], 0)),
    row("zip", Any, |l, c| l.lower_zip(c)),
];

/// The operator of a function in the module `operator`.
enum OperatorFunction {
    Unary(UnaryOperator),
    Binary(Operator),
    Compare(Comparison),
}

static OPERATOR_FUNCTIONS: &[(&str, OperatorFunction)] = &[
    ("neg", OperatorFunction::Unary(UnaryOperator::Neg)),
    ("pos", OperatorFunction::Unary(UnaryOperator::Pos)),
    ("invert", OperatorFunction::Unary(UnaryOperator::Invert)),
    ("not_", OperatorFunction::Unary(UnaryOperator::Not)),
    ("add", OperatorFunction::Binary(Operator::Add)),
    ("sub", OperatorFunction::Binary(Operator::Sub)),
    ("mul", OperatorFunction::Binary(Operator::Mul)),
    ("truediv", OperatorFunction::Binary(Operator::Div)),
    ("floordiv", OperatorFunction::Binary(Operator::FloorDiv)),
    ("mod", OperatorFunction::Binary(Operator::Mod)),
    ("pow", OperatorFunction::Binary(Operator::Pow)),
    ("matmul", OperatorFunction::Binary(Operator::MatMul)),
    ("and_", OperatorFunction::Binary(Operator::BitAnd)),
    ("or_", OperatorFunction::Binary(Operator::BitOr)),
    ("xor", OperatorFunction::Binary(Operator::BitXor)),
    ("lshift", OperatorFunction::Binary(Operator::Shl)),
    ("rshift", OperatorFunction::Binary(Operator::Shr)),
    ("lt", OperatorFunction::Compare(Comparison::Lt)),
    ("le", OperatorFunction::Compare(Comparison::Le)),
    ("eq", OperatorFunction::Compare(Comparison::Eq)),
    ("ne", OperatorFunction::Compare(Comparison::Ne)),
    ("gt", OperatorFunction::Compare(Comparison::Gt)),
    ("ge", OperatorFunction::Compare(Comparison::Ge)),
];

/// The parameters of a function whose keyword arguments are its positional ones by name.
fn parameters_of(name: &str) -> Option<&'static [&'static str]> {
    Some(match name {
        "cast" | "bit_cast" => &["obj", "dtype"],
        "atomic_cas" => &["x", "expected", "desired"],
        "get_addr" => &["f", "indices"],
        "grouped" => &["x"],
        "simt.ballot" | "simt.block_count" => &["predicate"],
        "simt.shuffle" => &["value", "index"],
        "simt.shuffle_down" | "simt.shuffle_up" => &["value", "offset"],
        "simt.shuffle_xor" => &["value", "mask"],
        "volatile_load" => &["target"],
        _ if AtomicOp::from_function(name).is_some() => &["x", "y"],
        _ => return None,
    })
}

impl Lowerer<'_> {
    pub(super) fn call_builtin(
        &mut self,
        obj: Obj,
        name: &str,
        args: Vec<Value>,
        kwargs: Vec<(String, Value)>,
    ) -> Result<Value> {
        // `qd.Vector.normalized(v)`: a method that is called through its class.
        if let (Some(method), Some((base, rest))) = (name.strip_prefix("tensor."), args.split_first()) {
            if args.iter().chain(kwargs.iter().map(|k| &k.1)).all(|v| self.to_host(v).is_some()) {
                return self.call_host(obj, &args, &kwargs);
            }
            let callee = Value::Method(Rc::new((base.clone(), method.to_string())));
            return self.call(&callee, rest.to_vec(), kwargs);
        }
        if let Some(function) = name.strip_prefix("operator.") {
            return self.call_operator_function(obj, function, &args, &kwargs);
        }
        let mut call = Call { obj, name: name.to_string(), args, kwargs };
        if !call.kwargs.is_empty() && parameters_of(name).is_some() {
            let named = std::mem::take(&mut call.kwargs);
            self.place_named(name, &mut call.args, named)?;
        }
        if let Ok(i) = BUILTINS.binary_search_by_key(&name, |b| b.name) {
            let builtin = &BUILTINS[i];
            let n = call.args.len();
            return match builtin.arity {
                Exactly(wanted, error) if n != wanted => self.err(Code::Type, error),
                AtLeast(least, error) if n < least => self.err(Code::Type, error),
                AtMost(most, error) if n > most => self.err(Code::Type, error),
                _ => (builtin.lower)(self, call),
            };
        }
        match AtomicOp::from_function(name) {
            Some(op) => self.lower_atomic(op, call),
            None => self.lower_function_of_numbers(call),
        }
    }

    /// A function of Python's module `operator`: on run-time values, the corresponding operator.
    fn call_operator_function(
        &mut self,
        obj: Obj,
        name: &str,
        args: &[Value],
        kwargs: &[(String, Value)],
    ) -> Result<Value> {
        if args.iter().all(|v| self.to_host(v).is_some()) {
            return self.call_host(obj, args, kwargs);
        }
        match (OPERATOR_FUNCTIONS.iter().find(|(n, _)| *n == name).map(|(_, f)| f), args) {
            (Some(OperatorFunction::Unary(op)), [a]) => self.unary_value(*op, a),
            (Some(OperatorFunction::Binary(op)), [l, r]) => self.binary_value(*op, l, r),
            (Some(OperatorFunction::Compare(op)), [l, r]) => self.compare_value(*op, l, r),
            _ if name == "getitem" && args.len() == 2 => self.subscript(&args[0], vec![args[1].clone()]),
            _ => self.call_host_or_refuse(obj, &format!("operator.{name}"), args, kwargs),
        }
    }

    /// The value, with a promise of the program about it.
    fn lower_promise(&mut self, call: Call) -> Result<Value> {
        Ok(Value::Rt(self.rt(&call.args[0])?))
    }

    /// Whether the value is a scalar type: `qd.i32`, `int`, `float`.
    fn is_type(&self, value: &Value) -> bool {
        match value {
            Value::Obj(o) => match self.world.entity(*o) {
                Entity::Dtype(_) => true,
                Entity::Builtin(name) => name == "int" || name == "float",
                _ => false,
            },
            _ => false,
        }
    }

    /// A function in the table of operations or in `arith`, evaluated at compile time if all arguments are known.
    pub(super) fn lower_function_of_numbers(&mut self, call: Call) -> Result<Value> {
        let Call { obj, name, args: given, kwargs } = call;
        // A type as the last argument (`qd.round(x, qd.i32)`) converts the result.
        let mut args = given.clone();
        let mut named = kwargs.clone();
        let mut convert = None;
        if let Some(at) = named.iter().position(|(key, _)| matches!(key.as_str(), "dtype" | "dt")) {
            convert = Some(self.dtype_of(&named.remove(at).1)?);
        } else if let Some(last) = args.pop_if(|v| self.is_type(v)) {
            convert = Some(self.dtype_of(&last)?);
        }
        self.place_named(&name, &mut args, named)?;
        let plain = |v: &Value| {
            matches!(
                v,
                Value::Int(_)
                    | Value::Float(_)
                    | Value::Bool(_)
                    | Value::Str(_)
                    | Value::None
                    | Value::Tuple(_)
                    | Value::List(_)
            ) && v.is_compile_time()
        };
        let numbers = args.iter().all(plain);
        // Python's integers have no width, literals in a kernel do.
        let depends_on_width = self.static_depth == 0 && matches!(name.as_str(), "bit_shr" | "clz" | "popcnt");
        if numbers
            && !depends_on_width
            && !args.is_empty()
            && let Ok(v) = self.call_host(obj, &args, &[])
        {
            // In Python the result has the type of the number that was chosen, in a kernel the type of all of them.
            let chosen_of = match name.as_str() {
                "min" | "max" => &args[..],
                "select" => args.get(1..).unwrap_or_default(),
                _ => &[],
            };
            let v = match v {
                Value::Int(n) if self.static_depth == 0 && chosen_of.iter().any(|a| matches!(a, Value::Float(_))) => {
                    Value::Float(n as f64)
                }
                v => v,
            };
            return match convert {
                Some(to) => {
                    let v = self.rt(&v)?;
                    Ok(Value::Rt(arith::cast(&mut self.b, v, to)?))
                }
                None => Ok(v),
            };
        }
        let mut values = Vec::new();
        for v in &args {
            match v.items() {
                Some(items) if !items.is_empty() => values.push(self.make_tensor(items, None)?),
                _ => match self.try_rt(v)? {
                    Some(v) => values.push(v),
                    None => return self.call_host_or_refuse(obj, &name, &given, &kwargs),
                },
            }
        }
        match arith::math(&mut self.b, &self.options, &name, &values) {
            Some(v) => {
                let v = v?;
                let v = match convert {
                    Some(s) => arith::cast(&mut self.b, v, s)?,
                    None => v,
                };
                Ok(match self.b.ty(v).clone() {
                    Type::Struct(s) => {
                        Value::tuple((0..s.members.len() as u32).map(|i| Value::Rt(self.b.extract(v, i))).collect())
                    }
                    _ => Value::Rt(v),
                })
            }
            None => self.call_host_or_refuse(obj, &name, &given, &kwargs),
        }
    }

    /// Moves keyword arguments to the positions of the function's parameters.
    fn place_named(&self, name: &str, args: &mut Vec<Value>, named: Vec<(String, Value)>) -> Result<()> {
        let parameters: &[&str] = match name {
            "max" | "min" => &[],
            "pow" => &["base", "exponent"],
            "select" => &["cond", "x1", "x2"],
            _ if let Some(parameters) = parameters_of(name) => parameters,
            _ if named.iter().any(|(key, _)| key == "x") => &["x"],
            _ => &["x1", "x2"],
        };
        let mut placed: Vec<Option<Value>> = args.drain(..).map(Some).collect();
        for (key, value) in named {
            let Some(at) = parameters.iter().position(|p| **p == *key) else {
                return self.err(Code::Type, format!("`{name}` has no parameter `{key}`"));
            };
            placed.resize(placed.len().max(at + 1), None);
            if placed[at].replace(value).is_some() {
                return self.err(Code::Type, format!("`{name}` got multiple values for argument `{key}`"));
            }
        }
        if let Some(missing) = placed.iter().position(Option::is_none) {
            return self.err(Code::Type, format!("`{name}` is missing the argument `{}`", parameters[missing]));
        }
        args.extend(placed.into_iter().flatten());
        Ok(())
    }

    pub(super) fn call_host_or_refuse(
        &mut self,
        obj: Obj,
        name: &str,
        args: &[Value],
        kwargs: &[(String, Value)],
    ) -> Result<Value> {
        if let Some(value) = self.function_by_method(name, args)? {
            return Ok(value);
        }
        if args.iter().chain(kwargs.iter().map(|k| &k.1)).all(|v| self.to_host(v).is_some()) {
            return self.call_host(obj, args, kwargs);
        }
        Err(Diagnostic::new(
            Code::Type,
            self.b.span,
            format!("`{name}` cannot be called with these values in a kernel"),
        )
        .with_hint("it accepts only values known at compile time"))
    }
}

#[cfg(test)]
mod tests {
    use super::BUILTINS;

    #[test]
    fn the_table_is_sorted() {
        assert!(BUILTINS.is_sorted_by(|a, b| a.name < b.name));
    }
}
