//! Matrix products by GPU instructions: their operand layouts, and the instructions.
//!
//! The layouts are those of NVIDIA's PTX ISA, chapter on warp-level matrix instructions, and of AMD's ISA documents. A
//! fragment of 16 x 16 consists of as many of an instruction's operands as it takes, one after the other. Columns of
//! `a` and rows of `b` may be permuted if both use the same permutation; it is chosen so that neighbors in a row are
//! in one thread.

use octants_ir::{FragmentLayout, ProductKind, ProductShape};

use crate::emit::{Emitter, IntCmp, T, V};

/// The sums of all NVIDIA products: pairs of neighbors in a row.
const NVIDIA_SUMS: FragmentLayout =
    FragmentLayout { components: &[(0, 1), (8, 0), (0, 8)], lanes: &[(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)] };

/// From compute capability 8.0 on.
pub(super) const NVIDIA: &[ProductShape] = &[
    ProductShape {
        kind: ProductKind::F16,
        extents: [16, 8, 16],
        a: FragmentLayout { components: &[(0, 1), (8, 0), (0, 8)], lanes: &[(0, 2), (0, 4), (1, 0), (2, 0), (4, 0)] },
        b: FragmentLayout { components: &[(1, 0), (8, 0), (0, 8)], lanes: &[(2, 0), (4, 0), (0, 1), (0, 2), (0, 4)] },
        accumulator: NVIDIA_SUMS,
    },
    ProductShape {
        kind: ProductKind::Tf32,
        extents: [16, 8, 8],
        a: FragmentLayout { components: &[(8, 0), (0, 1), (0, 2)], lanes: &[(0, 4), (0, 8), (1, 0), (2, 0), (4, 0)] },
        b: FragmentLayout { components: &[(1, 0), (2, 0), (0, 8)], lanes: &[(4, 0), (8, 0), (0, 1), (0, 2), (0, 4)] },
        accumulator: NVIDIA_SUMS,
    },
    ProductShape {
        kind: ProductKind::F64,
        extents: [8, 8, 4],
        a: FragmentLayout { components: &[(8, 0), (0, 1), (0, 2)], lanes: &[(0, 4), (0, 8), (1, 0), (2, 0), (4, 0)] },
        b: FragmentLayout { components: &[(1, 0), (2, 0), (0, 8)], lanes: &[(4, 0), (8, 0), (0, 1), (0, 2), (0, 4)] },
        accumulator: NVIDIA_SUMS,
    },
];

/// Waves of 64: four columns of `a`, and four rows of the sums, in each thread.
const MATRIX_CORE_A: FragmentLayout =
    FragmentLayout { components: &[(0, 1), (0, 2)], lanes: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 4), (0, 8)] };
const MATRIX_CORE_B: FragmentLayout =
    FragmentLayout { components: &[(1, 0), (2, 0)], lanes: &[(0, 1), (0, 2), (0, 4), (0, 8), (4, 0), (8, 0)] };

/// A product by matrix cores, MFMA.
const fn by_matrix_cores(kind: ProductKind, depth: u32, accumulator: FragmentLayout) -> ProductShape {
    ProductShape { kind, extents: [16, 16, depth], a: MATRIX_CORE_A, b: MATRIX_CORE_B, accumulator }
}

const CDNA1: &[ProductShape] = &[
    by_matrix_cores(ProductKind::F16, 16, MATRIX_CORE_B),
    by_matrix_cores(ProductKind::F32, 4, MATRIX_CORE_B),
    by_matrix_cores(ProductKind::Tf32, 4, MATRIX_CORE_B),
];
const CDNA2: &[ProductShape] = &[
    CDNA1[0],
    CDNA1[1],
    CDNA1[2],
    by_matrix_cores(
        ProductKind::F64,
        4,
        // Rows of doubles are assigned one by one.
        FragmentLayout { components: &[(4, 0), (8, 0)], lanes: &[(0, 1), (0, 2), (0, 4), (0, 8), (1, 0), (2, 0)] },
    ),
];

/// Waves of 32, WMMA: the halves of a wave have eight columns of `a` each.
const fn by_waves(accumulator: FragmentLayout) -> ProductShape {
    ProductShape {
        kind: ProductKind::F16,
        extents: [16, 16, 16],
        a: FragmentLayout { components: &[(0, 1), (0, 2), (0, 4)], lanes: &[(1, 0), (2, 0), (4, 0), (8, 0), (0, 8)] },
        b: FragmentLayout { components: &[(1, 0), (2, 0), (4, 0)], lanes: &[(0, 1), (0, 2), (0, 4), (0, 8), (8, 0)] },
        accumulator,
    }
}

