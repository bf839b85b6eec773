//! Rules on the structure of crates, checked with the source text of all crates.
//!
//! 1. No import cycle among the modules of a crate. A module imports another one when it names a path below `crate::`,
//!    `super::` or `self::` that leads there, in a `use` or in code. A module that names its own children does not
//!    count, nor does code for tests.
//! 2. No function over 100 lines.
//! 3. No file over 600 lines.
//!
//! Exceptions are listed. The lists only shrink: an unnecessary entry fails the test.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

const MOST_FUNCTION_LINES: usize = 100;
const MOST_FILE_LINES: usize = 600;

/// Modules that are part of an import cycle: crate and module.
const CYCLES: &[(&str, &[&str])] = &[];

/// Functions over [`MOST_FUNCTION_LINES`]: file and name.
const LONG_FUNCTIONS: &[(&str, &[&str])] = &[];

/// Files over [`MOST_FILE_LINES`].
const LONG_FILES: &[&str] = &[];

/// A path below the crate's root, such as `["stream", "launch"]` for `crate::stream::launch`.
type ModulePath = Vec<String>;

/// A Rust file below the `src` of a crate.
struct Source {
    /// The crate's name.
    package: String,
    /// From the repository's root.
    path: String,
    /// The file's module; empty for the crate's root.
    module: ModulePath,
    text: String,
}

impl Source {
    fn tokens(&self) -> Vec<TokenTree> {
        let tokens: TokenStream = self.text.parse().unwrap_or_else(|e| panic!("{}: {e}", self.path));
        without_tests(tokens.into_iter().collect())
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn sources() -> Vec<Source> {
    fn collect(dir: &Path, out: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, out);
            } else if path.extension().is_some_and(|e| e == "rs") {
                out.push(path);
            }
        }
    }
    let root = root();
    let mut out = Vec::new();
    for package in std::fs::read_dir(root.join("crates")).unwrap() {
        let package = package.unwrap().path();
        let src = package.join("src");
        let mut files = Vec::new();
        if src.is_dir() {
            collect(&src, &mut files);
        }
        for file in files {
            out.push(Source {
                package: package.file_name().unwrap().to_string_lossy().into_owned(),
                path: file.strip_prefix(&root).unwrap().to_string_lossy().into_owned(),
                module: module_of(file.strip_prefix(&src).unwrap()),
                text: std::fs::read_to_string(&file).unwrap(),
            });
        }
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}

/// The module of a file, by its path below `src`.
fn module_of(file: &Path) -> ModulePath {
    let mut module: ModulePath =
        file.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let is_named_by_folder = |last: &String| matches!(last.as_str(), "mod" | "lib" | "main");
    if module.last().is_some_and(is_named_by_folder) {
        module.pop();
    }
    module
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == wanted)
}

fn is_ident(token: Option<&TokenTree>, wanted: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(i)) if i == wanted)
}

fn group(token: Option<&TokenTree>, delimiter: Delimiter) -> Option<&Group> {
    match token {
        Some(TokenTree::Group(g)) if g.delimiter() == delimiter => Some(g),
        _ => None,
    }
}

/// `::` is at this position.
fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':')
}

/// The items without those behind `#[cfg(test)]`.
fn without_tests(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    let is_of_test = |at: usize| {
        is_punct(tokens.get(at), '#')
            && group(tokens.get(at + 1), Delimiter::Bracket)
                .is_some_and(|attribute| attribute.stream().to_string().replace(' ', "") == "cfg(test)")
    };
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !is_of_test(at) {
            out.push(tokens[at].clone());
            at += 1;
            continue;
        }
        // The item ends with its block or its semicolon.
        let ends = |t: &TokenTree| is_punct(Some(t), ';') || group(Some(t), Delimiter::Brace).is_some();
        at += tokens[at..].iter().position(ends).unwrap_or(tokens.len() - at - 1) + 1;
    }
    out
}

/// The paths of a `use` tree, or of a path in an expression, that begins at `at`: each is `prefix` and what follows.
fn paths_from(tokens: &[TokenTree], mut at: usize, mut prefix: Vec<String>, out: &mut Vec<Vec<String>>) {
    while let Some(TokenTree::Ident(name)) = tokens.get(at) {
        prefix.push(name.to_string());
        if !is_path_separator(tokens, at + 1) {
            break;
        }
        at += 3;
    }
    let Some(branches) = group(tokens.get(at), Delimiter::Brace).filter(|_| is_path_separator(tokens, at - 2)) else {
        return out.push(prefix);
    };
    let branches: Vec<TokenTree> = branches.stream().into_iter().collect();
    for branch in branches.split(|t| is_punct(Some(t), ',')).filter(|branch| !branch.is_empty()) {
        paths_from(branch, 0, prefix.clone(), out);
    }
}

