//! What each kernel takes of a GPU, by the compiler's report, against the table that is kept: a kernel that begins to spill
//! or takes so much that fewer blocks fit is a change to look at.
#![cfg(feature = "cuda")]

const BUILT: &str = include_str!(concat!(env!("OUT_DIR"), "/resources.txt"));
const KEPT: &str = include_str!("../cuda/resources.txt");

#[test]
fn kernels_take_what_the_table_says() {
    let header = |table: &'static str| table.lines().next().unwrap_or_default();
    if header(BUILT) != header(KEPT) {
        println!("skipped: built by `{}`, the table by `{}`", header(BUILT), header(KEPT));
        return;
    }
    let missing = |from: &'static str, of: &'static str| -> Vec<&'static str> {
        of.lines().filter(|line| !from.lines().any(|other| other == *line)).collect()
    };
    let (gone, new) = (missing(BUILT, KEPT), missing(KEPT, BUILT));
    let mend = concat!("cp ", env!("OUT_DIR"), "/resources.txt kernels/cuda/resources.txt");
    assert!(gone.is_empty() && new.is_empty(), "kept: {gone:#?}\nbuilt: {new:#?}\nif this is meant: {mend}");
}

/// Registers that spill go through memory: a few, outside of the innermost loop, cost little.
#[test]
fn no_kernel_spills_more_than_a_few_registers() {
    const MOST_BYTES: usize = 128;
    let spills = |line: &&str| {
        let mut words = line.split(' ').skip_while(|word| *word != "spills").skip(1);
        let bytes = words.next().unwrap_or_default().split('/').filter_map(|bytes| bytes.parse::<usize>().ok());
        bytes.max().is_some_and(|bytes| bytes > MOST_BYTES)
    };
    let spilling: Vec<&str> = BUILT.lines().filter(spills).collect();
    assert!(spilling.is_empty(), "{spilling:#?}");
}
