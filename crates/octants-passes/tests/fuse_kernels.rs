//! Fusion of kernels: the fused code, and what is refused.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use octants_ir::verify::assert_kernel;
use octants_ir::{BufferId, Kernel, Param, Scalar, Type, renumber};
use octants_passes::fuse_kernels::{FusedKernel, FusionPart, FusionPlan, fuse_kernels, iterations_of};

/// A kernel of two arrays and a number, with this code in its loop.
fn kernel(name: &str, code: &str) -> Kernel {
    format!(
        "kernel {name} -> unit {{
  param n: i32
  buffer @0 x: f32[1] contiguous
  buffer @1 y: f32[1] contiguous
  body {{
    %0: i32 = const 0
    %1: i32 = shape @0, 0
    %2 = for [%0..%1] parallel {{
      %3: i32 = loop_index %2, 0
      %4: ref f32 = buffer_addr @0[%3]
      %5: f32 = load %4
{code}
    }}
  }}
}}
"
    )
    .parse()
    .unwrap()
}

/// Writes a product to the other array.
fn scale() -> Kernel {
    let code = "      %6: f32 = mul %5, %5\n      %7: ref f32 = buffer_addr @1[%3]\n      store %7, %6";
    kernel("scale", code)
}

/// Fuses two kernels, which are given these buffers.
fn fuse(
    (a, b): (&Kernel, &Kernel),
    buffers: [[u32; 2]; 2],
    temporaries: &[u32],
    fast_math: bool,
) -> Result<FusedKernel, String> {
    let count = 1 + buffers.iter().flatten().max().copied().unwrap() as usize;
    let part = |(kernel, buffers): (&'_ Kernel, [u32; 2])| {
        (kernel.clone(), buffers.into_iter().map(BufferId).collect::<Vec<_>>())
    };
    let parts: Vec<_> = [(a, buffers[0]), (b, buffers[1])].into_iter().map(part).collect();
    let plan = FusionPlan {
        parts: parts
            .iter()
            .map(|(kernel, buffers)| FusionPart { kernel, buffers: buffers.clone(), params: vec![0], files: vec![0] })
            .collect(),
        buffers: (0..count).map(|_| a.buffers[0].clone()).collect(),
        roots: 0,
        params: vec![Param { name: "n".into(), ty: Type::Scalar(Scalar::I32) }],
        temporaries: temporaries.iter().copied().map(BufferId).collect::<BTreeSet<_>>(),
        fast_math,
        vectorizes: true,
    };
    let mut fused = fuse_kernels(&plan)?;
    assert_kernel(&fused.kernel, "fuse_kernels");
    renumber(&mut fused.kernel.body);
    Ok(fused)
}

#[test]
fn bodies_are_concatenated() {
    let fused = fuse((&scale(), &scale()), [[0, 1], [1, 2]], &[], false).unwrap();
    let text = fused.kernel.to_string();
    assert_eq!((text.matches("for [").count(), text.matches("store").count(), fused.zeros), (1, 2, 0), "{text}");
    assert!(fused.kernel.name == "scale+scale" && fused.removed.is_empty());
}

#[test]
fn temporaries_become_values() {
    let fused = fuse((&scale(), &scale()), [[0, 1], [1, 2]], &[1], false).unwrap();
    let text = fused.kernel.to_string();
    assert_eq!((text.matches("store").count(), text.matches("load").count()), (1, 1), "{text}");
    assert_eq!(fused.removed, BTreeSet::from([BufferId(1)]));
    // It is read before it is set.
    let fused = fuse((&scale(), &scale()), [[0, 1], [1, 2]], &[0], false).unwrap();
    assert!(fused.removed.is_empty());
}

#[test]
fn floats_of_different_loops_are_separated() {
    let fused = fuse((&scale(), &scale()), [[0, 1], [1, 2]], &[1], true).unwrap();
    let text = fused.kernel.to_string();
    assert_eq!((fused.zeros, text.matches(" xor ").count()), (2, 1), "{text}");
}

#[test]
fn conflicts_and_effects_are_refused() {
    let next = kernel(
        "next",
        "      %6: i32 = const 1
      %7: i32 = add %3, %6
      %8: ref f32 = buffer_addr @1[%7]
      store %8, %5",
    );
    let refused = |a: &Kernel, b: &Kernel, buffers| fuse((a, b), buffers, &[], false).unwrap_err();
    assert!(refused(&scale(), &next, [[0, 1], [0, 1]]).contains("not only at the element"));
    assert!(refused(&next, &scale(), [[0, 1], [1, 2]]).contains("not only at the element"));
    // Other arrays.
    assert!(fuse((&scale(), &next), [[0, 1], [0, 2]], &[], false).is_ok());
    let prints = kernel("prints", "      print(%5)");
    assert!(refused(&scale(), &prints, [[0, 1], [0, 1]]).contains("`prints` prints"));
    let sums = "      %6: f32 = add %5, %5\n      %7: f32 = add %6, %5\n      store %4, %7";
    let sums = kernel("sums", sums);
    assert!(fuse((&scale(), &sums), [[0, 1], [1, 2]], &[], false).is_ok());
    assert!(fuse((&scale(), &sums), [[0, 1], [1, 2]], &[], true).unwrap_err().contains("adds several floats"));
}

/// Folds the elements of its first array into an element of the second one.
fn fold(op: &str) -> Kernel {
    let mut text = kernel("fold", "      reduce 0, %5").to_string();
    text = text.replace("    %2 = for", "    %8: ref f32 = buffer_addr @1[%0]\n    %2 = for");
    text.replace("parallel {", &format!("parallel reductions({op} %8) {{")).parse().unwrap()
}

#[test]
fn folds_whose_order_does_not_matter_are_fused() {
    let fused = fuse((&scale(), &fold("max")), [[0, 1], [1, 2]], &[1], false).unwrap();
    let text = fused.kernel.to_string();
    assert!(text.contains("reductions(max") && fused.removed.len() == 1, "{text}");
    let fused = fuse((&fold("min"), &fold("max")), [[0, 1], [0, 2]], &[], false).unwrap();
    let text = fused.kernel.to_string();
    assert!(text.contains("reduce 0") && text.contains("reduce 1"), "{text}");
    let refused = |a: &Kernel, b: &Kernel, buffers| fuse((a, b), buffers, &[], false).unwrap_err();
    assert!(refused(&scale(), &fold("add"), [[0, 1], [1, 2]]).contains("floats of all iterations"));
    // The other loop uses the result.
    assert!(refused(&fold("max"), &scale(), [[0, 1], [1, 2]]).contains("all iterations are folded"));
    assert!(refused(&fold("max"), &fold("max"), [[0, 1], [0, 1]]).contains("all iterations are folded"));
}

#[test]
fn iterations_are_sums_of_arguments() {
    let found = iterations_of(&scale()).unwrap();
    assert_eq!((found.len(), found[0].len(), found[0][0].2), (1, 1, Scalar::I32));
    assert!(iterations_of(&Kernel::default()).is_err());
}
