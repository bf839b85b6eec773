//! [`Lanewise`]: operations that compute each lane of a result from the same lane of their sources.

use crate::number::Ty;

/// One value per lane, in the low bits.
pub type Row = [u64; 64];
/// Computes the first lanes of a row.
pub type RowFn = fn(usize, &mut Row, &Row, &Row, &Row);

/// An operation on lanes.
#[derive(Debug, Clone, Copy)]
pub struct Lanewise {
    /// Number of sources.
    pub count: usize,
    /// The type of its result.
    pub to: Ty,
    /// The types of its sources.
    pub from: [Ty; 3],
    /// The function.
    pub run: RowFn,
}

impl Lanewise {
    /// Computes one lane.
    pub fn one(&self, sources: [u64; 3]) -> u64 {
        let rows = sources.map(|s| {
            let mut row = [0; 64];
            row[0] = s;
            row
        });
        let mut result = [0; 64];
        (self.run)(1, &mut result, &rows[0], &rows[1], &rows[2]);
        result[0]
    }
}

/// A table entry: name, parameters with Rust types, result type, and expression.
macro_rules! op {
    ($name:literal, |$a:ident: $A:ty| -> $R:ty $body:block) => {
        (
            $name,
            $crate::lanewise::Lanewise {
                count: 1,
                to: <$R as $crate::number::Lane>::TY,
                from: [<$A as $crate::number::Lane>::TY, $crate::number::Ty::B32, $crate::number::Ty::B32],
                run: |n, d, a, _, _| {
                    for i in 0..n.min(64) {
                        let $a = <$A as $crate::number::Lane>::get(a[i]);
                        let r: $R = $body;
                        d[i] = $crate::number::Lane::put(r);
                    }
                },
            },
        )
    };
    ($name:literal, |$a:ident: $A:ty, $b:ident: $B:ty| -> $R:ty $body:block) => {
        (
            $name,
            $crate::lanewise::Lanewise {
                count: 2,
                to: <$R as $crate::number::Lane>::TY,
                from: [<$A as $crate::number::Lane>::TY, <$B as $crate::number::Lane>::TY, $crate::number::Ty::B32],
                run: |n, d, a, b, _| {
                    for i in 0..n.min(64) {
                        let $a = <$A as $crate::number::Lane>::get(a[i]);
                        let $b = <$B as $crate::number::Lane>::get(b[i]);
                        let r: $R = $body;
                        d[i] = $crate::number::Lane::put(r);
                    }
                },
            },
        )
    };
    ($name:literal, |$a:ident: $A:ty, $b:ident: $B:ty, $c:ident: $C:ty| -> $R:ty $body:block) => {
        (
            $name,
            $crate::lanewise::Lanewise {
                count: 3,
                to: <$R as $crate::number::Lane>::TY,
                from: [
                    <$A as $crate::number::Lane>::TY,
                    <$B as $crate::number::Lane>::TY,
                    <$C as $crate::number::Lane>::TY,
                ],
                run: |n, d, a, b, c| {
                    for i in 0..n.min(64) {
                        let $a = <$A as $crate::number::Lane>::get(a[i]);
                        let $b = <$B as $crate::number::Lane>::get(b[i]);
                        let $c = <$C as $crate::number::Lane>::get(c[i]);
                        let r: $R = $body;
                        d[i] = $crate::number::Lane::put(r);
                    }
                },
            },
        )
    };
}

pub(crate) use op;
