//! Register limits of functions. If the text asks for a minimum number of blocks per multiprocessor, functions get
//! fewer registers and more blocks fit. This helps code that waits for memory, unless values spill.
//!
//! [`request_occupancy`] requests the largest worthwhile number of blocks, [`spill`] reads from the assembler's log
//! which functions spilled, and [`relax`] restores the registers of these.

/// Target number of resident threads per multiprocessor: 64 registers each.
const TARGET_THREADS: u32 = 1024;
/// Maximum bytes that a function may spill to reach that occupancy. On an H200, sorts and solvers that spill up to this
/// much ran faster than with more registers.
const FEW: u32 = 64;

/// Functions of more lines than this are long: assembling them again would take seconds.
const LONG: usize = 3000;

const ENTRY: &str = ".entry ";
const THREADS: &str = ".maxntid ";
const BLOCKS: &str = ".minnctapersm ";

/// A function whose requested occupancy may be reduced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OccupancyRequest {
    name: String,
    /// The line of the text, and its original content.
    line: usize,
    asked: String,
}

/// The lines of a text with higher requested occupancy, and the changed functions; `None` if there are none. Functions
/// that request one block need all registers, and keep them. Long functions, which would spill, keep theirs too.
pub(crate) fn request_occupancy(text: &str) -> Option<(Vec<String>, Vec<OccupancyRequest>)> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let entries: Vec<usize> = (0..lines.len()).filter(|n| lines[*n].contains(ENTRY)).collect();
    let ends = entries.iter().skip(1).copied().chain([lines.len()]);
    let mut requests = Vec::new();
    for (begin, end) in entries.iter().copied().zip(ends).filter(|(begin, end)| end - begin < LONG) {
        let name = lines[begin].split(ENTRY).nth(1).unwrap_or_default();
        let name = name.chars().take_while(|c| *c != '(' && !c.is_whitespace()).collect();
        let number = |prefix| {
            let (line, text) = (begin..end).find_map(|n| Some((n, lines[n].trim().strip_prefix(prefix)?)))?;
            Some((line, text.split(',').next()?.trim().parse::<u32>().ok()?))
        };
        let (Some((_, threads)), Some((line, blocks))) = (number(THREADS), number(BLOCKS)) else { continue };
        let most = TARGET_THREADS / threads.max(1);
        if blocks > 1 && blocks < most {
            let asked = std::mem::replace(&mut lines[line], format!("{BLOCKS}{most}"));
            requests.push(OccupancyRequest { name, line, asked });
        }
    }
    (!requests.is_empty()).then_some((lines, requests))
}

/// The functions that spill too much, by the assembler's log.
pub(crate) fn spill(log: &str, requests: &[OccupancyRequest]) -> Vec<OccupancyRequest> {
    let mut lines = log.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        let Some((_, name)) = line.split_once("Function properties for ") else { continue };
        let words: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let stored = words.windows(4).find(|w| w[1..] == ["bytes", "spill", "stores,"]);
        if stored.and_then(|w| w[0].parse::<u32>().ok()).is_some_and(|bytes| bytes > FEW) {
            found.extend(requests.iter().filter(|c| c.name == name.trim().trim_matches('\'')).cloned());
        }
    }
    found
}

/// The text with the original request of these functions restored.
pub(crate) fn relax(mut lines: Vec<String>, spilling: Vec<OccupancyRequest>) -> String {
    for function in spilling {
        lines[function.line] = function.asked;
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = ".visible .entry one(\n)\n.maxntid 32\n.minnctapersm 20\n{\n}\n.visible .entry two(\n)\n\
                        .maxntid 256\n.minnctapersm 2\n{\n}\n.visible .entry three(\n)\n.maxntid 256\n.minnctapersm 1\n{\n}";

    #[test]
    fn occupancy_requests_that_cause_spills_are_relaxed() {
        let (lines, requests) = request_occupancy(TEXT).expect("two functions have room to spare");
        assert_eq!(requests.iter().map(|c| &c.name[..]).collect::<Vec<_>>(), ["one", "two"]);
        assert!(lines.join("\n").contains(".minnctapersm 32\n") && lines.join("\n").contains(".minnctapersm 4\n"));
        let log = "ptxas info    : Function properties for one\n    16 bytes stack frame, 16 bytes spill stores, 12 \
                   bytes spill loads\nptxas info    : Function properties for two\n    300 bytes stack frame, 288 \
                   bytes spill stores, 284 bytes spill loads\n";
        let spilling = spill(log, &requests);
        assert_eq!(spilling, requests[1..]);
        assert_eq!(relax(lines, spilling), TEXT.replacen("minnctapersm 20", "minnctapersm 32", 1));
    }

    #[test]
    fn text_without_spare_registers_is_unchanged() {
        assert_eq!(request_occupancy(".visible .entry all(\n)\n.maxntid 256\n.minnctapersm 4\n{\n}"), None);
    }
}
