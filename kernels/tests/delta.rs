//! The gated delta rule against its definition in double precision, and the states in the blocks of the cache.

mod reference;

use lifelong_kernels::ops::delta::{self, DeltaInputs, DeltaShape, DeltaWeights, HeadOrder};
use lifelong_kernels::ops::kv;
use lifelong_kernels::{BLOCK_TOKENS, Device, KvCache, KvGeometry, KvType, Segment};
use reference::*;

const SHAPES: [DeltaShape; 3] = [
    DeltaShape { key_heads: 2, value_heads: 4, key_dim: 8, value_dim: 12, kernel: 4, order: HeadOrder::Grouped },
    DeltaShape { key_heads: 1, value_heads: 1, key_dim: 32, value_dim: 32, kernel: 1, order: HeadOrder::Grouped },
    // More channels than one task takes.
    DeltaShape { key_heads: 4, value_heads: 8, key_dim: 20, value_dim: 64, kernel: 3, order: HeadOrder::Tiled },
];

/// The projections of one text, and weights.
struct Case {
    shape: DeltaShape,
    mixed: Vec<f32>,
    decay: Vec<f32>,
    strength: Vec<f32>,
    convolution: Vec<f32>,
    decay_rate: Vec<f32>,
    decay_bias: Vec<f32>,
}

impl Case {
    fn new(shape: DeltaShape, length: usize, seed: u64) -> Self {
        let times = |values: Vec<f32>, factor: f32| values.iter().map(|value| value * factor).collect::<Vec<f32>>();
        Case {
            shape,
            mixed: times(random(seed, length * shape.channels()), 2.0),
            decay: times(random(seed + 1, length * shape.value_heads), 3.0),
            strength: times(random(seed + 2, length * shape.value_heads), 3.0),
            convolution: random(603, shape.kernel * shape.channels()),
            decay_rate: random(604, shape.value_heads).iter().map(|rate| rate + 1.5).collect(),
            decay_bias: random(605, shape.value_heads),
        }
    }

    fn weights(&self) -> DeltaWeights<'_> {
        let Case { convolution, decay_rate, decay_bias, .. } = self;
        DeltaWeights { convolution, decay_rate, decay_bias }
    }

    fn cache(&self, device: &Device, blocks: usize) -> KvCache {
        let geometry = KvGeometry {
            layers: 1,
            blocks,
            block_tokens: BLOCK_TOKENS,
            kv_heads: 1,
            head_dim: 1,
            kv_type: KvType::F32,
            state_layers: 2,
            state_values: self.shape.state_values(),
        };
        KvCache::new(device, geometry).unwrap()
    }

    /// Computes tokens `from .. to` of this text.
    fn run(&self, device: &Device, cache: &mut KvCache, [from, to]: [usize; 2], tables: &[u32]) -> Vec<f32> {
        let (channels, heads) = (self.shape.channels(), self.shape.value_heads);
        let inputs = DeltaInputs {
            mixed: &self.mixed[from * channels..to * channels],
            decay: &self.decay[from * heads..to * heads],
            strength: &self.strength[from * heads..to * heads],
        };
        let segments = [segment(0, to - from, from, 0..tables.len())];
        step(self.shape, self.weights(), device, cache, inputs, &segments, tables)
    }

    /// The definition, all in double precision.
    fn expected(&self) -> Vec<f64> {
        let DeltaShape { key_heads, value_heads, key_dim, value_dim, kernel, order } = self.shape;
        let channels = self.shape.channels();
        let length = self.mixed.len() / channels;
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let convolved = |token: usize, channel: usize| {
            let seen = (0..kernel).filter(|place| token + place + 1 >= kernel).map(|place| {
                let input = self.mixed[(token + place + 1 - kernel) * channels + channel];
                f64::from(self.convolution[place * channels + channel]) * f64::from(input)
            });
            let sum: f64 = seen.sum();
            sum * sigmoid(sum)
        };
        let unit = |values: Vec<f64>| {
            let length = (values.iter().map(|value| value * value).sum::<f64>() + 1e-6).sqrt();
            values.into_iter().map(|value| value / length).collect::<Vec<f64>>()
        };
        let mut out = vec![0.0; length * value_heads * value_dim];
        for head in 0..value_heads {
            let mut state = vec![vec![0.0f64; value_dim]; key_dim];
            let key_head = key_dim
                * match order {
                    HeadOrder::Grouped => head / (value_heads / key_heads),
                    HeadOrder::Tiled => head % key_heads,
                };
            for token in 0..length {
                let part = |first: usize, count: usize| (first..first + count).map(|at| convolved(token, at)).collect();
                let (query, key) = (unit(part(key_head, key_dim)), unit(part(key_heads * key_dim + key_head, key_dim)));
                let value: Vec<f64> = part(2 * key_heads * key_dim + head * value_dim, value_dim);
                let at = token * value_heads + head;
                let decay = (f64::from(self.decay[at]) + f64::from(self.decay_bias[head])).exp().ln_1p();
                let kept = (-f64::from(self.decay_rate[head]) * decay).exp();
                let strength = sigmoid(f64::from(self.strength[at]));
                state.iter_mut().flatten().for_each(|value| *value *= kept);
                for (column, value) in value.iter().enumerate() {
                    let known: f64 = (0..key_dim).map(|row| state[row][column] * key[row]).sum();
                    (0..key_dim).for_each(|row| state[row][column] += key[row] * (value - known) * strength);
                    let told: f64 = (0..key_dim).map(|row| state[row][column] * query[row]).sum();
                    out[at * value_dim + column] = told / (key_dim as f64).sqrt();
                }
            }
        }
        out
    }
}

