//! The promise of the report: the same records give the same bytes, whole or partial, and its numbers are right.

mod synthetic;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use lifelong::report::{self, ReportData};
use lifelong::store::RunReader;
use synthetic::{Run, SMALL, folder};

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
fn the_same_records_give_the_same_bytes() {
    let run = Run::new(SMALL);
    let dir = folder();
    assert!(run.execute(dir.path(), usize::MAX));
    write(dir.path());
    let first = contents(dir.path());
    assert_eq!(first.len(), 30, "12 tables twice, 5 drawings and the page: {:?}", first.keys());
    write(dir.path());
    assert_eq!(contents(dir.path()), first);

    // Lines of the log in another order: arrival means nothing.
    let log = dir.path().join("attempts.jsonl");
    let text = fs::read_to_string(&log).unwrap();
    let reversed: String = text.lines().rev().map(|line| format!("{line}\n")).collect();
    fs::write(&log, reversed).unwrap();
    write(dir.path());
    assert_eq!(contents(dir.path()), first);
}

#[test]
fn a_run_that_was_stopped_and_continued_reports_what_an_uninterrupted_one_does() {
    let run = Run::new(SMALL);
    let whole = folder();
    assert!(run.execute(whole.path(), usize::MAX));
    write(whole.path());

    let stopped = folder();
    let mut segments = 1;
    while !run.execute(stopped.path(), 700) {
        write(stopped.path());
        segments += 1;
    }
    write(stopped.path());
    assert_eq!(contents(stopped.path()), contents(whole.path()));
    let timing = fs::read_to_string(stopped.path().join("report/timing.csv")).unwrap();
    assert!(segments > 3 && timing.lines().last().unwrap().contains(&format!(",{segments},")), "{timing}");
}

#[test]
fn a_partial_run_reports_what_is_there_and_names_what_is_missing() {
    let run = Run::new(SMALL);
    for (stored, expected) in [
        (0, "matrix: pool and headroom filter"),
        (50, "matrix: pool and headroom filter"),
        (run.pool.tasks.len() * run.pool.seeds as usize + 1, "matrix model-a: attempts"),
        (run.matrix.len() - 1, "vote"),
        (run.matrix.len() + 100, "positive history, replay: steps"),
        (run.matrix.len() + run.lives.len() - 1, "negative history, group-self-consistency: steps"),
    ] {
        let dir = folder();
        assert!(!run.execute(dir.path(), stored));
        let data = ReportData::build(&RunReader::open(dir.path()).unwrap()).unwrap();
        assert!(!data.is_complete);
        let parts: Vec<&str> =
            data.completeness.iter().filter(|part| !part.is_complete()).map(|part| part.what.as_str()).collect();
        assert!(parts.contains(&expected), "{stored} stored: {parts:?}");
        write(dir.path());
        let page = fs::read_to_string(dir.path().join("report/index.html")).unwrap();
        assert!(page.contains("This run is not complete") && page.contains(expected));
        assert!(!page.contains("NaN") && !page.contains("undefined"));
        let rows = fs::read_to_string(dir.path().join("report/attempts.csv")).unwrap();
        assert_eq!(rows.matches("\nmatrix/").count() + rows.matches("\nsequence/").count(), stored);
    }
}

/// A torn line in the log of a run that is not being worked on is left out and said.
#[test]
fn damage_is_counted_and_nothing_is_changed() {
    let dir = folder();
    Run::new(SMALL).execute(dir.path(), 20);
    let log = dir.path().join("attempts.jsonl");
    let mut bytes = fs::read(&log).unwrap();
    bytes.truncate(bytes.len() - 5);
    fs::write(&log, &bytes).unwrap();
    write(dir.path());
    let page = fs::read_to_string(dir.path().join("report/index.html")).unwrap();
    assert!(page.contains("1 damaged piece(s)"), "damage is said");
    assert_eq!(
        fs::read_to_string(dir.path().join("report/usage.csv")).unwrap().lines().nth(1).unwrap().split(',').nth(1),
        Some("19")
    );
    assert_eq!(fs::read(&log).unwrap(), bytes);
}

