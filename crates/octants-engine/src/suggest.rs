//! "Did you mean": the known name closest to an unknown one.

/// The name among `names` that a user most likely meant by `wrong`, if any is near enough.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = wrong.chars().count();
    let limit = if length < 3 { 0 } else { (length / 3).max(1) };
    names
        .into_iter()
        .map(|name| (distance(&wrong.to_lowercase(), &name.to_lowercase()), name))
        .filter(|(d, name)| *d <= limit || (wrong.len() > 3 && (name.starts_with(wrong) || wrong.starts_with(name))))
        .min_by_key(|(d, _)| *d)
        .map(|(_, name)| name)
}

/// Edits (insert, delete, replace, swap of neighbors) from one word to another.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_near_misses_are_suggested() {
        let names = ["debug", "fast_math", "default_fp"];
        assert_eq!(nearest("fastmath", names), Some("fast_math"));
        assert_eq!(nearest("debgu", names), Some("debug"));
        assert_eq!(nearest("default", names), Some("default_fp"));
        assert_eq!(nearest("threads", names), None);
        assert_eq!(nearest("c", ["a", "b"]), None);
    }
}
