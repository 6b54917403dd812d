//! The wording of every prompt is pinned: one moved space moves results. A change here is a change of a method: say so in
//! the commit, and raise [`WORDING`](crate::memory::WORDING).

use std::path::Path;

#[test]
fn prompts_are_the_pinned_ones() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs/prompts");
    let benchmarks = ["bigcodebench_complete.txt", "bigcodebench_instruct.txt", "humaneval.txt", "tool_calls.txt"];
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
248ab4c2 autoskill_decide.txt
8b47ac2f autoskill_extract.txt
93614b66 autoskill_gate.txt
7458644a autoskill_merge.txt
89fd13c3 autoskill_preamble.txt
aa3233c2 autoskill_select.txt
67d8413f autoskill_usage.txt
85e8c242 awm_examples_preamble.txt
0ede5f55 awm_induce.txt
d032fd36 awm_preamble.txt
da50a87a clin_advice.txt
9467f360 clin_causal.txt
45c6abd2 clin_meta.txt
a8e3866b clin_other_tasks.txt
504932fb clin_same_family.txt
b76db89f clin_same_task.txt
ba54d21f clin_update.txt
4daf56a4 hipporag_entities.txt
db43adf7 hipporag_filter.txt
7cc7b755 hipporag_preamble.txt
0aab7a46 hipporag_triples.txt
ce176d13 judge.txt
3b87e2de memrl_preamble.txt
cfae7982 memrl_reflect.txt
e0a885be memrl_script.txt
5bfb3c34 rag_preamble.txt
4e81d9fd repair.txt
0445527f replay_preamble.txt
08d1b7cd seu_compile.txt
9b975bd0 simplemem_analyse.txt
355fbf68 simplemem_check.txt
ef8d44c4 simplemem_extract.txt
4a80e95f simplemem_more.txt
03774678 simplemem_paper_merge.txt
53ca463b simplemem_paper_plan.txt
5db70f2c simplemem_paper_units.txt
57cb97b9 simplemem_preamble.txt
040353f6 simplemem_queries.txt
a0b2b8ad simplemem_requirements.txt
05b8cf82 skillclaw_choose.txt
7de476ff skillclaw_evolve.txt
45f74153 skillclaw_evolve_new.txt
21ab96bb skillclaw_judge.txt
7e395f9d skillclaw_merge.txt
d156ea6b skillclaw_preamble.txt
4cf7f671 skillclaw_principles.txt
3800299c skillclaw_summarise.txt
";
