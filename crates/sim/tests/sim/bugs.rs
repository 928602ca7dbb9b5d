//! What guards the bugs that were found.

use std::{fs, path::Path};

/// The table in docs/TESTING.md names a test for each bug that was found.
#[test]
fn every_bug_that_was_found_has_its_test() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let text = fs::read_to_string(root.join("docs/TESTING.md")).unwrap();
    let (_, table) = text.split_once("### Bugs found, and what guards them").expect("the section is there");
    let table = table.split("\n#").next().unwrap();
    let names: Vec<&str> =
        table.lines().filter_map(|row| row.strip_suffix("` |")?.rsplit_once('`').map(|(_, name)| name)).collect();
    assert!(names.len() >= 11, "{names:?}");
    for name in names {
        let parts: Vec<&str> = name.split("::").collect();
        let [suite, file, test] = parts[..] else { panic!("{name} is no path of a test") };
        let dir = match suite {
            "engine" => "crates/store/tests/engine",
            "log" => "crates/segment/tests/log",
            "fjall" => "crates/metadata/src/fjall",
            _ => panic!("{name}: there is no suite {suite}"),
        };
        let code = fs::read_to_string(root.join(dir).join(format!("{file}.rs"))).expect(name);
        assert!(code.contains(&format!("fn {test}(")), "{name} is not there");
    }
}