/// The halves of a wave have every other row of the sums.
const RDNA3: &[ProductShape] = &[by_waves(FragmentLayout {
    components: &[(2, 0), (4, 0), (8, 0)],
    lanes: &[(0, 1), (0, 2), (0, 4), (0, 8), (1, 0)],
})];
/// The halves of a wave have eight rows of the sums each.
const RDNA4: &[ProductShape] = &[by_waves(FragmentLayout {
    components: &[(1, 0), (2, 0), (4, 0)],
    lanes: &[(0, 1), (0, 2), (0, 4), (0, 8), (8, 0)],
})];

/// The products of an AMD chip.
pub(super) fn of_amd(cpu: &str) -> &'static [ProductShape] {
    match cpu {
        "gfx908" => CDNA1,
        "gfx90a" | "gfx942" => CDNA2,
        _ if cpu.starts_with("gfx11") => RDNA3,
        _ if cpu.starts_with("gfx12") => RDNA4,
        _ => &[],
    }
}

/// A product by NVIDIA's `mma` instructions.
pub(super) fn on_nvidia(e: &Emitter, kind: ProductKind, [a, b, c]: [&[V]; 3]) -> Vec<V> {
    let mut sums = c.to_vec();
    match kind {
        ProductKind::F16 => {
            let pairs = |v: &[V]| -> Vec<V> { v.chunks(2).map(|pair| vector(e, pair)).collect() };
            for half in 0..2 {
                let operands = [pairs(a), pairs(&b[4 * half..][..4])].concat();
                multiply(e, "llvm.nvvm.mma.m16n8k16.row.col.f32.f32", operands, &mut sums[4 * half..][..4]);
            }
        }
        ProductKind::Tf32 => {
            let round = e.declare("llvm.nvvm.f2tf32.rna", e.i32, &mut [e.f32]);
            let [a, b] = [a, b].map(|v| v.iter().map(|x| e.call(round, &[*x])).collect::<Vec<V>>());
            for (half, step) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let operands = [&a[4 * step..][..4], &b[4 * half + 2 * step..][..2]].concat();
                multiply(e, "llvm.nvvm.mma.m16n8k8.row.col.tf32", operands, &mut sums[4 * half..][..4]);
            }
        }
        ProductKind::F64 => {
            for (right, below, step) in (0..16).map(|i| (i >> 3, i >> 2 & 1, i & 3)) {
                let operands = vec![a[below + 2 * step], b[4 * right + step]];
                let sums = &mut sums[4 * right + 2 * below..][..2];
                multiply(e, "llvm.nvvm.mma.m8n8k4.row.col.f64", operands, sums);
            }
        }
        ProductKind::F32 => panic!("compiler bug: no f32 matrix product"),
    }
    sums
}

/// Four matrices of 8 x 8 f16 from shared memory, two elements of each in a thread.
pub(super) fn load_matrices(e: &Emitter, row: V, transposed: bool) -> Vec<V> {
    let name = match transposed {
        true => "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16.p3",
        false => "llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3",
    };
    let f = e.declare(name, e.struct_type(&mut [e.i32; 4]), &mut [e.type_of(row)]);
    let loaded = e.call(f, &[row]);
    let pair = e.vector_type(e.f16, 2);
    (0..4).flat_map(|i| components(e, e.bitcast(e.extract_value(loaded, i), pair), 2)).collect()
}

/// One instruction, which yields a struct.
fn multiply(e: &Emitter, name: &str, mut operands: Vec<V>, sums: &mut [V]) {
    operands.extend(&*sums);
    let mut types: Vec<T> = operands.iter().map(|v| e.type_of(*v)).collect();
    let result = e.struct_type(&mut vec![e.type_of(sums[0]); sums.len()]);
    let made = e.call(e.declare(name, result, &mut types), &operands);
    sums.iter_mut().enumerate().for_each(|(i, sum)| *sum = e.extract_value(made, i));
}

