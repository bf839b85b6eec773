//! Instructions of PTX that NVIDIA's assembler compiles to something else, written in another way.
//!
//! ptxas 13.0 takes signed negations and absolute values for ones that do not overflow: after `neg.s16` or `abs.s16`,
//! -32768 is 32768 in the following instructions. On chips with minima and maxima of three operands it also drops the
//! negation of an operand: `max.s32` of `max.s32` of a `neg.s32`. Unsigned subtractions from zero are compiled as they
//! are written.

/// PTX with these instructions replaced.
pub(super) fn replace_negations(text: &str) -> String {
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
        // The smaller of a number and its negation, as unsigned numbers.
        "abs.s16" if to != from => Some(format!("\tsub.u16 \t{to}, 0, {from};\n\tmin.u16 \t{to}, {to}, {from};\n")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_negations_become_unsigned_subtractions() {
        let text = "$L__BB0_1:\n\tneg.s32 \t%r3, %r2;\n\tabs.s16 \t%rs2, %rs1;\n\tneg.f32 \t%f2, %f1;\n\tret;\n";
        let want = "$L__BB0_1:\n\tsub.u32 \t%r3, 0, %r2;\n\tsub.u16 \t%rs2, 0, %rs1;\n\tmin.u16 \t%rs2, %rs2, %rs1;\n\
                    \tneg.f32 \t%f2, %f1;\n\tret;\n";
        assert_eq!(replace_negations(text), want);
    }
}
