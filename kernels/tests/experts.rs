//! What mixtures of experts and their models need: routes, weighted sums, the clamped gate, sinks, 4-bit floats; against
//! naive references, on every instruction set, rows alone and together.

mod reference;

use lifelong_kernels::ops::attention::{self, AttentionShape};
use lifelong_kernels::ops::experts::{self, Shares};
use lifelong_kernels::ops::matmul::{self, Precision};
use lifelong_kernels::ops::{activation, embed, kv};
use lifelong_kernels::{BLOCK_TOKENS, Device, ExpertWeights, Format, KvCache, KvGeometry, KvType, Matrix, Routes};
use reference::*;

fn routes(device: &Device, logits: &[f32], experts: usize, count: usize, shares: Shares) -> Routes {
    let mut routes = Routes::default();
    experts::route(device, &mut routes, logits, experts, count, shares).unwrap();
    routes
}

fn route(device: &Device, logits: &[f32], experts: usize, count: usize, shares: Shares) -> (Vec<u32>, Vec<f32>) {
    let routes = routes(device, logits, experts, count, shares);
    (routes.chosen().to_vec(), routes.shares().to_vec())
}

#[test]
fn routes_are_the_largest_logits_and_their_shares() {
    for (experts, count, tokens) in [(8, 2, 5), (128, 8, 33), (20, 20, 3), (1, 1, 2)] {
        let logits: Vec<f32> = random(500 + experts as u64, tokens * experts).iter().map(|logit| logit * 6.0).collect();
        for shares in [Shares::OfAll, Shares::OfChosen] {
            for device in devices(2) {
                let (chosen, share) = route(&device, &logits, experts, count, shares);
                for (token, row) in logits.chunks_exact(experts).enumerate() {
                    let mut order: Vec<usize> = (0..experts).collect();
                    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
                    let power = |expert: &usize| f64::from(row[*expert]).exp();
                    let sum: f64 = match shares {
                        Shares::OfAll => order.iter().map(power).sum(),
                        Shares::OfChosen => order[..count].iter().map(power).sum(),
                    };
                    let expected: Vec<f64> = order[..count].iter().map(|expert| power(expert) / sum).collect();
                    let found: Vec<usize> =
                        chosen[token * count..][..count].iter().map(|expert| *expert as usize).collect();
                    assert_eq!(found, order[..count], "{device:?} {experts} experts");
                    let error = relative_error(&share[token * count..][..count], &expected);
                    assert!(error < 1e-6, "{device:?} {experts} experts {shares:?}: {error}");
                }
                let alone: Vec<f32> = logits
                    .chunks_exact(experts)
                    .flat_map(|row| route(&device, row, experts, count, shares).1)
                    .collect();
                assert_same_bits(&share, &alone, "rows alone and together");
                let first = &devices(1)[0];
                assert_same_bits(&share, &route(first, &logits, experts, count, shares).1, "instruction sets");
            }
        }
    }
}

#[test]
fn of_equal_logits_the_lower_number_is_chosen_first() {
    let logits = [1.0, 3.0, 3.0, 0.5, 3.0, 1.0, f32::NAN, 0.0];
    for device in devices(1) {
        let (chosen, share) = route(&device, &logits, 8, 4, Shares::OfChosen);
        assert_eq!(chosen, [1, 2, 4, 0]);
        assert!(share[0] == share[1] && share[1] == share[2] && share[3] < share[2]);
        assert_eq!(route(&device, &[-0.0, 0.0, -0.0], 3, 2, Shares::OfChosen).0, [0, 1]);
        // What is no number is chosen only when nothing else is left.
        assert_eq!(route(&device, &logits, 8, 8, Shares::OfChosen).0, [1, 2, 4, 0, 5, 3, 7, 6]);
    }
}

