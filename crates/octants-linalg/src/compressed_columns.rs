//! Sparse matrices in compressed sparse column format, and their algebra.
//!
//! The entries of a column are sorted by row, without duplicates. An entry may be zero: the patterns of sums and
//! products follow from the patterns of the operands, and do not depend on values.

use crate::Real;

/// Rows and columns of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub columns: usize,
}

/// A sparse matrix by columns.
#[derive(Debug, Clone, PartialEq)]
pub struct SparseMatrix<T> {
    shape: Shape,
    /// Where each column's entries begin, and where the last one's end.
    starts: Vec<usize>,
    /// The row of each entry.
    rows: Vec<usize>,
    values: Vec<T>,
}

impl<T: Real> SparseMatrix<T> {
    /// A matrix without entries.
    pub fn new(shape: Shape) -> Self {
        SparseMatrix { shape, starts: vec![0; shape.columns + 1], rows: Vec::new(), values: Vec::new() }
    }

    /// The sum of single entries `(row, column, value)`. Those of one place are added in the order in which they come.
    /// `Err` is the first place outside the shape.
    pub fn from_triplets(shape: Shape, triplets: &[(usize, usize, T)]) -> Result<Self, (usize, usize)> {
        if let Some(&(i, j, _)) = triplets.iter().find(|&&(i, j, _)| i >= shape.rows || j >= shape.columns) {
            return Err((i, j));
        }
        // Two stable counting sorts, by row and then by column, keep the order of the entries of one place.
        let by_row = counting_sort(shape.rows, 0..triplets.len(), |t| triplets[t].0);
        let by_column = counting_sort(shape.columns, by_row.into_iter(), |t| triplets[t].1);
        let mut out = Builder::new(shape, triplets.len());
        for t in by_column {
            let (i, j, value) = triplets[t];
            out.add(i, j, value);
        }
        Ok(out.finish())
    }

    /// Its rows and columns.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Where each column's entries begin, and where the last one's end.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// The row of each entry.
    pub fn rows(&self) -> &[usize] {
        &self.rows
    }

    /// The value of each entry.
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The entries `(row, column, value)`, column by column.
    pub fn entries(&self) -> impl Iterator<Item = (usize, usize, T)> + '_ {
        (0..self.shape.columns).flat_map(move |j| self.column(j).map(move |(i, value)| (i, j, value)))
    }

    fn column(&self, j: usize) -> impl Iterator<Item = (usize, T)> + '_ {
        let range = self.starts[j]..self.starts[j + 1];
        self.rows[range.clone()].iter().copied().zip(self.values[range].iter().copied())
    }

    /// The position of an entry, or where to insert it.
    fn find(&self, i: usize, j: usize) -> Result<usize, usize> {
        let start = self.starts[j];
        let found = self.rows[start..self.starts[j + 1]].binary_search(&i);
        found.map(|at| start + at).map_err(|at| start + at)
    }

    /// An element; zero without an entry.
    pub fn get(&self, i: usize, j: usize) -> T {
        self.find(i, j).map_or_else(|_| T::default(), |at| self.values[at])
    }

    /// Sets an element; inserts an entry if needed.
    pub fn set(&mut self, i: usize, j: usize, value: T) {
        match self.find(i, j) {
            Ok(at) => self.values[at] = value,
            Err(at) => {
                self.rows.insert(at, i);
                self.values.insert(at, value);
                self.starts[j + 1..].iter_mut().for_each(|start| *start += 1);
            }
        }
    }

    /// `combine` of the two matrices' elements, for entries of either matrix.
    pub fn merge(&self, other: &Self, combine: impl Fn(T, T) -> T) -> Self {
        assert_eq!(self.shape, other.shape, "compiler bug: merging matrices of different shapes");
        let mut out = Builder::new(self.shape, self.values.len() + other.values.len());
        for j in 0..self.shape.columns {
            let (mut left, mut right) = (self.column(j).peekable(), other.column(j).peekable());
            loop {
                let i = match (left.peek(), right.peek()) {
                    (Some(&(l, _)), Some(&(r, _))) => l.min(r),
                    (Some(&(i, _)), None) | (None, Some(&(i, _))) => i,
                    (None, None) => break,
                };
                let a = left.next_if(|&(l, _)| l == i).map_or_else(T::default, |e| e.1);
                let b = right.next_if(|&(r, _)| r == i).map_or_else(T::default, |e| e.1);
                out.add(i, j, combine(a, b));
            }
        }
        out.finish()
    }

    /// The products of the two matrices' elements, for entries of both.
    pub fn multiply_elements(&self, other: &Self) -> Self {
        let mut out = Builder::new(self.shape, self.values.len().min(other.values.len()));
        for (i, j, value) in self.entries() {
            if let Ok(at) = other.find(i, j) {
                out.add(i, j, value * other.values[at]);
            }
        }
        out.finish()
    }

    /// Every element times a number.
    pub fn scale(&self, factor: T) -> Self {
        SparseMatrix { values: self.values.iter().map(|&v| v * factor).collect(), ..self.clone() }
    }

    /// Rows and columns exchanged.
    pub fn transpose(&self) -> Self {
        let shape = Shape { rows: self.shape.columns, columns: self.shape.rows };
        let columns: Vec<usize> = self.entries().map(|e| e.1).collect();
        let order = counting_sort(shape.columns, 0..self.rows.len(), |at| self.rows[at]);
        let mut out = Builder::new(shape, order.len());
        for at in order {
            out.add(columns[at], self.rows[at], self.values[at]);
        }
        out.finish()
    }

    /// The matrix product.
    pub fn multiply(&self, other: &Self) -> Self {
        assert_eq!(self.shape.columns, other.shape.rows, "compiler bug: the inner extents of a product differ");
        let shape = Shape { rows: self.shape.rows, columns: other.shape.columns };
        let mut out = Builder::new(shape, self.values.len() + other.values.len());
        let mut sums = vec![T::default(); shape.rows];
        let mut is_used = vec![false; shape.rows];
        let mut used = Vec::new();
        for j in 0..shape.columns {
            for (k, factor) in other.column(j) {
                for (i, value) in self.column(k) {
                    if !std::mem::replace(&mut is_used[i], true) {
                        used.push(i);
                    }
                    sums[i] += value * factor;
                }
            }
            used.sort_unstable();
            for i in used.drain(..) {
                is_used[i] = false;
                out.add(i, j, std::mem::take(&mut sums[i]));
            }
        }
        out.finish()
    }
}

