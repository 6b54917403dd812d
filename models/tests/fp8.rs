//! 8-bit floats wherever weights are cut out of a tensor: stacked experts, rows in turns, fused projections. A checkpoint of
//! them computes the bits of the one that holds the numbers they stand for.

mod shared;

use std::path::{Path, PathBuf};

use half::{bf16, f16};
use lifelong_kernels::{Device, Format};
use lifelong_models::{Checkpoint, Error, load_decoder};
use serde_json::{Value, json};
use shared::decode;

/// Extents of a block with a scale.
const BLOCK: [usize; 2] = [8, 16];

/// Sign, four bits of exponent biased by 7, three of mantissa (Micikevicius et al. 2022, table 1).
fn number(byte: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f64::from(byte & 7) / 8.0);
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-6),
        _ => (1.0 + mantissa) * 2f64.powi(exponent - 7),
    };
    if byte & 128 == 0 { magnitude } else { -magnitude }
}

fn nearest(value: f64) -> u8 {
    let is_number = |byte: &u8| byte & 127 != 127;
    let far = |byte: u8| (number(byte) - value).abs();
    (0..=255u8).filter(is_number).min_by(|a, b| far(*a).total_cmp(&far(*b))).unwrap()
}

/// A scale for each block, none a power of two.
fn scale(block: usize) -> f32 {
    [0.011, 0.007, 0.0093][block % 3]
}

fn values(format: Format, bytes: &[u8]) -> Vec<f32> {
    let halves = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    match format {
        Format::BF16 => halves.map(|bits| bf16::from_bits(bits).to_f32()).collect(),
        Format::F16 => halves.map(|bits| f16::from_bits(bits).to_f32()).collect(),
        Format::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        other => panic!("{other:?}"),
    }
}

/// Writes a golden checkpoint twice: with some weights in 8 bits beside their scales, and with the numbers these are.
fn written(golden: &str, is_eight_bits: impl Fn(&str) -> bool) -> [PathBuf; 2] {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(golden);
    let checkpoint = Checkpoint::open(&source).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(source.join("config.json")).unwrap()).unwrap();
    let folders = ["eight", "plain"].map(|kind| shared::folder(&format!("fp8-{golden}-{kind}")));
    let mut files = [Vec::new(), Vec::new()];
    for name in checkpoint.names() {
        let view = checkpoint.tensor(name).unwrap();
        let shape = view.shape.to_vec();
        let kind = format!("{:?}", view.format);
        if !is_eight_bits(name) {
            files
                .iter_mut()
                .for_each(|file| file.push((name.to_string(), kind.clone(), shape.clone(), view.bytes.to_vec())));
            continue;
        }
        let [.., n, k] = shape[..] else { panic!("{name} is no weight") };
        let (down, across) = (n.div_ceil(BLOCK[0]), k.div_ceil(BLOCK[1]));
        let numbers = values(view.format, view.bytes);
        let block =
            |at: usize| (at / (n * k)) * down * across + at % (n * k) / k / BLOCK[0] * across + at % k / BLOCK[1];
        let coded: Vec<u8> =
            numbers.iter().enumerate().map(|(at, value)| nearest(f64::from(*value / scale(block(at))))).collect();
        let stood_for =
            coded.iter().enumerate().map(|(at, byte)| bf16::from_f32(number(*byte) as f32 * scale(block(at))));
        let plain: Vec<u8> = stood_for.flat_map(|value| value.to_le_bytes()).collect();
        let scales: Vec<u8> =
            (0..numbers.len() / (n * k) * down * across).flat_map(|block| scale(block).to_le_bytes()).collect();
        let mut scale_shape = shape.clone();
        let place = scale_shape.len() - 2;
        scale_shape[place..].copy_from_slice(&[down, across]);
        files[0].push((name.to_string(), "F8_E4M3".into(), shape.clone(), coded));
        files[0].push((format!("{name}_scale_inv"), "F32".into(), scale_shape, scales));
        files[1].push((name.to_string(), "BF16".into(), shape, plain));
    }
    std::fs::write(folders[1].join("config.json"), config.to_string()).unwrap();
    config["quantization_config"] = json!({ "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": BLOCK });
    std::fs::write(folders[0].join("config.json"), config.to_string()).unwrap();
    for (folder, file) in folders.iter().zip(files) {
        let (mut header, mut data) = (serde_json::Map::new(), Vec::new());
        for (name, kind, shape, bytes) in file {
            let start = data.len();
            data.extend(bytes);
            header.insert(name, json!({ "dtype": kind, "shape": shape, "data_offsets": [start, data.len()] }));
        }
        let header = Value::Object(header).to_string();
        let bytes = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
        std::fs::write(folder.join("model.safetensors"), bytes).unwrap();
    }
    folders
}

fn bits(folder: &Path, quantize: Option<Format>) -> Vec<u32> {
    let device = Device::cpu(1);
    let checkpoint = Checkpoint::open(folder).unwrap();
    let checkpoint = match quantize {
        Some(format) => checkpoint.quantized(format).unwrap(),
        None => checkpoint,
    };
    let model = load_decoder(&checkpoint, &device).unwrap();
    let tokens: Vec<u32> = (0..40).map(|index| index * 7 % 24).collect();
    decode::logits(model.as_ref(), &device, &tokens, 40).into_iter().map(f32::to_bits).collect()
}

fn check(golden: &str, is_eight_bits: impl Fn(&str) -> bool) {
    let [eight, plain] = written(golden, is_eight_bits);
    assert!(bits(&eight, None) == bits(&plain, None), "{golden}");
    assert!(bits(&eight, Some(Format::Q8_0)) == bits(&plain, Some(Format::Q8_0)), "{golden}, quantised at load");
    let parameters = |folder: &Path| {
        load_decoder(&Checkpoint::open(folder).unwrap(), &Device::cpu(1)).unwrap().geometry().parameters
    };
    assert_eq!(parameters(&eight), parameters(&plain), "{golden}: scales are no parameters");
}

#[test]
fn stacked_experts() {
    check("qwen3moe-stacked", |name| name.contains(".mlp.experts."));
}

#[test]
fn rows_in_turns() {
    check("qwen3_5-dense", |name| name.ends_with("self_attn.q_proj.weight") || name.ends_with("mlp.down_proj.weight"));
}

#[test]
fn fused_projections() {
    check("phi3-longrope", |name| name.ends_with("qkv_proj.weight") || name.ends_with("gate_up_proj.weight"));
}

#[test]
fn a_stack_without_its_scales_is_an_error() {
    let [eight, _] = written("qwen3moe-stacked", |name| name.ends_with("experts.gate_up_proj"));
    let path = eight.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let name = b"gate_up_proj_scale_inv";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    let renamed = [&bytes[..at], b"gate_up_proj_scale_inx", &bytes[at + name.len()..]].concat();
    std::fs::write(&path, renamed).unwrap();
    match load_decoder(&Checkpoint::open(&eight).unwrap(), &Device::cpu(1)).err() {
        Some(Error::MissingTensor { tensor, .. }) => assert!(tensor.ends_with("gate_up_proj_scale_inv"), "{tensor}"),
        other => panic!("{other:?}"),
    }
}