fn step(
    shape: DeltaShape,
    weights: DeltaWeights<'_>,
    device: &Device,
    cache: &mut KvCache,
    inputs: DeltaInputs<'_>,
    segments: &[Segment],
    tables: &[u32],
) -> Vec<f32> {
    let mut out = vec![0.0; inputs.decay.len() * shape.value_dim];
    let mut convolved = vec![0.0; inputs.mixed.len()];
    delta::gated_delta(device, &mut out, &mut convolved, inputs, weights, cache, 1, segments, tables, shape).unwrap();
    out
}

#[test]
fn the_rule_is_its_definition() {
    for shape in SHAPES {
        let case = Case::new(shape, 50, 600);
        let expected = case.expected();
        for device in devices(2) {
            let out = case.run(&device, &mut case.cache(&device, 4), [0, 50], &[2, 0, 3, 1]);
            let error = relative_error(&out, &expected);
            assert!(error < 1e-5, "{device:?} {shape:?}: {error}");
        }
    }
}

#[test]
fn chunks_threads_and_instruction_sets_change_no_bit() {
    for shape in SHAPES {
        let case = Case::new(shape, 70, 610);
        let first = &devices(1)[0];
        let whole = case.run(first, &mut case.cache(first, 5), [0, 70], &[4, 3, 2, 1, 0]);
        for device in (1..=3).flat_map(devices) {
            for chunk in [1, 5, 16, 33, 70] {
                let mut cache = case.cache(&device, 5);
                let parts = (0..70).step_by(chunk).map(|start| [start, 70.min(start + chunk)]);
                let out: Vec<f32> =
                    parts.flat_map(|part| case.run(&device, &mut cache, part, &[1, 4, 0, 2, 3])).collect();
                assert_same_bits(&out, &whole, &format!("{device:?} {shape:?} chunks of {chunk}"));
            }
        }
    }
}