#[test]
fn rows_go_to_experts_and_come_back_weighted() {
    let (hidden, tokens, experts, count) = (37, 9, 5, 3);
    let (x, logits) = (random(510, tokens * hidden), random(511, tokens * experts));
    for device in devices(2) {
        let routes = routes(&device, &logits, experts, count, Shares::OfAll);
        let visited: Vec<u32> = routes.rows().to_vec();
        let mut dispatched = vec![0.0; routes.visits() * hidden];
        experts::dispatch(&device, &mut dispatched, &x, &routes, hidden).unwrap();
        let expected: Vec<f32> =
            visited.iter().flat_map(|row| &x[*row as usize * hidden..][..hidden]).copied().collect();
        assert_same_bits(&dispatched, &expected, "dispatched");
        let mut gathered = vec![0.0; dispatched.len()];
        experts::gather(&device, &mut gathered, &x, &visited, hidden).unwrap();
        assert_same_bits(&gathered, &expected, "gathered");
        // What comes back is another number for every visit.
        let y = random(512, dispatched.len());
        let mut out = vec![0.0; tokens * hidden];
        experts::combine(&device, &mut out, &y, &routes, hidden).unwrap();
        for (token, out) in out.chunks_exact(hidden).enumerate() {
            let chosen = token * count..(token + 1) * count;
            let place = |visit: usize| routes.places()[visit] as usize;
            let expected: Vec<f64> = (0..hidden)
                .map(|at| {
                    let value = |visit: usize| f64::from(y[place(visit) * hidden + at]);
                    chosen.clone().map(|visit| f64::from(routes.shares()[visit]) * value(visit)).sum()
                })
                .collect();
            assert!(relative_error(out, &expected) < 1e-6, "{device:?} token {token}");
            assert!(chosen.clone().all(|visit| visited[place(visit)] as usize == token));
            let row = &logits[token * experts..][..experts];
            let own = own_routes(&device, row, experts, count);
            let y: Vec<f32> = (0..count)
                .flat_map(|at| {
                    let visit = own.places().iter().position(|place| *place as usize == at).unwrap();
                    &y[place(token * count + visit) * hidden..][..hidden]
                })
                .copied()
                .collect();
            let mut alone = vec![0.0; hidden];
            experts::combine(&device, &mut alone, &y, &own, hidden).unwrap();
            assert_same_bits(out, &alone, "a token alone");
        }
    }
}

fn own_routes(device: &Device, logits: &[f32], experts: usize, count: usize) -> Routes {
    routes(device, logits, experts, count, Shares::OfAll)
}

/// Each visit has the bits of a product with its expert's weights alone, of whatever format and with whatever beside it.
#[test]
fn products_of_experts_are_those_of_each_alone() {
    let (tokens, experts, count, n, k) = (23, 6, 2, 37, 64);
    // Nobody goes to expert 4.
    let logits: Vec<f32> = random(515, tokens * experts)
        .iter()
        .enumerate()
        .map(|(at, x)| if at % experts == 4 { -9.0 } else { *x })
        .collect();
    let x = random(516, tokens * count * k);
    for format in [Format::F32, Format::BF16, Format::Q8_0, Format::MXFP4] {
        let matrices = || -> Vec<Matrix> {
            let bytes = |expert: usize| -> Vec<u8> {
                let weights = random(600 + expert as u64, n * k);
                match format {
                    Format::F32 => weights.iter().flat_map(|weight| weight.to_le_bytes()).collect(),
                    Format::BF16 => {
                        weights.iter().flat_map(|weight| half::bf16::from_f32(*weight).to_le_bytes()).collect()
                    }
                    _ => quantise(format, n, k, &weights).0,
                }
            };
            (0..experts).map(|expert| Matrix::from_bytes(format, n, k, &bytes(expert)).unwrap()).collect()
        };
        let biases = random(517, experts * n);
        for device in devices(2) {
            let routes = routes(&device, &logits, experts, count, Shares::OfChosen);
            let [plain, biased] =
                [None, Some(biases.clone())].map(|biases| ExpertWeights::new(&device, matrices(), biases).unwrap());
            let (mut first, mut second) = (vec![0.0; x.len() / k * n], vec![0.0; x.len() / k * n]);
            let mut products = [(first.as_mut_slice(), &plain), (second.as_mut_slice(), &biased)];
            experts::linear_each(&device, &mut products, &x, &routes).unwrap();
            let alone = matrices();
            for (visit, expert) in routes.chosen().iter().enumerate() {
                assert_ne!(*expert, 4);
                let place = routes.places()[visit] as usize;
                let (expert, x, mut out) = (*expert as usize, &x[place * k..][..k], vec![0.0; n]);
                matmul::linear(&device, &mut out, x, &alone[expert]).unwrap();
                assert_same_bits(&first[place * n..][..n], &out, "without a bias");
                matmul::linear_bias(&device, &mut out, x, &alone[expert], &biases[expert * n..][..n]).unwrap();
                assert_same_bits(&second[place * n..][..n], &out, "with one");
            }
        }
    }
}

