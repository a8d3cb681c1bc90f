//! The documents name tests: each of them exists.

use std::{fs, path::Path};

/// The pieces of a line between backticks.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn every_test_that_a_document_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut named, mut missing) = (0, Vec::new());
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let document = entry.unwrap().path();
        for line in fs::read_to_string(&document).unwrap().lines().filter(|line| line.starts_with('|')) {
            let mut source = None;
            for word in code(line) {
                if Path::new(word).extension().is_some_and(|extension| extension == "rs") {
                    // Some documents count paths from `crates/`.
                    let file = [root.join("crates").join(word), root.join(word)].into_iter().find(|file| file.is_file());
                    if file.is_none() && word.contains('/') {
                        missing.push(format!("{}: {word}", document.display()));
                    }
                    source = file.map(|file| fs::read_to_string(file).unwrap());
                } else if let Some(source) = source
                    .as_ref()
                    .filter(|_| word.contains('_') && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'))
                {
                    named += 1;
                    if !source.contains(&format!("fn {word}(")) {
                        missing.push(format!("{}: {word}", document.display()));
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(named > 60, "only {named} tests are named");
}