/// Texts that go different ways from the same whole blocks, in one step.
#[test]
fn blocks_that_are_shared_are_as_good_as_own_ones() {
    let shape = SHAPES[0];
    let (channels, heads) = (shape.channels(), shape.value_heads);
    let prefix = 2 * BLOCK_TOKENS;
    let mut texts: Vec<Case> =
        (0..3).map(|index| Case::new(shape, prefix + 20 + index, 620 + 10 * index as u64)).collect();
    let (first, rest) = texts.split_first_mut().unwrap();
    for text in rest {
        text.mixed[..prefix * channels].copy_from_slice(&first.mixed[..prefix * channels]);
        text.decay[..prefix * heads].copy_from_slice(&first.decay[..prefix * heads]);
        text.strength[..prefix * heads].copy_from_slice(&first.strength[..prefix * heads]);
    }
    for device in devices(2) {
        let mut cache = texts[0].cache(&device, 9);
        texts[0].run(&device, &mut cache, [0, prefix], &[8, 7]);
        let tables = [8, 7, 0, 1, 8, 7, 2, 3, 8, 7, 4, 5];
        let (mut segments, mut rows) = (Vec::new(), 0);
        let [mut mixed, mut decay, mut strength] = [Vec::new(), Vec::new(), Vec::new()];
        for (index, text) in texts.iter().enumerate() {
            segments.push(segment(rows, 20 + index, prefix, 4 * index..4 * index + 4));
            rows += 20 + index;
            mixed.extend(&text.mixed[prefix * channels..]);
            decay.extend(&text.decay[prefix * heads..]);
            strength.extend(&text.strength[prefix * heads..]);
        }
        let inputs = DeltaInputs { mixed: &mixed, decay: &decay, strength: &strength };
        let out = step(shape, texts[0].weights(), &device, &mut cache, inputs, &segments, &tables);
        let alone: Vec<f32> = texts
            .iter()
            .flat_map(|text| {
                let length = text.decay.len() / heads;
                let out = text.run(&device, &mut text.cache(&device, 4), [0, length], &[0, 1, 2, 3]);
                out[prefix * heads * shape.value_dim..].to_vec()
            })
            .collect();
        assert_same_bits(&out, &alone, &format!("{device:?}"));
        // A copied block carries its state.
        kv::copy_block(&device, &mut cache, 7, 6).unwrap();
        let own = &texts[0];
        let again = own.run(&device, &mut cache, [prefix, prefix + 20], &[8, 6, 0, 1]);
        assert_same_bits(&again, &out[..again.len()], "a copied block");
    }
}

#[test]
fn wrong_shapes_of_states_are_named() {
    let device = Device::cpu(1);
    let case = Case::new(SHAPES[0], 3, 640);
    let inputs = DeltaInputs { mixed: &case.mixed, decay: &case.decay, strength: &case.strength };
    let run = |cache: &mut KvCache, layer: usize, inputs: DeltaInputs<'_>, shape: DeltaShape| {
        let mut out = vec![0.0; 3 * shape.value_heads * shape.value_dim];
        let mut convolved = vec![0.0; case.mixed.len()];
        let segments = [segment(0, 3, 0, 0..1)];
        let weights = case.weights();
        delta::gated_delta(&device, &mut out, &mut convolved, inputs, weights, cache, layer, &segments, &[0], shape)
    };
    let mut cache = case.cache(&device, 1);
    assert!(run(&mut cache, 0, inputs, case.shape).is_ok());
    let other = DeltaShape { value_dim: 20, ..case.shape };
    let few = DeltaInputs { decay: &case.decay[1..], ..inputs };
    for (outcome, word) in [
        (run(&mut cache, 2, inputs, case.shape), "layer 2"),
        (run(&mut cache, 0, inputs, other), "states"),
        (run(&mut cache, 0, few, case.shape), "decay"),
    ] {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }
}

/// Segments are tasks of their own: what one writes no other may touch.
#[test]
fn segments_that_meet_in_a_written_block_are_refused() {
    let device = Device::cpu(2);
    let case = Case::new(SHAPES[0], 4, 650);
    let inputs = DeltaInputs { mixed: &case.mixed, decay: &case.decay, strength: &case.strength };
    let run = |segments: &[Segment], tables: &[u32]| {
        let mut out = vec![0.0; 4 * case.shape.value_heads * case.shape.value_dim];
        let mut convolved = vec![0.0; case.mixed.len()];
        let mut cache = case.cache(&device, 4);
        let weights = case.weights();
        delta::gated_delta(
            &device,
            &mut out,
            &mut convolved,
            inputs,
            weights,
            &mut cache,
            0,
            segments,
            tables,
            case.shape,
        )
    };
    let refused = |segments: &[Segment], tables: &[u32]| run(segments, tables).unwrap_err().to_string();
    let whole = BLOCK_TOKENS;
    let both_write = refused(&[segment(0, 2, 0, 0..1), segment(2, 2, 0, 1..2)], &[3, 3]);
    assert!(both_write.contains("segment 0 writes block 3, which segment 1"), "{both_write}");
    let starts_from = refused(&[segment(0, 2, whole, 0..2), segment(2, 2, whole - 1, 2..4)], &[3, 1, 3, 2]);
    assert!(starts_from.contains("segment 1 writes block 3, which segment 0"), "{starts_from}");
    // From one whole block into blocks of their own.
    run(&[segment(0, 2, whole, 0..2), segment(2, 2, whole, 2..4)], &[3, 1, 3, 2]).unwrap();
}
