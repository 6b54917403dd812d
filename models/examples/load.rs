//! Opens a checkpoint, builds its model and says how long each took:
//! `cargo run --release -p lifelong-models --example load -- MODEL.gguf [THREADS]`

use std::error::Error;
use std::path::Path;
use std::time::Instant;

use lifelong_kernels::Device;
use lifelong_models::registry::{self, Load};
use lifelong_models::{Checkpoint, load_decoder, load_encoder};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("give the path of a GGUF file, a safetensors file or a model folder")?;
    let threads = arguments.next().map_or(Ok(2), |threads| threads.parse())?;
    let device = Device::cpu(threads);

    let begun = Instant::now();
    let checkpoint = Checkpoint::open(Path::new(&path))?;
    let opened = begun.elapsed();
    let (geometry, notes) = match registry::find(&checkpoint)?.load {
        Load::Decoder(_) | Load::SharedDecoder(_) | Load::Candle => {
            load_decoder(&checkpoint, &device).map(|model| (model.geometry().clone(), model.notes().to_vec()))?
        }
        Load::Encoder(_) => {
            load_encoder(&checkpoint, &device).map(|model| (model.geometry().clone(), model.notes().to_vec()))?
        }
    };
    println!("{geometry:#?}");
    notes.iter().for_each(|note| println!("note: {note}"));
    println!(
        "opened in {:.1} ms, loaded in {:.1} ms ({device:?})",
        opened.as_secs_f64() * 1e3,
        begun.elapsed().as_secs_f64() * 1e3
    );
    Ok(())
}
