//! The tables and figures of PATH-Bench, ours beside the published: one file each, one line in [`sections`].

mod agreement;
mod beside;
mod lives;
mod prefixes;
pub(super) mod published;
mod rank_changes;
mod selective;
pub(super) mod setting;
mod transition_effects;

use super::data::ReportData;
use super::section::Section;
use super::table::Table;

/// Every section that the run has numbers for, in the order of the paper.
pub(super) fn sections(data: &ReportData) -> anyhow::Result<Vec<Section>> {
    let differences = setting::differences(data);
    let mut sections: Vec<Section> = [
        lives::table_1(data, &differences),
        lives::figure_4(data, &differences),
        transition_effects::figure_5(data, &differences),
        selective::table_2(data, &differences),
        agreement::table_3(data, &differences),
        prefixes::figure_7(data, &differences)?,
        rank_changes::figure_1(data, &differences),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !sections.is_empty() {
        sections.push(Section {
            id: "setting",
            title: "Against the paper's setting",
            intro: "Published numbers stand beside ours as they were printed (PATH-Bench, arXiv 2608.01149); they were \
                    measured with other models, and are never averaged with ours. What this run does otherwise, and what \
                    the paper leaves open:"
                .into(),
            tables: vec![setting::view(&differences)],
            drawings: Vec::new(),
            notes: Vec::new(),
        });
    }
    Ok(sections)
}

/// The files of these sections.
pub(super) fn tables(data: &ReportData) -> Vec<Table> {
    let mut tables = Vec::new();
    tables.extend(agreement::table(data));
    tables.extend(prefixes::table(data));
    tables.extend(transition_effects::table(data));
    tables.extend(rank_changes::table(data));
    tables.extend(beside::table(data));
    tables
}