#[test]
fn wrong_operands_of_experts_are_named() {
    let device = Device::cpu(1);
    let route = |logits: usize, count: usize| {
        experts::route(&device, &mut Routes::default(), &vec![0.0; logits], 4, count, Shares::OfAll)
    };
    assert!(route(8, 2).is_ok() && route(0, 1).is_ok());
    let routes = routes(&device, &[0.0; 8], 4, 1, Shares::OfAll);
    let matrix = |n: usize| Matrix::from_f32(n, 2, &vec![0.5; 2 * n]).unwrap();
    let weights = |count: usize| ExpertWeights::new(&device, (0..count).map(|_| matrix(3)).collect(), None).unwrap();
    let product = |weights: &ExpertWeights, out: usize, x: usize| {
        experts::linear_each(&device, &mut [(&mut vec![0.0; out], weights)], &vec![0.0; x], &routes)
    };
    assert!(product(&weights(4), 6, 4).is_ok());
    for (outcome, word) in [
        (route(7, 2), "logits"),
        (route(8, 5), "5 of 4 experts"),
        (route(8, 0), "0 of 4 experts"),
        (experts::gather(&device, &mut [0.0; 4], &[0.0; 8], &[0, 4], 2), "row 4"),
        (experts::dispatch(&device, &mut [0.0; 4], &[0.0; 6], &routes, 2), "`x`"),
        (experts::dispatch(&device, &mut [0.0; 6], &[0.0; 4], &routes, 2), "`out`"),
        (experts::combine(&device, &mut [0.0; 6], &[0.0; 4], &routes, 2), "`out`"),
        (experts::combine(&device, &mut [0.0; 4], &[0.0; 6], &routes, 2), "`y`"),
        (product(&weights(3), 6, 4), "weights of 3 experts, routes to 4"),
        (product(&weights(4), 5, 4), "`out`"),
        (product(&weights(4), 6, 5), "`x`"),
        (ExpertWeights::new(&device, Vec::new(), None).map(drop), "no experts"),
        (ExpertWeights::new(&device, vec![matrix(3), matrix(2)], None).map(drop), "Matrix [2, 2] F32 beside"),
        (ExpertWeights::new(&device, vec![matrix(3)], Some(vec![0.0; 2])).map(drop), "biases"),
    ] {
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(word), "{message}");
    }
}

#[test]
fn the_clamped_gate() {
    let gate: Vec<f32> = (-3000..3001).map(|i| i as f32 * 0.005).chain([-1e30, 1e30, 7.0, -7.0]).collect();
    let up: Vec<f32> = random(520, gate.len()).iter().map(|up| up * 10.0).collect();
    for device in devices(2) {
        let mut out = vec![0.0; gate.len()];
        activation::swiglu_clamped(&device, &mut out, &gate, &up, 1.702, 7.0).unwrap();
        for ((found, gate), up) in out.iter().zip(&gate).zip(&up) {
            let (g, u) = (f64::from(*gate).min(7.0), f64::from(*up).clamp(-7.0, 7.0));
            let expected = (u + 1.0) * g / (1.0 + (-f64::from(1.702f32) * g).exp());
            let error = (f64::from(*found) - expected).abs();
            assert!(error <= 5e-7 * expected.abs() + 5e-7, "{device:?} {gate} {up}: {found}, expected {expected}");
        }
    }
}

#[test]
fn gates_by_sigmoid() {
    let (hidden, tokens) = (37, 5);
    let [x, y, gate] = [540, 541, 542].map(|seed| random(seed, tokens * hidden));
    let sigmoid = |x: f32| 1.0 / (1.0 + (-f64::from(x) * 4.0).exp());
    let gate: Vec<f32> = gate.iter().map(|gate| gate * 4.0).collect();
    for device in devices(2) {
        let mut out = x.clone();
        activation::sigmoid_gate(&device, &mut out, &gate).unwrap();
        let expected: Vec<f64> = x.iter().zip(&gate).map(|(x, gate)| f64::from(*x) * sigmoid(gate / 4.0)).collect();
        assert!(relative_error(&out, &expected) < 1e-6, "{device:?} element-wise");
        let mut out = x.clone();
        experts::add_shared(&device, &mut out, &y, &gate[..tokens], hidden).unwrap();
        let expected: Vec<f64> =
            (0..out.len()).map(|at| f64::from(x[at]) + sigmoid(gate[at / hidden] / 4.0) * f64::from(y[at])).collect();
        assert!(relative_error(&out, &expected) < 1e-6, "{device:?} shared");
    }
}