/// Collects the paths that begin with `crate`, `super` or `self`, each as a path below the crate's root. `module` is
/// where the tokens are.
fn named_paths(tokens: &[TokenTree], module: &ModulePath, out: &mut Vec<ModulePath>) {
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(inner) => {
                // Paths in an inline module are relative to it.
                let name = tokens.get(at.wrapping_sub(1)).filter(|_| at >= 2 && is_ident(tokens.get(at - 2), "mod"));
                let below: Vec<TokenTree> = inner.stream().into_iter().collect();
                let module: ModulePath = module.iter().cloned().chain(name.map(ToString::to_string)).collect();
                named_paths(&below, &module, out);
            }
            TokenTree::Ident(first) if is_path_separator(tokens, at + 1) => {
                let is_inner = at >= 2 && is_path_separator(tokens, at - 2);
                // `pub(in crate::a)` imports nothing.
                let is_visibility = at == 1 && is_ident(tokens.first(), "in");
                if is_inner || is_visibility || !["crate", "super", "self"].iter().any(|base| first == base) {
                    continue;
                }
                let mut paths = Vec::new();
                paths_from(tokens, at, Vec::new(), &mut paths);
                out.extend(paths.into_iter().map(|path| from_root(path, module)));
            }
            _ => {}
        }
    }
}

/// Resolves `crate`, `super` and `self` in a path of a module.
fn from_root(path: Vec<String>, module: &ModulePath) -> ModulePath {
    let mut out = module.clone();
    for part in path {
        match part.as_str() {
            "crate" => out.clear(),
            "super" => _ = out.pop(),
            "self" => {}
            _ => out.push(part),
        }
    }
    out
}

/// The re-exports of the crate's root: name and path.
fn reexports(root: &[TokenTree]) -> BTreeMap<String, ModulePath> {
    let mut paths = Vec::new();
    for at in 0..root.len() {
        if is_ident(root.get(at), "use") {
            paths_from(root, at + 1, Vec::new(), &mut paths);
        }
    }
    let paths = paths.into_iter().map(|path| from_root(path, &Vec::new()));
    paths.filter_map(|path| Some((path.last()?.clone(), path))).collect()
}

/// For each module of a crate, the modules that it imports, except its children.
fn imports(files: &[&Source]) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let known: BTreeSet<&ModulePath> = files.iter().map(|f| &f.module).filter(|m| !m.is_empty()).collect();
    let root = files.iter().find(|f| f.module.is_empty()).map(|f| reexports(&f.tokens())).unwrap_or_default();
    let mut out = BTreeMap::new();
    for file in files.iter().filter(|f| !f.module.is_empty()) {
        let mut paths = Vec::new();
        named_paths(&file.tokens(), &file.module, &mut paths);
        let module_named = |path: ModulePath| {
            let is_reexported = path.first().is_some_and(|first| !known.contains(&vec![first.clone()]));
            let path = match path.first().filter(|_| is_reexported).and_then(|first| root.get(first)) {
                Some(real) => real.iter().cloned().chain(path.into_iter().skip(1)).collect(),
                None => path,
            };
            (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|prefix| known.contains(prefix))
        };
        let imported = paths.into_iter().filter_map(module_named).filter(|m| !m.starts_with(&file.module));
        out.insert(file.module.clone(), imported.collect());
    }
    out
}

/// The modules that import themselves through others, and a shortest way for each.
fn cycles(imports: &BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    for start in imports.keys() {
        let mut came_from: BTreeMap<&ModulePath, &ModulePath> = BTreeMap::new();
        let mut ahead = std::collections::VecDeque::from([start]);
        while let Some(module) = ahead.pop_front().filter(|_| !came_from.contains_key(start)) {
            for next in &imports[module] {
                if !came_from.contains_key(next) {
                    came_from.insert(next, module);
                    ahead.push_back(next);
                }
            }
        }
        let Some(mut at) = came_from.get(start).copied() else { continue };
        let mut way = vec![start.join("::")];
        while at != start {
            way.push(at.join("::"));
            at = came_from[at];
        }
        way.push(start.join("::"));
        way.reverse();
        out.insert(start.join("::"), way.join(" -> "));
    }
    out
}

