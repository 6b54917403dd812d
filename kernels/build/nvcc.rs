//! Kernels for GPUs: one fat binary a file, with code for every chip and with PTX for later ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use crate::sources::Sources;
use crate::toolkit;

/// Ampere to Blackwell, of data centres and of workstations.
const TARGETS: &str = "80 86 89 90a 100 120";
/// PTX that the driver compiles for what is not among them.
const PTX: &str = "80";

/// Contraction is off: whether a product and a sum are rounded once or twice is for the source to say.
const OPTIONS: &[&str] = &[
    "-fatbin",
    "-std=c++17",
    "-O3",
    "--fmad=false",
    "--compress-mode=size",
    "-Werror",
    "all-warnings",
    "--resource-usage",
];

/// Compiles every file and writes `images.rs`, which embeds them, and `resources.txt`, what each kernel takes.
pub fn compile(sources: &Sources) -> Result<(), String> {
    let nvcc = toolkit::nvcc()?;
    let targets = std::env::var(toolkit::TARGETS).unwrap_or_default();
    let targets: Vec<&str> = match targets.split_whitespace().collect::<Vec<_>>() {
        none if none.is_empty() => TARGETS.split_whitespace().collect(),
        some => some,
    };
    let (waiting, done) = (Mutex::new(sources.kernels.iter()), Mutex::new(BTreeMap::new()));
    let jobs = std::env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1usize);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(sources.kernels.len()) {
            scope.spawn(|| {
                loop {
                    let Some(kernel) = waiting.lock().expect("no job panics").next() else { return };
                    let outcome = compile_file(&nvcc, sources, kernel, &targets);
                    done.lock().expect("no job panics").insert(stem(kernel), outcome);
                }
            });
        }
    });
    let chips: Vec<String> = targets.iter().map(|target| format!("sm_{target}")).collect();
    let mut resources = format!("nvcc {} chips {}\n", version(&nvcc)?, chips.join(" "));
    for (file, report) in done.into_inner().expect("no job panics") {
        resources += &usage(file, &report?, &chips);
    }
    write(&sources.out.join("resources.txt"), &resources)?;
    write(&sources.out.join("images.rs"), &images(sources, &chips))
}

/// The name of a family of kernels.
fn stem(path: &Path) -> &str {
    path.file_stem().and_then(|stem| stem.to_str()).expect("kernel files have plain names")
}

/// The compiler's report on what kernels take.
fn compile_file(nvcc: &Path, sources: &Sources, kernel: &Path, targets: &[&str]) -> Result<String, String> {
    let mut command = Command::new(nvcc);
    command.args(OPTIONS).arg("-I").arg(&sources.folder);
    for target in targets {
        command.arg("-gencode").arg(format!("arch=compute_{target},code=sm_{target}"));
    }
    command.arg("-gencode").arg(format!("arch=compute_{PTX},code=compute_{PTX}"));
    command.arg("-o").arg(sources.out.join(stem(kernel)).with_extension("fatbin")).arg(kernel);
    let output = command.output().map_err(|error| format!("{} cannot be started: {error}", nvcc.display()))?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => Ok(report),
        false => Err(format!("{}: nvcc failed:\n{report}", kernel.display())),
    }
}

/// What a kernel takes on one chip.
#[derive(Clone, Copy, Default)]
struct Usage {
    registers: usize,
    /// Bytes stored and loaded.
    spills: usize,
    /// Bytes that are not given by the launch.
    shared: usize,
}

/// One line a kernel: `file kernel registers 32 spills 0 shared 8`; with slashes between, in order of the chips, where these
/// differ.
fn usage(file: &str, report: &str, chips: &[String]) -> String {
    // By kernel, then by the place of the chip.
    let mut kernels: BTreeMap<&str, BTreeMap<usize, Usage>> = BTreeMap::new();
    let (mut entry, mut usage) = (None, Usage::default());
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let mut parts = rest.split('\'');
            entry = parts.next().zip(parts.nth(1));
            usage = Usage::default();
        } else if line.contains("bytes spill stores") {
            usage.spills = before(line, " bytes spill stores") + before(line, " bytes spill loads");
        } else if line.contains("Used ")
            && let Some((kernel, chip)) = entry.take()
        {
            usage.registers = before(line, " registers");
            usage.shared = before(line, " bytes smem");
            let place = chips.iter().position(|known| known == chip).unwrap_or(chips.len());
            kernels.entry(kernel).or_default().insert(place, usage);
        }
    }
    let line = |(kernel, usages): (&&str, &BTreeMap<usize, Usage>)| {
        let column = |value: fn(&Usage) -> usize| {
            let mut values: Vec<String> = usages.values().map(|usage| value(usage).to_string()).collect();
            if values.iter().all(|value| *value == values[0]) {
                values.truncate(1);
            }
            values.join("/")
        };
        let [registers, spills, shared] =
            [column(|usage| usage.registers), column(|usage| usage.spills), column(|usage| usage.shared)];
        format!("{file} {kernel} registers {registers} spills {spills} shared {shared}\n")
    };
    kernels.iter().map(line).collect()
}

/// The compiler's own version, as in `13.0.88`.
fn version(nvcc: &Path) -> Result<String, String> {
    let output = Command::new(nvcc).arg("--version").output();
    let output = output.map_err(|error| format!("{} cannot be started: {error}", nvcc.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.split_once(", V").and_then(|(_, rest)| rest.split_whitespace().next());
    found.map(str::to_string).ok_or_else(|| format!("{} does not say its version: {text}", nvcc.display()))
}

/// The number that stands before a word; 0 where the word does not stand.
fn before(line: &str, word: &str) -> usize {
    let number = line.split_once(word).and_then(|(head, _)| head.rsplit([' ', ',']).next()?.parse().ok());
    number.unwrap_or(0)
}

fn images(sources: &Sources, chips: &[String]) -> String {
    let targets = format!("{} compute_{PTX}", chips.join(" "));
    let mut text = format!("const TARGETS: &str = {targets:?};\n");
    text += "static IMAGES: &[(&str, &[u8])] = &[\n";
    for kernel in &sources.kernels {
        let name = stem(kernel);
        let file = format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/{name}.fatbin\"))");
        let _ = writeln!(text, "    ({name:?}, &Image(*{file}).0),");
    }
    text + "];\n"
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