/// Every number of the format at every scale that is one.
#[test]
fn four_bit_floats_are_read_exactly() {
    let (n, k) = (255, 32);
    let codes: Vec<u8> = (0..16u8).map(|index| index | (15 - index) << 4).collect();
    let bytes: Vec<u8> = (0..n as u8).flat_map(|scale| std::iter::once(scale).chain(codes.clone())).collect();
    let table = Matrix::from_bytes(Format::MXFP4, n, k, &bytes).unwrap();
    const NUMBERS: [f64; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let mut out = vec![0.0; n * k];
    let rows: Vec<u32> = (0..n as u32).collect();
    embed::embedding(&Device::cpu(1), &mut out, &table, &rows).unwrap();
    for (scale, row) in out.chunks_exact(k).enumerate() {
        for (index, found) in row.iter().enumerate() {
            let code = if index < 16 { index } else { 31 - index };
            let sign = if code < 8 { 1.0 } else { -1.0 };
            // Exact in double precision; the largest two scales pass the range of f32.
            let expected = (sign * NUMBERS[code & 7] * 2f64.powi(scale as i32 - 127)) as f32;
            assert_eq!(*found, expected, "scale {scale}, code {code}");
        }
    }
    // Without the two smallest scales the nibbles are kept as they are.
    let table = Matrix::from_bytes(Format::MXFP4, n - 2, k, &bytes[34..]).unwrap();
    assert_eq!(table.bytes() * 32, table.rows().next_multiple_of(16) * k * 17);
    let mut packed = vec![0.0; (n - 2) * k];
    embed::embedding(&Device::cpu(1), &mut packed, &table, &rows[..n - 2]).unwrap();
    assert!(packed.iter().zip(&out[2 * k..]).all(|(a, b)| a == b));
    let broken = [255; 17];
    let table = Matrix::from_bytes(Format::MXFP4, 1, 32, &broken).unwrap();
    embed::embedding(&Device::cpu(1), &mut out[..32], &table, &[0]).unwrap();
    assert!(out[..32].iter().all(|value| value.is_nan()));
}

/// Nibbles give the bits that a byte a level gives: a scale of 1 in a row further down makes the whole matrix take bytes.
#[test]
fn four_bit_floats_are_multiplied_in_four_bits() {
    let (n, k) = (37, 320);
    let block = |row: usize, group: usize| {
        let nibbles = (0..16).map(move |index| (((row * 31 + group * 7 + index * 13) * 2_654_435_761) >> 7) as u8);
        std::iter::once(118 + ((row + group) % 17) as u8).chain(nibbles)
    };
    let bytes: Vec<u8> = (0..n).flat_map(|row| (0..k / 32).flat_map(move |group| block(row, group))).collect();
    let wide: Vec<u8> = bytes.iter().copied().chain(std::iter::repeat_n(1, 17 * k / 32)).collect();
    let packed = Matrix::from_bytes(Format::MXFP4, n, k, &bytes).unwrap();
    let unpacked = Matrix::from_bytes(Format::MXFP4, n + 1, k, &wide).unwrap();
    assert!(packed.bytes() * 2 < unpacked.bytes(), "{} of {}", packed.bytes(), unpacked.bytes());
    for (rows, precision) in
        [1, 2, 5, 8, 19].into_iter().flat_map(|rows| [(rows, Precision::Bits8), (rows, Precision::Bits16)])
    {
        let x = random(77, rows * k);
        let mut first: Option<Vec<u32>> = None;
        for device in devices(2) {
            let product = |matrix: &Matrix| {
                let mut out = vec![0.0; rows * matrix.rows()];
                matmul::linear_each(&device, &mut [(&mut out, matrix)], &x, precision).unwrap();
                let kept = out.chunks_exact(matrix.rows()).flat_map(|row| &row[..n]);
                kept.map(|value| value.to_bits()).collect::<Vec<u32>>()
            };
            let found = product(&packed);
            assert!(found == product(&unpacked), "{device:?}, {rows} rows, {precision:?}");
            assert!(first.get_or_insert_with(|| found.clone()) == &found, "{device:?}, {rows} rows, {precision:?}");
        }
    }
}

const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const DIM: usize = 24;

struct Context {
    cache: KvCache,
    keys: Vec<f32>,
    values: Vec<f32>,
    tables: Vec<u32>,
}

fn context(device: &Device, length: usize) -> Context {
    let blocks = length.div_ceil(BLOCK_TOKENS);
    let geometry = KvGeometry {
        layers: 1,
        blocks,
        block_tokens: BLOCK_TOKENS,
        kv_heads: KV_HEADS,
        head_dim: DIM,
        kv_type: KvType::F32,
        state_layers: 0,
        state_values: 0,
    };
    let mut cache = KvCache::new(device, geometry).unwrap();
    let tables: Vec<u32> = (0..blocks as u32).rev().collect();
    let [keys, values] = [530, 531].map(|seed| random(seed, length * KV_HEADS * DIM));
    kv::write(device, &mut cache, 0, &keys, &values, &[segment(0, length, 0, 0..blocks)], &tables).unwrap();
    Context { cache, keys, values, tables }
}

fn attend_with(
    device: &Device,
    context: &Context,
    q: &[f32],
    at: usize,
    sinks: &[f32],
    window: Option<usize>,
) -> Vec<f32> {
    let mut out = vec![0.0; q.len()];
    let shape = AttentionShape { heads: HEADS, kv_heads: KV_HEADS, head_dim: DIM, scale: 0.3, window };
    let rows = [segment(0, q.len() / (HEADS * DIM), at, 0..context.tables.len())];
    let (cache, tables) = (&context.cache, &context.tables);
    attention::paged_with_sinks(device, &mut out, q, sinks, cache, 0, &rows, tables, shape).unwrap();
    out
}

#[test]
fn a_sink_is_one_more_logit_without_a_value() {
    // On both sides of a split of 256 keys; sinks below, among and far above the scores.
    for (length, window) in [(1, None), (20, Some(7)), (300, None), (600, Some(300))] {
        let fresh = 3.min(length);
        let q = random(532, fresh * HEADS * DIM);
        let sinks = [-2.0, 0.0, 1.5, 4.0, 90.0, -90.0];
        for device in devices(2) {
            let context = context(&device, length);
            let out = attend_with(&device, &context, &q, length - fresh, &sinks, window);
            for (token, head) in (0..fresh).flat_map(|token| (0..HEADS).map(move |head| (token, head))) {
                let end = length - fresh + token + 1;
                let seen = end.saturating_sub(window.unwrap_or(end))..end;
                let at = (token * HEADS + head) * DIM;
                let q = &q[at..][..DIM];
                let row = |x: &[f32], p: usize| x[(p * KV_HEADS + head / 3) * DIM..][..DIM].to_vec();
                // The sink as a key of its own: along a new dimension that only it has, its value zero.
                let widened = |mut x: Vec<f32>, last: f32| {
                    x.push(last);
                    x
                };
                let mut keys: Vec<_> = seen.clone().map(|p| widened(row(&context.keys, p), 0.0)).collect();
                let mut values: Vec<_> = seen.map(|p| widened(row(&context.values, p), 0.0)).collect();
                keys.push(widened(vec![0.0; DIM], sinks[head] / 0.3));
                values.push(vec![0.0; DIM + 1]);
                let expected = attend(&widened(q.to_vec(), 1.0), &keys, &values, 0.3f32.into());
                let largest = context.values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
                for (found, expected) in out[at..][..DIM].iter().zip(&expected) {
                    let error = (f64::from(*found) - expected).abs() / f64::from(largest);
                    assert!(error < 1e-5, "{device:?} length {length} token {token} head {head}: {error}");
                }
            }
        }
    }
}

#[test]
fn rows_with_sinks_are_their_own() {
    let length = 600;
    let sinks = random(533, HEADS);
    let q = random(534, 40 * HEADS * DIM);
    for window in [None, Some(50)] {
        let first = &devices(1)[0];
        let together = attend_with(first, &context(first, length), &q, length - 40, &sinks, window);
        for device in (1..=3).flat_map(devices) {
            let context = context(&device, length);
            let alone: Vec<f32> = q
                .chunks_exact(HEADS * DIM)
                .enumerate()
                .flat_map(|(token, q)| attend_with(&device, &context, q, length - 40 + token, &sinks, window))
                .collect();
            assert_same_bits(&alone, &together, &format!("{device:?}"));
        }
    }
}

#[test]
fn a_sink_far_below_every_score_changes_no_bit() {
    let (length, q) = (300, random(535, 2 * HEADS * DIM));
    for device in devices(2) {
        let context = context(&device, length);
        let shape = AttentionShape { heads: HEADS, kv_heads: KV_HEADS, head_dim: DIM, scale: 0.3, window: None };
        let rows = [segment(0, 2, length - 2, 0..context.tables.len())];
        let mut without = vec![0.0; q.len()];
        attention::paged(&device, &mut without, &q, &context.cache, 0, &rows, &context.tables, shape).unwrap();
        let with = attend_with(&device, &context, &q, length - 2, &[-1e30; HEADS], None);
        assert_same_bits(&with, &without, &format!("{device:?}"));
        let (cache, tables) = (&context.cache, &context.tables);
        let few = attention::paged_with_sinks(&device, &mut without, &q, &[0.0; 2], cache, 0, &rows, tables, shape);
        assert!(few.unwrap_err().to_string().contains("sinks"));
    }
}
