//! Everything that may differ between two runs with the same results: seconds, reuse, machine, dates.
//!
//! It has a log of its own (`timing.jsonl`) so that the records stay a pure function of the run's identity. A run that
//! was stopped and continued has several segments; totals cover all of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::Coord;

/// File name of the timing log in a run folder.
pub const TIMING_FILE: &str = "timing.jsonl";

/// One line of the timing log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TimingRecord {
    /// A process began to work on the run.
    Segment {
        #[serde(with = "rfc3339")]
        started: jiff::Timestamp,
        machine: Machine,
    },
    /// A unit was done.
    Unit {
        coord: Coord,
        #[serde(flatten)]
        timing: UnitTiming,
        /// Seconds since the start of its segment when the unit was done.
        at_s: f64,
    },
}

/// Where a segment ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub device: String,
    pub instruction_set: String,
    pub threads: u32,
}

/// What one unit cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnitTiming {
    /// From the first request to the score. Units overlap, so these add up to more than the time of the run.
    pub seconds: f64,
    /// Prompt tokens that were found in the cache.
    pub reused_tokens: u64,
}

/// Timestamps as text: jiff's own serde feature would be one more build of it.
mod rfc3339 {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(at: &jiff::Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<jiff::Timestamp, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Sums over all segments of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    pub segments: u32,
    /// Start of the first segment.
    pub started: Option<jiff::Timestamp>,
    /// Time during which the run was worked on: for each segment until its last finished unit.
    pub active_seconds: f64,
    /// From the start of the first segment to the last finished unit, pauses included.
    pub wall_seconds: f64,
    pub units: u64,
    pub reused_tokens: u64,
}

/// What one stage cost over all segments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StageTime {
    pub units: u64,
    /// Time between finished units, counted to the stage of the later one; over all stages this adds up to the active
    /// time of the run.
    pub seconds: f64,
    pub reused_tokens: u64,
}

/// Splits the active time of a run over its stages.
pub fn stage_times(records: &[TimingRecord]) -> BTreeMap<String, StageTime> {
    let mut stages: BTreeMap<String, StageTime> = BTreeMap::new();
    let mut reached = 0.0f64;
    for record in records {
        match record {
            TimingRecord::Segment { .. } => reached = 0.0,
            TimingRecord::Unit { coord, timing, at_s } => {
                let stage = stages.entry(coord.stage.clone()).or_default();
                stage.units += 1;
                stage.reused_tokens += timing.reused_tokens;
                stage.seconds += (at_s - reached).max(0.0);
                reached = reached.max(*at_s);
            }
        }
    }
    stages
}

/// Adds up a timing log given in file order.
pub fn totals(records: &[TimingRecord]) -> Totals {
    let mut totals = Totals::default();
    let mut segment_start = None;
    let mut segment_seconds = 0.0;
    for record in records {
        match record {
            TimingRecord::Segment { started, .. } => {
                totals.segments += 1;
                totals.started = totals.started.or(Some(*started));
                totals.active_seconds += std::mem::take(&mut segment_seconds);
                segment_start = Some(*started);
            }
            TimingRecord::Unit { timing, at_s, .. } => {
                totals.units += 1;
                totals.reused_tokens += timing.reused_tokens;
                segment_seconds = at_s.max(segment_seconds);
                if let (Some(first), Some(start)) = (totals.started, segment_start) {
                    totals.wall_seconds = start.duration_since(first).as_secs_f64() + segment_seconds;
                }
            }
        }
    }
    totals.active_seconds += segment_seconds;
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(started: &str) -> TimingRecord {
        TimingRecord::Segment { started: started.parse().unwrap(), machine: Machine::default() }
    }

    fn unit(seconds: f64, reused_tokens: u64, at_s: f64) -> TimingRecord {
        let coord = Coord { stage: "s".into(), sequence: 0, step: 0, attempt: 0 };
        TimingRecord::Unit { coord, timing: UnitTiming { seconds, reused_tokens }, at_s }
    }

    #[test]
    fn totals_cover_every_segment_and_show_pauses_apart() {
        let records = [
            segment("2026-01-01T10:00:00Z"),
            unit(2.0, 60, 40.0),
            unit(3.0, 40, 60.0),
            segment("2026-01-01T12:00:00Z"),
            unit(4.0, 50, 30.0),
        ];
        let totals = totals(&records);
        assert_eq!(totals.started, Some("2026-01-01T10:00:00Z".parse().unwrap()));
        assert_eq!((totals.segments, totals.units, totals.reused_tokens), (2, 3, 150));
        assert_eq!(totals.active_seconds, 90.0);
        assert_eq!(totals.wall_seconds, 2.0 * 3600.0 + 30.0);
    }

    #[test]
    fn stage_times_add_up_to_the_active_time() {
        let mut records = vec![segment("2026-01-01T10:00:00Z"), unit(2.0, 60, 40.0), unit(3.0, 40, 39.0)];
        records.extend([unit(9.0, 1, 60.0), segment("2026-01-01T12:00:00Z"), unit(4.0, 50, 30.0)]);
        if let TimingRecord::Unit { coord, .. } = &mut records[3] {
            coord.stage = "t".into();
        }
        let stages = stage_times(&records);
        assert_eq!(stages["s"], StageTime { units: 3, seconds: 70.0, reused_tokens: 150 });
        assert_eq!(stages["t"], StageTime { units: 1, seconds: 20.0, reused_tokens: 1 });
        assert_eq!(totals(&records).active_seconds, 90.0);
    }

    #[test]
    fn a_line_reads_back_as_itself() {
        for record in [segment("2026-01-01T10:00:00Z"), unit(0.25, 7, 1.5)] {
            let text = serde_json::to_string(&record).unwrap();
            assert_eq!(serde_json::from_str::<TimingRecord>(&text).unwrap(), record, "{text}");
        }
    }
}
