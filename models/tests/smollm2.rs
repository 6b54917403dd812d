//! Real weights: SmolLM2 on llama.cpp's own greedy text, judged by a float32 model of the same weights.
//! `tests/golden/smollm2/make.py` of the repository made the expected values.
//!
//! llama.cpp rounds activations to 8 bits, which moves the logits of this model by about 0.2: with its flash attention
//! off it repeats only 9 of 20 ordinary continuations of its default settings. So two things are asserted: on text that
//! float32 is sure of, the tokens are llama.cpp's; on all text, also where we part, our logits are at least as close to
//! float32 as its are, and our choice differs from its only where float32 has nearly a tie.

mod shared;

use std::time::Instant;

use lifelong_kernels::Device;
use lifelong_models::{Checkpoint, load_decoder};
use shared::greedy::{Golden, Outcome, follow};

/// Five times the distance that 8-bit activations cause.
const NEAR_TIE: f32 = 1.0;

#[test]
fn real_weights_against_llama_cpp_and_float32() {
    let Some(path) = shared::weights("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let device = Device::cpu(2);
    let begun = Instant::now();
    let model = load_decoder(&Checkpoint::open(&path).unwrap(), &device).unwrap();
    println!("loaded in {:.3} s", begun.elapsed().as_secs_f64());
    let geometry = model.geometry();
    assert_eq!((geometry.layers, geometry.heads, geometry.kv_heads, geometry.head_dim), (30, 9, 3, 64));
    assert_eq!((geometry.parameters, geometry.weight_bytes), (134_515_008, 96_576_768));
    assert!(model.notes().is_empty());

    for (set, least) in [("decided.json", 18), ("open.json", 0)] {
        let Golden { cases } = Golden::read(&format!("smollm2/{set}"));
        assert_eq!(cases.len(), 20);
        let Outcome { equal, everywhere, where_parted } = follow(model.as_ref(), &device, &cases, NEAR_TIE);
        println!("{set}: {equal} of 20 continuations equal");
        assert!(equal >= least, "{set}: {equal} of 20");
        for (place, distances) in [("everywhere", everywhere), ("where we part", where_parted)] {
            let count = distances.count();
            if count > 0 {
                let (ours, theirs) = distances.means();
                println!("  {place} ({count} positions): from float32 ours {ours:.4}, llama.cpp {theirs:.4}");
                assert!(ours <= theirs, "{set}, {place}: ours {ours}, llama.cpp {theirs}");
            }
        }
    }
}
