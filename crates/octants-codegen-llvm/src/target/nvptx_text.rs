//! Instructions of PTX that NVIDIA's assembler compiles to something else, written in another way.
//!
//! Faults of ptxas 13.0, all found by random programs:
//!
//! - It takes signed negations and absolute values for ones that do not overflow: after `neg.s16` or `abs.s16`, -32768
//!   is 32768 in the following instructions. On chips with minima and maxima of three operands it also drops the
//!   negation of an operand: `max.s32` of `max.s32` of a `neg.s32`.
//! - Where a branch has decided that a register equals a constant, it drops the complement of this register from
//!   `and`, `or` and `xor`: behind `i == 0`, `~i & 5` is 0. ptxas 13.5 does not.
//! - If only one half of an `add.s16x2` is used and one operand is a constant, it adds 0. ptxas 13.5 does not.
//!
//! Unsigned subtractions and additions of single halves are compiled as they are written.

/// PTX with these instructions replaced.
pub(super) fn replace_miscompiled(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match replaced(line.trim()) {
            Some(other) => out.push_str(&other),
            None => out.push_str(line),
        }
    }
    out
}

fn replaced(line: &str) -> Option<String> {
    let (name, operands) = line.strip_suffix(';')?.split_once(char::is_whitespace)?;
    let (to, from) = operands.trim().split_once(", ")?;
    match name {
        "neg.s16" | "neg.s32" | "neg.s64" => {
            let bits = &name["neg.s".len()..];
            Some(format!("\tsub.u{bits} \t{to}, 0, {from};\n"))
        }
        "not.b16" | "not.b32" | "not.b64" => {
            let bits = &name["not.b".len()..];
            Some(format!("\tsub.u{bits} \t{to}, -1, {from};\n"))
        }
        // The smaller of a number and its negation, as unsigned numbers.
        "abs.s16" if to != from => Some(format!("\tsub.u16 \t{to}, 0, {from};\n\tmin.u16 \t{to}, {to}, {from};\n")),
        "add.s16x2" => {
            let (a, b) = from.split_once(", ")?;
            Some(format!(
                "\t{{\n\t.reg .b16 \t%low<2>, %high<2>;\n\tmov.b32 \t{{%low0, %high0}}, {a};\n\tmov.b32 \t{{%low1, \
                 %high1}}, {b};\n\tadd.s16 \t%low0, %low0, %low1;\n\tadd.s16 \t%high0, %high0, %high1;\n\tmov.b32 \
                 \t{to}, {{%low0, %high0}};\n\t}}\n"
            ))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_negations_and_complements_become_unsigned_subtractions() {
        let text = "$L__BB0_1:\n\tneg.s32 \t%r3, %r2;\n\tabs.s16 \t%rs2, %rs1;\n\tnot.b64 \t%rd2, %rd1;\n\tnot.pred \
                    \t%p2, %p1;\n\tneg.f32 \t%f2, %f1;\n\tret;\n";
        let want = "$L__BB0_1:\n\tsub.u32 \t%r3, 0, %r2;\n\tsub.u16 \t%rs2, 0, %rs1;\n\tmin.u16 \t%rs2, %rs2, %rs1;\n\
                    \tsub.u64 \t%rd2, -1, %rd1;\n\tnot.pred \t%p2, %p1;\n\tneg.f32 \t%f2, %f1;\n\tret;\n";
        assert_eq!(replace_miscompiled(text), want);
    }

    #[test]
    fn packed_additions_become_two() {
        let want = "\t{\n\t.reg .b16 \t%low<2>, %high<2>;\n\tmov.b32 \t{%low0, %high0}, %r5;\n\
                    \tmov.b32 \t{%low1, %high1}, 65536;\n\tadd.s16 \t%low0, %low0, %low1;\n\
                    \tadd.s16 \t%high0, %high0, %high1;\n\tmov.b32 \t%r7, {%low0, %high0};\n\t}\n";
        assert_eq!(replace_miscompiled("\tadd.s16x2 \t%r7, %r5, 65536;\n"), want);
    }
}
