//! Vectors, matrices and structs as lists of scalars, independent of the code generator's value type: the scalars that
//! an operation takes, and the order in which it combines them.

use octants_ir::Type;

/// For tensors with at most this many components, a component with a run-time index is chosen by selects; for others,
/// through memory.
pub const SELECT_LIMIT: usize = 4;

/// A component of a tensor or a member of a struct, of a value of a type.
pub fn part<V: Copy>(ty: &Type, leaves: &[V], i: u32) -> Vec<V> {
    match ty {
        Type::Struct(s) => {
            let first: usize = s.members[..i as usize].iter().map(|(_, t)| t.leaf_count()).sum();
            leaves[first..first + s.members[i as usize].1.leaf_count()].to_vec()
        }
        _ => vec![leaves[i as usize]],
    }
}

/// Columns become rows.
pub fn transposed<V: Copy>(ty: &Type, leaves: &[V]) -> Vec<V> {
    match *ty {
        Type::Matrix(_, n, m) => {
            let (n, m) = (n as usize, m as usize);
            (0..m).flat_map(|j| (0..n).map(move |i| i * m + j)).map(|k| leaves[k]).collect()
        }
        _ => leaves.to_vec(),
    }
}

/// The product of two values. Products of scalars are summed in index order.
pub fn product<V: Copy>(
    (a, x): (&Type, &[V]),
    (b, y): (&Type, &[V]),
    multiply: impl Fn(V, V) -> V,
    add: impl Fn(V, V) -> V,
) -> Vec<V> {
    let (rows, inner, columns) = match (a, b) {
        (Type::Matrix(_, n, k), Type::Matrix(_, _, m)) => (*n, *k, *m),
        (Type::Matrix(_, n, k), Type::Vector(..)) => (*n, *k, 1),
        (Type::Vector(_, k), Type::Matrix(_, _, m)) => (1, *k, *m),
        (l, r) => panic!("compiler bug: product of {l} and {r}"),
    };
    let (rows, inner, columns) = (rows as usize, inner as usize, columns as usize);
    let mut out = Vec::with_capacity(rows * columns);
    for i in 0..rows {
        for j in 0..columns {
            let term = |k: usize| multiply(x[i * inner + k], y[k * columns + j]);
            out.push((1..inner).fold(term(0), |sum, k| add(sum, term(k))));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use octants_ir::Scalar;

    use super::*;

    #[test]
    fn products_and_transposes_take_scalars_in_row_major_order() {
        let (a, b) = (Type::Matrix(Scalar::I32, 2, 3), Type::Matrix(Scalar::I32, 3, 1));
        let x = [1, 2, 3, 4, 5, 6];
        assert_eq!(transposed(&a, &x), [1, 4, 2, 5, 3, 6]);
        assert_eq!(product((&a, &x), (&b, &[1, 10, 100]), |x, y| x * y, |x, y| x + y), [321, 654]);
        let row = Type::Vector(Scalar::I32, 2);
        assert_eq!(product((&row, &[1, 10]), (&a, &x), |x, y| x * y, |x, y| x + y), [41, 52, 63]);
    }
}
