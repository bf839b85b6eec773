//! PTX as text: taking entry points out of a module, to be a module of their own.
//!
//! The driver assembles a module as a whole when it is loaded. What few launches use is better kept apart.

/// Removes the entry points `symbols` from a module; a module for each, with all that is no entry point.
pub(super) fn cut_out(module: &mut String, symbols: &[&str]) -> Vec<String> {
    let (mut shared, mut kept) = (String::new(), String::new());
    let mut taken = vec![String::new(); symbols.len()];
    let mut to: Option<usize> = None;
    let mut inside = false;
    for line in module.split_inclusive('\n') {
        if let Some((_, rest)) = line.split_once(".entry ") {
            inside = true;
            to = symbols.iter().position(|s| rest.strip_prefix(s).is_some_and(|r| r.starts_with('(')));
        }
        match (inside, to) {
            (false, _) => shared += line,
            (true, None) => kept += line,
            (true, Some(i)) => taken[i] += line,
        }
        inside = inside && line.trim_end() != "}";
    }
    *module = format!("{shared}{kept}");
    taken.into_iter().map(|entry| shared.clone() + &entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_point_takes_along_what_all_share() {
        let before = ".version 8.0\n.func f()\n{\n\tret;\n}\n";
        let (a, b) = (".visible .entry k(\n)\n{\n\tcall f;\n}\n", ".visible .entry k_wide(\n)\n{\n\t{\n\t}\n}\n");
        let between = ".shared .align 16 .b8 memory[8];\n";
        let mut module = [before, a, between, b].concat();
        assert_eq!(cut_out(&mut module, &["k_wide"]), [[before, between, b].concat()]);
        assert_eq!(module, [before, between, a].concat());
    }
}
