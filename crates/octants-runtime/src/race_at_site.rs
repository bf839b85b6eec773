//! Decodes a race that a running kernel detected from the record at its site.

use octants_artifact::{Site, SitePart};

use crate::race::{Race, RaceAccess, RaceKind, Touch};

impl Race {
    /// The race that a site reports with these values: the number of the text of each access, and the indices.
    pub(crate) fn at_site(site: &Site, values: &[u64]) -> Race {
        let mut values = values.iter();
        let mut buffer = String::new();
        let mut accesses = Vec::new();
        let (mut index, mut told_cure, mut group) = (Vec::new(), None, None);
        for part in &site.parts {
            match part {
                SitePart::Text(name) if buffer.is_empty() => buffer.push_str(name),
                SitePart::Text(given) if told_cure.is_none() => told_cure = Some(given.clone()),
                SitePart::Text(given) => group = Some(given.clone()),
                SitePart::Choice(texts) => {
                    let number = values.next().map_or(0, |v| *v as u32 as usize);
                    let by = match (&group, accesses.is_empty()) {
                        (None, true) => "an iteration".into(),
                        (None, false) => "another iteration".into(),
                        (Some(group), true) => format!("one {group}"),
                        (Some(group), false) => format!("another {group}"),
                    };
                    accesses.push(access(texts.get(number).map_or("", String::as_str), &by));
                }
                SitePart::Value { .. } => index.push(values.next().map_or(0, |v| *v as i64)),
            }
        }
        let mut accesses = accesses.into_iter();
        let [first, second] = [(); 2].map(|()| accesses.next().unwrap_or_else(|| access("", "an iteration")));
        let fix = told_cure.unwrap_or_else(|| fix(first.touch, second.touch).into());
        let kind = if group.is_some() { RaceKind::Sections } else { RaceKind::Iterations };
        Race { kind, buffer, index: Some(index), first, second, fix }
    }
}

/// The access of a text such as `write a.py:3`.
fn access(text: &str, by: &str) -> RaceAccess {
    let (touch, at) = text.split_once(' ').unwrap_or((text, ""));
    let touch = match touch {
        "read" => Touch::Read,
        "update" => Touch::Update,
        _ => Touch::Write,
    };
    RaceAccess { touch, at: at.into(), by: by.into(), launched_at: None }
}

fn fix(first: Touch, second: Touch) -> &'static str {
    match (first, second) {
        (Touch::Write, Touch::Write) => {
            "let each iteration write different elements, update them by one atomic operation such as \
             `qd.atomic_add`, or put `qd.loop_config(serialize=True)` above the loop"
        }
        (Touch::Update, _) | (_, Touch::Update) => {
            "use the value that the atomic operation returns, or move the plain access to a separate loop"
        }
        _ => {
            "read from a copy, write in a separate loop after this one, or put `qd.loop_config(serialize=True)` \
             above the loop"
        }
    }
}

#[cfg(test)]
mod tests {
    use octants_artifact::{ScalarKind, SiteKind};

    use super::*;

    #[test]
    fn a_race_is_described_from_its_site_and_values() {
        let texts = vec!["read a.py:2".into(), "write a.py:3".into(), "update a b.py:4".into()];
        let value = SitePart::Value { kind: ScalarKind::I64, shape: vec![], format: None };
        let parts = vec![SitePart::Text("x".into()), SitePart::Choice(texts.clone()), SitePart::Choice(texts), value];
        let site = Site { kind: SiteKind::Race, parts, location: "a.py:1".into() };
        let race = Race::at_site(&site, &[0, 2, 7]);
        assert_eq!((race.buffer.as_str(), race.index), ("x", Some(vec![7])));
        assert_eq!((race.first.touch, race.first.at.as_str()), (Touch::Read, "a.py:2"));
        assert_eq!((race.second.touch, race.second.at.as_str()), (Touch::Update, "a b.py:4"));
        assert!(race.fix.starts_with("use the value"), "{}", race.fix);
    }
}