#[test]
fn the_page_is_whole_by_itself() {
    let dir = folder();
    Run::new(SMALL).execute(dir.path(), usize::MAX);
    write(dir.path());
    let page = fs::read_to_string(dir.path().join("report/index.html")).unwrap();
    let outside = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for reference in ["http:", "https:", "src=", "@import", "url(", "<link", "<iframe"] {
        assert!(!outside.contains(reference), "{reference}");
    }
    for figure in ["id=\"gains-0\"", "id=\"votes\"", "<polygon", "<polyline", "AP change (points)", "temperature = 0.7"]
    {
        assert!(page.contains(figure), "{figure}");
    }
    assert!(page.contains("&lt;b&gt;made&lt;") && !page.contains("<b>made"), "texts of the run are escaped");
    assert!(include_str!("../src/report/map.js").len() <= 2048);
    for table in
        ["metrics", "gains", "zero_shot", "sequences", "probes", "contrasts", "usage", "memory_calls", "attempts"]
    {
        assert!(page.contains(&format!("<code>{table}.parquet</code>")), "{table} is explained");
    }
}

/// rs-kill-in-report: whenever the writer is killed, every file of the report is an old one or a new one.
#[test]
fn killed_while_writing_each_file_is_old_or_new() {
    const CHILD_DIR: &str = "LIFELONG_TEST_REPORT_DIR";
    if let Some(dir) = std::env::var_os(CHILD_DIR) {
        println!("writing");
        loop {
            write(Path::new(&dir));
        }
    }
    let dir = folder();
    Run::new(SMALL).execute(dir.path(), 300);
    write(dir.path());
    let whole = contents(dir.path());
    let mut draws = lifelong::seed::Seed(3).stream();
    for _ in 0..15 {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_while_writing_each_file_is_old_or_new", "--nocapture"])
            .env(CHILD_DIR, dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(process.stdout.take().unwrap()));
        while !lines.next().unwrap().unwrap().contains("writing") {}
        // Somewhere in the middle: a random amount of work of our own instead of a clock.
        let work = draws.below(1 << 22);
        std::hint::black_box((0..work).fold(0u64, |sum, value| std::hint::black_box(sum ^ value)));
        process.kill().unwrap();
        process.wait().unwrap();
        let mut found = contents(dir.path());
        found.retain(|name, _| !name.ends_with(".partial"));
        assert_eq!(found, whole);
    }
    write(dir.path());
    assert!(
        contents(dir.path()).keys().all(|name| !name.ends_with(".partial")),
        "the next report leaves nothing beside"
    );
}

#[test]
fn parquet_holds_what_csv_holds() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let dir = folder();
    Run::new(SMALL).execute(dir.path(), usize::MAX);
    write(dir.path());
    for table in ["metrics", "gains", "zero_shot", "probes", "contrasts", "usage", "sequences"] {
        let csv = fs::read_to_string(dir.path().join(format!("report/{table}.csv"))).unwrap();
        let file = fs::File::open(dir.path().join(format!("report/{table}.parquet"))).unwrap();
        let reader = SerializedFileReader::new(file).unwrap();
        let mut lines = csv.lines();
        let header: Vec<&str> = lines.next().unwrap().split(',').collect();
        let mut rows = 0;
        for (row, line) in reader.get_row_iter(None).unwrap().zip(lines) {
            let fields: Vec<&str> = line.split(',').collect();
            for (index, (name, value)) in row.unwrap().get_column_iter().enumerate() {
                assert_eq!(name, header[index]);
                let text = match value {
                    parquet::record::Field::Null => String::new(),
                    parquet::record::Field::Str(text) => text.clone(),
                    parquet::record::Field::Double(value) => value.to_string(),
                    other => other.to_string(),
                };
                assert_eq!(text, fields[index], "{table}.{name} row {rows}");
            }
            rows += 1;
        }
        assert!(rows > 0 && rows == csv.lines().count() - 1, "{table}");
    }
}