/// All functions, including nested ones: name, and number of lines from `fn` to the closing brace.
fn functions(tokens: &[TokenTree], out: &mut Vec<(String, usize)>) {
    for (at, token) in tokens.iter().enumerate() {
        if let TokenTree::Group(inner) = token {
            functions(&inner.stream().into_iter().collect::<Vec<_>>(), out);
        }
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1).filter(|_| is_ident(Some(token), "fn")) else { continue };
        let rest = tokens[at..].iter().take_while(|t| !is_punct(Some(t), ';'));
        if let Some(body) = rest.filter_map(|t| group(Some(t), Delimiter::Brace)).next() {
            out.push((name.to_string(), body.span_close().end().line - token.span().start().line + 1));
        }
    }
}

/// Fails if the violations differ from the allowed ones.
fn compare(rule: &str, found: &BTreeMap<String, String>, allowed: BTreeSet<String>) {
    let new: Vec<&String> = found.iter().filter(|(name, _)| !allowed.contains(*name)).map(|(_, text)| text).collect();
    let gone: Vec<_> = allowed.iter().filter(|name| !found.contains_key(*name)).collect();
    assert!(new.is_empty(), "{rule}:\n{}", new.into_iter().cloned().collect::<Vec<_>>().join("\n"));
    assert!(gone.is_empty(), "no longer there, take it off the list: {gone:?}");
}

/// The entries of a list, each with the name that it belongs to.
fn flat(list: &[(&str, &[&str])]) -> BTreeSet<String> {
    list.iter().flat_map(|(owner, names)| names.iter().map(move |name| format!("{owner}: {name}"))).collect()
}

#[test]
fn modules_of_a_crate_have_no_import_cycles() {
    let sources = sources();
    let packages: BTreeSet<&String> = sources.iter().map(|s| &s.package).collect();
    let mut found = BTreeMap::new();
    for package in packages {
        let files: Vec<&Source> = sources.iter().filter(|s| s.package == *package).collect();
        for (module, way) in cycles(&imports(&files)) {
            found.insert(format!("{package}: {module}"), format!("{package}: {way}"));
        }
    }
    compare("import cycles", &found, flat(CYCLES));
}

#[test]
fn functions_are_short() {
    let mut found = BTreeMap::new();
    for source in sources() {
        let mut all = Vec::new();
        functions(&source.tokens(), &mut all);
        for (name, lines) in all.into_iter().filter(|(_, lines)| *lines > MOST_FUNCTION_LINES) {
            found.insert(format!("{}: {name}", source.path), format!("{}: {name} has {lines} lines", source.path));
        }
    }
    compare("functions that are too long", &found, flat(LONG_FUNCTIONS));
}

#[test]
fn files_are_short() {
    let lines = |s: &Source| s.text.lines().count();
    let long = sources().into_iter().filter(|s| lines(s) > MOST_FILE_LINES);
    let found = long.map(|s| (s.path.clone(), format!("{} has {} lines", s.path, lines(&s)))).collect();
    compare("files that are too long", &found, LONG_FILES.iter().map(ToString::to_string).collect());
}

/// The finder of imports, on text that has one of each kind.
#[test]
fn imports_are_found_in_use_trees_and_in_code() {
    let source = |module: &[&str], text: &str| Source {
        package: "p".into(),
        path: module.join("/"),
        module: module.iter().map(ToString::to_string).collect(),
        text: text.into(),
    };
    let files = [
        source(&[], "mod a; mod b; mod c; mod d; pub use d::Thing;"),
        source(&["a"], "mod inner; use crate::{b::{X, Y}, c}; /* crate::d */ pub(in crate::d) fn f() {}"),
        source(&["a", "inner"], "use super::super::b::X; fn f() { mod m { use super::super::Z; } }"),
        source(
            &["b"],
            "fn f() -> &'static str { vec![self::g(crate::Thing::new())]; \"crate::a\" } use super::c as e;",
        ),
        source(&["c"], "#[cfg(test)] mod tests { use crate::a; } fn f() {}"),
        source(&["d"], "macro_rules! m { () => { $crate::c::f() } }"),
    ];
    let found = imports(&files.iter().collect::<Vec<_>>());
    let shown: Vec<String> = found
        .iter()
        .map(|(m, to)| format!("{}: {}", m.join("::"), to.iter().map(|t| t.join("::")).collect::<Vec<_>>().join(" ")))
        .collect();
    assert_eq!(shown, ["a: b c", "a::inner: a b", "b: c d", "c: ", "d: c"]);
    assert!(cycles(&found).is_empty());
    let circle = [
        source(&["a"], "use crate::b;"),
        source(&["b"], "fn f() { crate::c::g() }"),
        source(&["c"], "use super::a::{self, A};"),
    ];
    let found = cycles(&imports(&circle.iter().collect::<Vec<_>>()));
    assert_eq!(found["b"], "b -> c -> a -> b");
}