/// A product by AMD's matrix cores or wave instructions. `exchange` gives a word of the thread whose index differs in
/// the fifth bit.
pub(super) fn on_amd(
    e: &Emitter,
    cpu: &str,
    kind: ProductKind,
    [a, b, c]: [&[V]; 3],
    exchange: &dyn Fn(V) -> V,
) -> Vec<V> {
    let mut sum = vector(e, c);
    if of_amd(cpu)[0].extents == [16, 16, 16] && c.len() == 8 {
        let name = "llvm.amdgcn.wmma.f32.16x16x16.f16";
        let [a, b] = match cpu.starts_with("gfx11") {
            true => [a, b].map(|v| both_halves(e, v, exchange)),
            false => [a, b].map(|v| vector(e, v)),
        };
        let suffix = if cpu.starts_with("gfx11") { "v8f32.v16f16" } else { "v8f32.v8f16" };
        let [operand, result] = [a, sum].map(|v| e.type_of(v));
        let f = e.declare(&format!("{name}.{suffix}"), result, &mut [operand, operand, result]);
        return components(e, e.call(f, &[a, b, sum]), c.len());
    }
    let (name, steps): (&str, Vec<[V; 2]>) = match kind {
        ProductKind::F16 => ("llvm.amdgcn.mfma.f32.16x16x16f16", vec![[vector(e, a), vector(e, b)]]),
        ProductKind::F32 | ProductKind::Tf32 => ("llvm.amdgcn.mfma.f32.16x16x4f32", each(a, b)),
        ProductKind::F64 => ("llvm.amdgcn.mfma.f64.16x16x4f64", each(a, b)),
    };
    for [a, b] in steps {
        let [operand, result] = [a, sum].map(|v| e.type_of(v));
        let f = e.declare(name, result, &mut [operand, operand, result, e.i32, e.i32, e.i32]);
        sum = e.call(f, &[a, b, sum, e.i32c(0), e.i32c(0), e.i32c(0)]);
    }
    components(e, sum, c.len())
}

fn each(a: &[V], b: &[V]) -> Vec<[V; 2]> {
    a.iter().zip(b).map(|(a, b)| [*a, *b]).collect()
}

/// All sixteen elements of a row or column. Each half of the wave has eight, the same in both halves.
fn both_halves(e: &Emitter, own: &[V], exchange: &dyn Fn(V) -> V) -> V {
    let words = e.vector_type(e.i32, own.len() as u32 / 2);
    let own = e.bitcast(vector(e, own), words);
    let lane = e.call(e.declare("llvm.amdgcn.mbcnt.lo", e.i32, &mut [e.i32, e.i32]), &[e.i32c(-1), e.i32c(0)]);
    let is_lower = e.icmp(IntCmp::LLVMIntULT, lane, e.i32c(16));
    let own = components(e, own, 4);
    let others: Vec<V> = own.iter().map(|word| exchange(*word)).collect();
    let choose =
        |yes: &[V], no: &[V]| -> Vec<V> { yes.iter().zip(no).map(|(y, n)| e.select(is_lower, *y, *n)).collect() };
    let all = [choose(&own, &others), choose(&others, &own)].concat();
    e.bitcast(vector(e, &all), e.vector_type(e.f16, 16))
}

fn vector(e: &Emitter, parts: &[V]) -> V {
    let ty = e.vector_type(e.type_of(parts[0]), parts.len() as u32);
    parts.iter().enumerate().fold(e.undef(ty), |v, (i, part)| e.insert_element(v, *part, e.i32c(i as i64)))
}

fn components(e: &Emitter, v: V, count: usize) -> Vec<V> {
    (0..count).map(|i| e.extract_element(v, e.i32c(i as i64))).collect()
}

#[cfg(test)]
mod tests {
    use octants_ir::FragmentRole;

    use super::{CDNA2, NVIDIA, RDNA3, RDNA4};

    #[test]
    fn each_matrix_element_has_one_register() {
        for shape in [NVIDIA, CDNA2, RDNA3, RDNA4].concat() {
            for role in FragmentRole::ALL {
                assert!(shape.layout(*role).is_complete(), "{shape:?}, {role:?}");
            }
        }
    }

    #[test]
    fn operands_agree_on_the_columns_of_a() {
        // Component and lane bits that move along the depth are the same ones in both operands.
        for shape in [NVIDIA, CDNA2, RDNA3, RDNA4].concat() {
            let of_a: Vec<u32> = shape.a.lanes.iter().map(|at| at.1).filter(|k| *k > 0).collect();
            let of_b: Vec<u32> = shape.b.lanes.iter().map(|at| at.0).filter(|k| *k > 0).collect();
            assert_eq!(of_a, of_b, "{shape:?}");
        }
    }
}
