//! Real weights: Gemma 3 270M on llama.cpp's own greedy text, judged by a float32 model of the same weights.
//! `tests/golden/gemma3/make.py` of the repository made the expected values.
//!
//! Both engines round activations, and that noise is what sets them apart. So what is asserted is that ours are at least as
//! close to float32 as llama.cpp's are, and that tokens differ only where float32 has nearly a tie.

mod shared;

use std::time::Instant;

use lifelong_kernels::Device;
use lifelong_models::{Checkpoint, load_decoder};
use shared::greedy::{Golden, follow};

#[test]
fn as_close_to_float32_as_llama_cpp() {
    /// Five times the distance that 8-bit activations cause.
    const NEAR_TIE: f32 = 1.0;
    let Some(path) = shared::weights("gemma-3-270m", "gemma-3-270m-q4_k_m.gguf") else { return };
    let Golden { cases } = Golden::read("gemma3/greedy.json");
    assert_eq!(cases.len(), 20);
    assert!(cases[18].prompt.len() > 512 && cases[19].prompt.len() > 4000, "prompts beyond the window");

    let device = Device::cpu(2);
    let begun = Instant::now();
    let model = load_decoder(&Checkpoint::open(&path).unwrap(), &device).unwrap();
    println!("loaded in {:.3} s", begun.elapsed().as_secs_f64());
    let geometry = model.geometry();
    assert_eq!((geometry.layers, geometry.heads, geometry.kv_heads, geometry.head_dim), (18, 4, 1, 256));
    assert_eq!((geometry.parameters, geometry.context, geometry.vocab), (268_098_176, 32_768, 262_144));
    assert!(model.notes().is_empty(), "{:?}", model.notes());

    let begun = Instant::now();
    for (name, cases) in [("short prompts", &cases[..18]), ("beyond the window", &cases[18..])] {
        let outcome = follow(model.as_ref(), &device, cases, NEAR_TIE);
        let (ours, theirs) = outcome.everywhere.means();
        let (equal, count) = (outcome.equal, cases.len());
        println!("{name}: {equal} of {count} equal; mean distance from float32: ours {ours:.4}, llama.cpp {theirs:.4}");
        assert!(ours <= theirs, "{name}: ours {ours}, llama.cpp {theirs}");
        assert!(equal + 1 >= count, "{name}: {equal} of {count} continuations equal");
    }
    println!("ran in {:.1} s", begun.elapsed().as_secs_f64());
}
