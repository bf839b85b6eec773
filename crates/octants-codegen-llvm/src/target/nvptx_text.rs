//! Replaces PTX instructions that NVIDIA's assembler miscompiles by equivalent ones.
//!
//! Bugs of ptxas 13.0, all found by random programs:
//!
//! - It assumes that signed negations and absolute values do not overflow: after `neg.s16` or `abs.s16`, -32768 is
//!   32768 in the following instructions.
//! - On chips with three-operand minimum and maximum instructions, it drops the negation of an operand: in `max.s32` of
//!   `max.s32` of a `neg.s32`, in `max.u32` of `max.u32` of a `sub.u32` from zero, and in the same with 16 bits.
//! - After a branch on `i == constant`, it drops the complement of `i` in `and`, `or` and `xor`: where `i` is 0,
//!   `~i & 5` becomes 0. Fixed in ptxas 13.5.
//! - If only one half of the result of an `add.s16x2` with a constant is used, it adds 0. Fixed in ptxas 13.5.
//!
//! Complements by `lop3`, negations as such a complement plus one, and separate additions of the halves are compiled
//! correctly.

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
        "neg.s32" => Some(in_words(to, from, 32, true)),
        "not.b32" => Some(in_words(to, from, 32, false)),
        "neg.s16" => Some(in_words(to, from, 16, true)),
        "not.b16" => Some(in_words(to, from, 16, false)),
        // There is no three-operand minimum of 64 bits, and a subtraction is not a complement.
        "neg.s64" => Some(format!("\tsub.u64 \t{to}, 0, {from};\n")),
        "not.b64" => Some(format!("\tsub.u64 \t{to}, -1, {from};\n")),
        // The smaller of a number and its negation, as unsigned numbers.
        "abs.s16" if to != from => Some(format!("{}\tmin.u16 \t{to}, {to}, {from};\n", in_words(to, from, 16, true))),
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

/// The bitwise complement, or the negation, of a `bits`-bit register, computed in 32 bits.
fn in_words(to: &str, from: &str, bits: u32, negates: bool) -> String {
    let (begin, source, end) = match bits {
        32 => (String::new(), from, format!("mov.b32 \t{to}, %word;")),
        _ => (format!("\tcvt.u32.u{bits} \t%word, {from};\n"), "%word", format!("cvt.u{bits}.u32 \t{to}, %word;")),
    };
    let one = if negates { "\tadd.u32 \t%word, %word, 1;\n" } else { "" };
    format!("\t{{\n\t.reg .b32 \t%word;\n{begin}\tlop3.b32 \t%word, {source}, 0, 0, 0x0f;\n{one}\t{end}\n\t}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negations_and_complements_become_bitwise_operations() {
        let text = "$L__BB0_1:\n\tneg.s32 \t%r3, %r2;\n\tnot.b64 \t%rd2, %rd1;\n\tnot.pred \t%p2, %p1;\n\tneg.f32 \
                    \t%f2, %f1;\n\tret;\n";
        let want = "$L__BB0_1:\n\t{\n\t.reg .b32 \t%word;\n\tlop3.b32 \t%word, %r2, 0, 0, 0x0f;\n\tadd.u32 \t%word, \
                    %word, 1;\n\tmov.b32 \t%r3, %word;\n\t}\n\tsub.u64 \t%rd2, -1, %rd1;\n\tnot.pred \t%p2, \
                    %p1;\n\tneg.f32 \t%f2, %f1;\n\tret;\n";
        assert_eq!(replace_miscompiled(text), want);
        let half = "\t{\n\t.reg .b32 \t%word;\n\tcvt.u32.u16 \t%word, %rs1;\n\tlop3.b32 \t%word, %word, 0, 0, \
                    0x0f;\n\tadd.u32 \t%word, %word, 1;\n\tcvt.u16.u32 \t%rs2, %word;\n\t}\n";
        assert_eq!(replace_miscompiled("\tneg.s16 \t%rs2, %rs1;\n"), half);
        let absolute = format!("{half}\tmin.u16 \t%rs2, %rs2, %rs1;\n");
        assert_eq!(replace_miscompiled("\tabs.s16 \t%rs2, %rs1;\n"), absolute);
    }

    #[test]
    fn packed_additions_become_two() {
        let want = "\t{\n\t.reg .b16 \t%low<2>, %high<2>;\n\tmov.b32 \t{%low0, %high0}, %r5;\n\
                    \tmov.b32 \t{%low1, %high1}, 65536;\n\tadd.s16 \t%low0, %low0, %low1;\n\
                    \tadd.s16 \t%high0, %high0, %high1;\n\tmov.b32 \t%r7, {%low0, %high0};\n\t}\n";
        assert_eq!(replace_miscompiled("\tadd.s16x2 \t%r7, %r5, 65536;\n"), want);
    }
}
