//! Matrix products that the threads of a subgroup compute together, from fragments in their registers.
//!
//! A **fragment** is a 16 x 16 matrix whose elements are distributed over the threads of a subgroup: each of `s`
//! threads has a vector of `256 / s` components. The layout depends on the kind of product, on the role of the matrix
//! in it, and on the target. Code queries it: `fragment_index kind role component axis` is the row or column of a
//! component of this thread. Every element is in exactly one component. Component-wise operations keep the layout.
//!
//! `product_*(a, b, c)` is `a @ b + c`. Products are exact or rounded to the type of the sums, whose order is
//! unspecified. `ProductTf32` may round the components of `a` and `b` to 10 bits of mantissa.
//!
//! A target has layouts for the kinds that it has instructions for ([`ProductShape`]). Other kinds, and machines that
//! run threads in loops, use the plain layout: element `e` of the matrix, row by row, is component `e / s` of thread `e
//! % s`.

use crate::operation_table::SubgroupOp;
use crate::types::{Scalar, Type};

/// Rows and columns of a fragment.
pub const SIDE: u32 = 16;

/// Elements of a fragment.
pub const ELEMENTS: u32 = SIDE * SIDE;

named_operations! {
    /// The operand type and the precision of a product.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    ProductKind {
        /// f16, summed up in f32.
        F16 = "f16"
        /// f32, rounded to tf32 if the target supports it, accumulated in f32.
        Tf32 = "tf32"
        /// f32.
        F32 = "f32"
        /// f64.
        F64 = "f64"
    }
}

named_operations! {
    /// The role of a fragment in a product.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    FragmentRole {
        /// The left operand.
        A = "a"
        /// The right operand.
        B = "b"
        /// The sums.
        Accumulator = "accumulator"
    }
}

named_operations! {
    /// An axis of a fragment.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    FragmentAxis {
        Row = "row"
        Column = "column"
    }
}

/// A component of a fragment, and the axis of the requested index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FragmentElement {
    pub kind: ProductKind,
    pub role: FragmentRole,
    pub component: u32,
    pub axis: FragmentAxis,
}

impl ProductKind {
    /// The scalar of the operands.
    pub fn operand(self) -> Scalar {
        match self {
            ProductKind::F16 => Scalar::F16,
            ProductKind::Tf32 | ProductKind::F32 => Scalar::F32,
            ProductKind::F64 => Scalar::F64,
        }
    }

    /// The scalar of the sums.
    pub fn accumulator(self) -> Scalar {
        match self {
            ProductKind::F16 | ProductKind::Tf32 | ProductKind::F32 => Scalar::F32,
            ProductKind::F64 => Scalar::F64,
        }
    }

    /// The scalar of a fragment.
    pub fn scalar(self, role: FragmentRole) -> Scalar {
        match role {
            FragmentRole::A | FragmentRole::B => self.operand(),
            FragmentRole::Accumulator => self.accumulator(),
        }
    }

    /// The operation of the subgroup.
    pub fn operation(self) -> SubgroupOp {
        match self {
            ProductKind::F16 => SubgroupOp::ProductF16,
            ProductKind::Tf32 => SubgroupOp::ProductTf32,
            ProductKind::F32 => SubgroupOp::ProductF32,
            ProductKind::F64 => SubgroupOp::ProductF64,
        }
    }
}

impl SubgroupOp {
    /// The kind of product that it forms.
    pub fn product(self) -> Option<ProductKind> {
        ProductKind::ALL.iter().copied().find(|kind| kind.operation() == self)
    }
}

/// The operands and the result have the types of fragments, all of one length.
pub(crate) fn is_product(kind: ProductKind, operands: &[&Type], result: &Type) -> bool {
    let [Type::Vector(a, n), b, c] = operands else { return false };
    let sums = Type::Vector(kind.accumulator(), *n);
    let fits = *a == kind.operand() && **b == Type::Vector(*a, *n) && **c == sums && *result == sums;
    fits && n.is_power_of_two() && *n <= ELEMENTS
}

/// A target's native instruction for a kind of product, and its operand layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductShape {
    pub kind: ProductKind,
    /// Rows of `a`, columns of `b` and columns of `a` that one instruction takes.
    pub extents: [u32; 3],
    /// Layouts of whole fragments.
    pub a: FragmentLayout,
    pub b: FragmentLayout,
    pub accumulator: FragmentLayout,
}

impl ProductShape {
    /// The layout of a fragment.
    pub fn layout(&self, role: FragmentRole) -> FragmentLayout {
        match role {
            FragmentRole::A => self.a,
            FragmentRole::B => self.b,
            FragmentRole::Accumulator => self.accumulator,
        }
    }
}

/// The layout of a fragment: an element's row and column are sums over the set bits in the numbers of its component and
/// its thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FragmentLayout {
    /// (row, column) of each bit of the component's number, the lowest bit first.
    pub components: &'static [(u32, u32)],
    /// The same for the thread's index in the subgroup.
    pub lanes: &'static [(u32, u32)],
}

impl FragmentLayout {
    /// The contribution to an axis of each bit of the thread's index, and of the component.
    pub fn along(&self, axis: FragmentAxis, component: u32) -> (Vec<u32>, u32) {
        let of = |(row, column): &(u32, u32)| match axis {
            FragmentAxis::Row => *row,
            FragmentAxis::Column => *column,
        };
        let bits = self.components.iter().enumerate().filter(|(bit, _)| component >> bit & 1 == 1);
        (self.lanes.iter().map(of).collect(), bits.map(|(_, at)| of(at)).sum())
    }

    /// The row and column of a component of a thread.
    pub fn position(&self, component: u32, lane: u32) -> (u32, u32) {
        let [row, column] = [FragmentAxis::Row, FragmentAxis::Column].map(|axis| {
            let (lanes, fixed) = self.along(axis, component);
            let bits = lanes.iter().enumerate().filter(|(bit, _)| lane >> bit & 1 == 1);
            fixed + bits.map(|(_, at)| at).sum::<u32>()
        });
        (row, column)
    }

    /// Each element has one place.
    pub fn is_complete(&self) -> bool {
        let (components, lanes) = (1 << self.components.len(), 1 << self.lanes.len());
        let mut seen = [false; ELEMENTS as usize];
        for (component, lane) in (0..components).flat_map(|c| (0..lanes).map(move |l| (c, l))) {
            let (row, column) = self.position(component, lane);
            match seen.get_mut((row * SIDE + column) as usize) {
                Some(seen) if column < SIDE => *seen = true,
                _ => return false,
            }
        }
        components * lanes == ELEMENTS && seen.iter().all(|seen| *seen)
    }
}
