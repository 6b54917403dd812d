//! The promise of the report: the same records give the same bytes, whole or partial, and its numbers are right.

mod synthetic;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lifelong::report::{self, ReportData};
use lifelong::store::RunReader;
use synthetic::{LARGE, Run, SMALL, folder};

fn write(dir: &Path) {
    let data = ReportData::build(&RunReader::open(dir).unwrap()).unwrap();
    report::write_files(&data, &dir.join("report")).unwrap();
}

/// Every file of a report, the times taken out.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    fs::read_dir(dir.join("report"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name() != "timing.csv")
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let bytes = fs::read(entry.path()).unwrap();
            let bytes = if name == "index.html" { without_times(&String::from_utf8(bytes).unwrap()) } else { bytes };
            (name, bytes)
        })
        .collect()
}

fn without_times(page: &str) -> Vec<u8> {
    let (before, rest) = page.split_once("<!-- times:begin").unwrap();
    let (_, after) = rest.split_once("<!-- times:end -->").unwrap();
    format!("{before}{after}").into_bytes()
}

#[test]
fn view_me() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("large");
    let _ = fs::remove_dir_all(&dir);
    let quick = folder();
    Run::new(LARGE).execute(quick.path(), usize::MAX);
    report::write(quick.path()).unwrap();
    fs::create_dir_all(dir.join("report")).unwrap();
    for entry in fs::read_dir(quick.path().join("report")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.join("report").join(entry.file_name())).unwrap();
    }
    let quick = folder();
    Run::new(SMALL).execute(quick.path(), 2000);
    write(quick.path());
    fs::copy(quick.path().join("report/index.html"), dir.join("report/partial.html")).unwrap();
    let _ = contents(quick.path());
}
