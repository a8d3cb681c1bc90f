//! Looks for planted words, in whatever form they may have left the process.

use std::{io::Read, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use flate2::read::GzDecoder;

/// How every planted word begins; the rest tells where it was planted.
pub const CANARY: &str = "kanarie-7f3b";

/// First bytes of what zstd writes.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// The word for one place.
pub fn canary(place: &str) -> String {
    format!("{CANARY}-{place}")
}

/// A piece of text around the first planted word, if there is one: as it is, in hexadecimal digits, as base64, or as base64 of
/// something that holds it anywhere.
pub fn find(text: &[u8]) -> Option<String> {
    let forms = [CANARY.to_owned(), hex(CANARY)].into_iter().chain((0..3).map(base64_at));
    let at = forms.filter_map(|form| text.windows(form.len()).position(|window| window.eq_ignore_ascii_case(form.as_bytes()))).min()?;
    let around = &text[at.saturating_sub(120)..text.len().min(at + 120)];
    Some(String::from_utf8_lossy(around).into_owned())
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

/// The characters of base64 that do not depend on what stands before and behind, with `shift` bytes before.
fn base64_at(shift: usize) -> String {
    let text = BASE64_STANDARD.encode([&vec![0; shift][..], CANARY.as_bytes()].concat());
    let whole = (shift + CANARY.len()) * 8 / 6;
    text[(shift * 8).div_ceil(6)..whole].to_owned()
}

/// The same in a blob of the hub's state, which may be compressed.
#[expect(clippy::disallowed_methods, reason = "the hub wrote it, so it is no bomb")]
pub fn find_in_blob(blob: &[u8]) -> Option<String> {
    assert!(!blob.starts_with(&ZSTD), "this search cannot read zstd yet");
    let mut plain = Vec::new();
    if blob.starts_with(&[0x1f, 0x8b]) {
        GzDecoder::new(blob).read_to_end(&mut plain).unwrap();
    }
    find(blob).or_else(|| find(&plain))
}

/// The same in the content and the names of all files below a folder; also how many there were.
pub fn find_in_files(folder: &Path) -> (usize, Option<String>) {
    let mut files = 0;
    let mut found = None;
    for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        found = found.or_else(|| find(path.as_os_str().as_encoded_bytes()));
        if path.is_dir() {
            let (more, there) = find_in_files(&path);
            files += more;
            found = found.or(there);
        } else {
            files += 1;
            found = found.or_else(|| find(&std::fs::read(&path).unwrap()));
        }
    }
    (files, found)
}

/// What the operating system shows anybody about a process: its arguments and its environment.
pub fn find_in_process(id: u32) -> Option<String> {
    ["cmdline", "environ"].iter().find_map(|file| {
        let text = std::fs::read(format!("/proc/{id}/{file}")).unwrap();
        assert!(text.len() > 20, "{file}");
        find(&text)
    })
}

#[test]
fn every_form_of_a_planted_word_is_found() {
    let word = canary("control");
    let folder = std::env::temp_dir().join(format!("holdfast-search-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("below")).unwrap();
    let log = folder.join("below").join("hub.log");
    let gzip = |text: &str| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut encoder, text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    for (form, text) in [
        ("as it is", word.clone()),
        ("in capitals", word.to_uppercase()),
        ("as base64", BASE64_STANDARD.encode(&word)),
        ("one byte into base64", BASE64_STANDARD.encode(format!("x{word}y"))),
        ("two bytes into base64", BASE64_STANDARD.encode(format!("xx{word}yy"))),
        ("within JSON within base64", BASE64_STANDARD.encode(format!(r#"{{"auth":"{word}"}}"#))),
        ("in hexadecimal digits", hex(&word)),
    ] {
        std::fs::write(&log, format!("INFO line\nDEBUG value={text} more\n")).unwrap();
        let (files, found) = find_in_files(&folder);
        assert!(files == 1 && found.is_some_and(|found| found.contains("DEBUG")), "{form}");
        assert!(find_in_blob(&gzip(&format!("state {text}"))).is_some(), "{form}, compressed");
    }
    std::fs::write(&log, format!("INFO {} {}\n", CANARY.replace('-', "_"), BASE64_STANDARD.encode("canary-of-somebody-else"))).unwrap();
    assert_eq!(find_in_files(&folder), (1, None), "nothing else is found");
    std::fs::rename(&log, folder.join(&word)).unwrap();
    assert!(find_in_files(&folder).1.is_some(), "a name of a file");
    std::fs::remove_dir_all(&folder).unwrap();
}
