//! The report of a run, rebuilt from its stored records alone: no device, no model, the same bytes each time.
//!
//! `data` turns records into numbers, `tables` lays them out for files, `view` for people; then one file a format:
//! `csv`, `parquet`, `terminal`, `svg`, `html`. `path_bench` sets ours beside the published, `beside` holds what only an
//! in-process run can measure. Whatever depends on the clock stands in `timing.csv` and in one marked block of the page;
//! everything else is equal for equal records. A run that is not finished is reported as far as it came, and says what is
//! missing.

pub mod beside;
mod cautions;
mod checks;
mod csv;
mod data;
mod dots;
mod html;
mod matrix;
mod memory_use;
mod multi_task;
mod orders;
mod panels;
mod parquet;
mod pass_at_k;
mod path_bench;
mod section;
mod sequence;
mod svg;
mod table;
mod tables;
mod terminal;
mod tool_turns;
mod transitions;
mod vectors;
mod view;
mod voters;

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;

use crate::store::{RunReader, write_atomic};

pub use checks::Checks;
pub use data::{Completeness, ReportData, StageUsage, Timing};
pub use matrix::{FamilyGain, ModelMatrix, Pair, ZeroShot};
pub use multi_task::{MultiTask, PrefixGain};
pub use orders::{MatrixMetric, OrderCell, Orders, Ranking};
pub use panels::{Curve, Panel, PanelPoint, panels};
pub use sequence::{Contrast, CurvePoint, Life, LifeCell, Sequences};
pub use transitions::{Effect, TransitionRow, Transitions};
pub use vectors::write_vectors;
pub use voters::{Decided, VoterAgreement};

/// Folder of the report inside a run folder.
pub const REPORT_FOLDER: &str = "report";

/// Writes the report of a run folder to `RUN_DIR/report/` and prints its tables.
///
/// # Errors
/// When the folder holds no run, its records contradict each other, or the report cannot be written; each names the
/// path.
pub fn write(folder: &Path) -> anyhow::Result<()> {
    let reader = RunReader::open(folder)?;
    let data = ReportData::build(&reader).with_context(|| format!("report of {}", folder.display()))?;
    let target = folder.join(REPORT_FOLDER);
    write_files(&data, &target)?;
    std::io::stdout()
        .write_all(terminal::render(&data, &path_bench::sections(&data)?).as_bytes())
        .context("print the report")?;
    eprintln!("report: {}", target.join("index.html").display());
    Ok(())
}

/// Writes every file of the report. Each is replaced as a whole, so that a reader finds the old one or the new one.
///
/// # Errors
/// Names the file that could not be written.
pub fn write_files(data: &ReportData, target: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(target).with_context(|| format!("create {}", target.display()))?;
    for table in tables::all(data) {
        write_atomic(&target.join(format!("{}.csv", table.name)), csv::render(&table).as_bytes())?;
        let bytes = parquet::render(&table).with_context(|| format!("table {} as Parquet", table.name))?;
        write_atomic(&target.join(format!("{}.parquet", table.name)), &bytes)?;
    }
    write_atomic(&target.join("timing.csv"), csv::render(&tables::timing(data)).as_bytes())?;
    let sections = path_bench::sections(data)?;
    for drawing in html::trajectories(data)?.iter().chain(sections.iter().flat_map(|section| &section.drawings)) {
        write_atomic(&target.join(format!("{}.svg", drawing.file)), drawing.document().as_bytes())?;
    }
    write_atomic(&target.join("index.html"), html::render(data, &sections)?.as_bytes())?;
    Ok(())
}
