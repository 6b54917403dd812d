//! The tiny models of `golden/candle`, which are written when they are needed: each weight is drawn from its tensor's name
//! and its place.

use std::path::Path;

use serde_json::{Map, Value, json};

/// What transformers computes from a family's tiny model, and its configuration.
pub fn golden(family: &str) -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = [root.join("tests/golden/candle"), root.join("models/tests/golden/candle")];
    let path = places.iter().map(|place| place.join(format!("{family}.json"))).find(|path| path.is_file()).unwrap();
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Numbers in [-1, 1), another set for each salt in front of the name: eleven bits of SplitMix64 behind the FNV-1a hash of the name.
fn drawn(name: &str, count: usize) -> Vec<f64> {
    let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (0..count as u64).map(|index| (draw(seed, index) >> 53) as f64 / 1024.0 - 1.0).collect()
}

fn weight(name: &str, shape: &[usize], norm_centre: f64) -> Vec<u8> {
    let is_norm = name.contains("norm") && name.ends_with("weight");
    let scale = match shape {
        _ if is_norm => 0.25,
        [_] => 0.25,
        [.., inputs] => 2.5 / (*inputs as f64).sqrt(),
        [] => 1.0,
    };
    let centre = if is_norm { norm_centre } else { 0.0 };
    let number = |drawn: f64| if is_norm { centre + scale * drawn } else { drawn * scale };
    drawn(name, shape.iter().product()).into_iter().flat_map(|drawn| (number(drawn) as f32).to_le_bytes()).collect()
}

/// SplitMix64 over the index.
fn draw(seed: u64, index: u64) -> u64 {
    let mut x = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// What is done to a configuration and to the shapes of the tensors before they are written.
pub type Change<'a> = &'a dyn Fn(&mut Map<String, Value>, &mut Map<String, Value>);

/// Writes a family's tiny model, its configuration and tensors as they are after `change`.
pub fn write(family: &str, folder: &Path, change: Change) {
    let mut golden = golden(family);
    let layers = golden["config"]["num_hidden_layers"].as_u64().unwrap();
    let mut shapes = golden["rest"].as_object().unwrap().clone();
    for layer in 0..layers {
        let named = golden["layer"].as_object().unwrap().iter();
        shapes.extend(named.map(|(name, shape)| (format!("model.layers.{layer}.{name}"), shape.clone())));
    }
    let centre = golden["norm_centre"].as_f64().unwrap();
    let salt = golden["salt"].as_str().unwrap().to_string();
    let config = golden["config"].as_object_mut().unwrap();
    change(config, &mut shapes);
    let (mut header, mut data) = (Map::new(), Vec::new());
    for (name, shape) in &shapes {
        let (start, shape): (usize, Vec<usize>) = (data.len(), serde_json::from_value(shape.clone()).unwrap());
        data.extend(weight(&format!("{salt}{name}"), &shape, centre));
        header.insert(name.clone(), json!({ "dtype": "F32", "shape": shape, "data_offsets": [start, data.len()] }));
    }
    let header = Value::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    std::fs::write(folder.join("config.json"), Value::Object(config.clone()).to_string()).unwrap();
}

/// Tokens that repeat late.
pub fn prompt(length: u64, vocab: u64) -> Vec<u32> {
    (0..length).map(|i| ((7 * i * i + 3 * i + 5) % vocab) as u32).collect()
}
