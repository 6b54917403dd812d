//! The wording of every prompt is pinned: one moved space moves results. A change here is a change of a method: say so in
//! the commit, and raise the version of the method's layout.

use std::path::Path;

#[test]
fn prompts_are_the_pinned_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/prompts");
    let benchmarks = ["bigcodebench_complete.txt", "bigcodebench_instruct.txt", "humaneval.txt"];
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !benchmarks.contains(&name.as_str()))
        .collect();
    names.sort();
    let digest = |name: &String| blake3::hash(&std::fs::read(folder.join(name)).unwrap()).to_hex()[..8].to_string();
    let lines: Vec<String> = names.iter().map(|name| format!("{} {name}", digest(name))).collect();
    assert_eq!(lines.join("\n"), PINNED.trim());
}

const PINNED: &str = "
";