/// The items in the order of their keys, which are below `count`; those of one key stay in order.
fn counting_sort(count: usize, items: impl Iterator<Item = usize> + Clone, key: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut places = vec![0; count + 1];
    let mut total = 0;
    for item in items.clone() {
        places[key(item) + 1] += 1;
        total += 1;
    }
    for k in 0..count {
        places[k + 1] += places[k];
    }
    let mut out = vec![0; total];
    for item in items {
        let place = &mut places[key(item)];
        out[*place] = item;
        *place += 1;
    }
    out
}

/// Takes entries column by column, each column's by rows.
struct Builder<T> {
    made: SparseMatrix<T>,
    column: usize,
}

impl<T: Real> Builder<T> {
    fn new(shape: Shape, room: usize) -> Self {
        let made = SparseMatrix {
            shape,
            starts: Vec::with_capacity(shape.columns + 1),
            rows: Vec::with_capacity(room),
            values: Vec::with_capacity(room),
        };
        Builder { made, column: 0 }
    }

    /// Adds to the previous entry if the position is the same.
    fn add(&mut self, i: usize, j: usize, value: T) {
        let made = &mut self.made;
        while made.starts.len() <= j {
            made.starts.push(made.rows.len());
        }
        let begins = made.starts[j] == made.rows.len();
        if let (false, Some(last)) =
            (begins || self.column != j || made.rows.last() != Some(&i), made.values.last_mut())
        {
            *last += value;
            return;
        }
        self.column = j;
        made.rows.push(i);
        made.values.push(value);
    }

    fn finish(mut self) -> SparseMatrix<T> {
        let end = self.made.rows.len();
        self.made.starts.resize(self.made.shape.columns + 1, end);
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { rows: 3, columns: 4 };

    fn dense(m: &SparseMatrix<f64>) -> Vec<Vec<f64>> {
        (0..m.shape().rows).map(|i| (0..m.shape().columns).map(|j| m.get(i, j)).collect()).collect()
    }

    fn sample(seed: u64, shape: Shape) -> SparseMatrix<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize
        };
        let triplets: Vec<_> =
            (0..7).map(|_| (next() % shape.rows, next() % shape.columns, (next() % 9) as f64 - 4.0)).collect();
        SparseMatrix::from_triplets(shape, &triplets).unwrap()
    }

    #[test]
    fn triplets_at_the_same_index_are_added() {
        let m = SparseMatrix::from_triplets(SHAPE, &[(2, 1, 1.0), (0, 1, 5.0), (2, 1, 2.5), (1, 3, -1.0)]).unwrap();
        assert_eq!(m.starts(), [0, 0, 2, 2, 3]);
        assert_eq!(m.rows(), [0, 2, 1]);
        assert_eq!(m.values(), [5.0, 3.5, -1.0]);
        assert_eq!(SparseMatrix::from_triplets(SHAPE, &[(0, 4, 1.0)]), Err((0, 4)));
    }

    #[test]
    fn entries_of_adjacent_columns_stay_separate() {
        let m = SparseMatrix::from_triplets(SHAPE, &[(1, 0, 1.0), (1, 1, 2.0), (1, 2, 3.0)]).unwrap();
        assert_eq!(dense(&m)[1], [1.0, 2.0, 3.0, 0.0]);
    }

    #[test]
    fn elements_are_set_in_place_and_added() {
        let mut m = SparseMatrix::new(SHAPE);
        for (i, j, v) in [(2, 3, 1.0), (0, 0, 2.0), (1, 3, 3.0), (2, 3, 4.0)] {
            m.set(i, j, v);
        }
        assert_eq!(dense(&m), [[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 4.0]]);
        assert_eq!(m.values().len(), 3);
    }

    #[test]
    fn the_algebra_agrees_with_dense_matrices() {
        for seed in 0..50 {
            let (a, b) = (sample(seed, SHAPE), sample(seed + 100, SHAPE));
            let c = sample(seed + 200, Shape { rows: 4, columns: 2 });
            let (da, db, dc) = (dense(&a), dense(&b), dense(&c));
            let (sum, difference) = (dense(&a.merge(&b, |x, y| x + y)), dense(&a.merge(&b, |x, y| x - y)));
            let (product, elements, turned) =
                (dense(&a.multiply(&c)), dense(&a.multiply_elements(&b)), dense(&a.transpose()));
            for i in 0..3 {
                for j in 0..4 {
                    assert_eq!(sum[i][j], da[i][j] + db[i][j]);
                    assert_eq!(difference[i][j], da[i][j] - db[i][j]);
                    assert_eq!(elements[i][j], da[i][j] * db[i][j]);
                    assert_eq!(turned[j][i], da[i][j]);
                    assert_eq!(a.scale(2.0).get(i, j), 2.0 * da[i][j]);
                }
                for j in 0..2 {
                    assert_eq!(product[i][j], (0..4).map(|k| da[i][k] * dc[k][j]).sum::<f64>());
                }
            }
        }
    }
}
