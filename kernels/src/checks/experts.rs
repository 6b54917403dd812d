//! Mixtures of experts: routes, products of all experts at once, and the way there and back.

use super::elementwise::{compare, text};
use super::inputs::*;
use super::{Checked, Guarded, same_bits};
use crate::ops::experts::{self, Shares};
use crate::ops::matmul;
use crate::{Device, ExpertWeights, Format, Matrix, Routes};

fn same_numbers(found: &[u32], expected: &[u32], what: &str) -> Checked {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found:?}, expected {expected:?}")),
    }
}

/// Experts, shares and the order of visits, of equal logits and of some that are no numbers; more visits than a block of
/// threads, and a smaller step after a larger one.
pub fn routes(device: &Device) -> Checked {
    let (mut found, mut expected) = (Routes::default(), Routes::default());
    for (tokens, count, chosen) in
        [(1, 1, 1), (3, 8, 2), (2, 33, 33), (5, 128, 8), (150, 6, 2), (2, 500, 40), (0, 4, 2), (70, 3, 1)]
    {
        let mut logits: Vec<f32> = random(11, tokens * count).iter().map(|logit| (logit * 6.0).round() / 2.0).collect();
        for special in [false, true] {
            if special {
                let odd = [f32::NAN, f32::NEG_INFINITY, 0.0, -0.0];
                logits.iter_mut().skip(1).step_by(3).zip(odd.iter().cycle()).for_each(|(logit, odd)| *logit = *odd);
            }
            for shares in [Shares::OfAll, Shares::OfChosen] {
                experts::route(device, &mut found, &logits, count, chosen, shares).map_err(text)?;
                experts::route(&Device::cpu(1), &mut expected, &logits, count, chosen, shares).map_err(text)?;
                device.synchronize().map_err(text)?;
                let what = |part: &str| format!("{part} of {tokens} rows, {chosen} of {count} experts, {shares:?}");
                same_numbers(found.chosen(), expected.chosen(), &what("experts"))?;
                same_bits(found.shares(), expected.shares(), &what("shares"))?;
                same_numbers(found.rows(), expected.rows(), &what("rows"))?;
                same_numbers(found.places(), expected.places(), &what("places"))?;
            }
        }
    }
    Ok(())
}

/// Rows at the places of their visits, and what comes back summed by shares.
pub fn experts_and_back(device: &Device) -> Checked {
    let (tokens, count, chosen, hidden) = (5, 7, 3, 300);
    let (x, y) = (random(12, tokens * hidden), random(13, tokens * chosen * hidden));
    let logits = random(14, tokens * count);
    let routed = |device: &Device| {
        let mut routes = Routes::default();
        experts::route(device, &mut routes, &logits, count, chosen, Shares::OfChosen).map(|()| routes)
    };
    let (gathered, out) = (vec![f32::NAN; y.len()], vec![f32::NAN; x.len()]);
    compare(device, "dispatch", &[&gathered], &[&x], |device, out, x| {
        experts::dispatch(device, out[0], x[0], &routed(device)?, hidden)
    })?;
    compare(device, "combine", &[&out], &[&y], |device, out, y| {
        experts::combine(device, out[0], y[0], &routed(device)?, hidden)
    })?;
    let rows = [4u32, 0, 4, 2];
    let gathered = vec![f32::NAN; rows.len() * hidden];
    compare(device, "gather", &[&gathered], &[&x], |device, out, x| {
        experts::gather(device, out[0], x[0], &rows, hidden)
    })?;
    let gate = random(15, tokens);
    compare(device, "shared", &[&x], &[&y[..x.len()], &gate], |device, out, x| {
        experts::add_shared(device, out[0], x[0], x[1], hidden)
    })
}

/// How the rows of a step are spread over experts.
struct Spread {
    name: &'static str,
    tokens: usize,
    experts: usize,
    chosen: usize,
    /// The logit of an expert for a row.
    logit: fn(usize, usize) -> f32,
}

/// Experts without a row, rows of one expert alone, ends of tiles of 8 and of 64 rows.
const SPREADS: [Spread; 5] = [
    Spread {
        name: "one row",
        tokens: 1,
        experts: 6,
        chosen: 2,
        logit: |_, expert| [0.0, 3.0, 1.0, 0.0, 2.0, 0.0][expert],
    },
    Spread {
        name: "every other expert",
        tokens: 5,
        experts: 8,
        chosen: 2,
        logit: |row, expert| ((row * 5 + expert * 3) % 7) as f32 - 20.0 * (expert % 2) as f32,
    },
    Spread {
        name: "all to one of many",
        tokens: 9,
        experts: 5,
        chosen: 1,
        logit: |_, expert| [0.0, 0.0, 1.0, 0.0, 0.0][expert],
    },
    Spread { name: "all to the last", tokens: 67, experts: 3, chosen: 1, logit: |_, expert| expert as f32 },
    Spread {
        name: "uneven",
        tokens: 76,
        experts: 3,
        chosen: 2,
        logit: |row, expert| [if row < 2 { 5.0 } else { 0.0 }, 3.0, (row % 3) as f32][expert],
    },
];

struct Layer {
    experts: ExpertWeights,
    alone: Vec<Matrix>,
    biases: Option<Vec<f32>>,
}

fn layer(device: &Device, format: Format, seed: u64, spread: &Spread, [n, k]: [usize; 2], biased: bool) -> Layer {
    let matrix =
        |expert: usize| Matrix::on(device, format, n, k, &weights(format, seed + expert as u64, n, k)).unwrap();
    let matrices = || (0..spread.experts).map(matrix).collect::<Vec<Matrix>>();
    let biases = biased.then(|| random(seed + 99, spread.experts * n));
    let experts = ExpertWeights::new(device, matrices(), biases.clone()).unwrap();
    Layer { experts, alone: matrices(), biases }
}

/// Every expert's rows in a launch of all have the bits that a product with this expert alone gives them; those of
/// quantised and of f32 weights have the processor's too.
pub fn products_of_all_experts_are_those_of_each(device: &Device) -> Checked {
    for (index, (format, k)) in [
        (Format::F32, 37),
        (Format::BF16, 72),
        (Format::F16, 296),
        (Format::BF16, 37),
        (Format::MXFP4, 96),
        (Format::Q8_0, 64),
        (Format::Q4K, 256),
        (Format::Q6K, 256),
    ]
    .into_iter()
    .enumerate()
    {
        for spread in &SPREADS {
            // The widest tiles are slow to emulate: one spread of them for each form.
            if spread.tokens == 67 && index % 2 == 0 || spread.tokens == 76 && matches!(format, Format::Q4K) {
                continue;
            }
            check_spread(device, format, k, spread)?;
        }
    }
    Ok(())
}

/// Where rows went, the layers that multiplied them, and the products of each.
type Computed = (Routes, Vec<Layer>, Vec<Vec<f32>>);

fn check_spread(device: &Device, format: Format, k: usize, spread: &Spread) -> Checked {
    let cpu = Device::cpu(1);
    let Spread { name, tokens, experts: count, chosen, logit } = *spread;
    let logits: Vec<f32> = (0..tokens * count).map(|at| logit(at / count, at % count)).collect();
    let x = random_with_outliers(990, tokens * chosen * k);
    // Two projections of the same rows, of which one adds vectors; less than a tile of rows, and more than one.
    let shapes = [([20, k], true), ([70, k], false)];
    let what = format!("{format:?} [{k}], {name}");
    let run = |device: &Device| -> Result<Computed, String> {
        let failed = |error| format!("{what}: {error}");
        let mut routes = Routes::default();
        experts::route(device, &mut routes, &logits, count, chosen, Shares::OfChosen).map_err(failed)?;
        let layers: Vec<Layer> = shapes
            .iter()
            .zip([31, 57])
            .map(|((shape, biased), seed)| layer(device, format, seed, spread, *shape, *biased))
            .collect();
        let mut outs: Vec<Guarded> = shapes.iter().map(|([n, _], _)| Guarded::new(routes.visits() * n)).collect();
        let mut products: Vec<(&mut [f32], &ExpertWeights)> =
            outs.iter_mut().zip(&layers).map(|(out, layer)| (out.values(), &layer.experts)).collect();
        experts::linear_each(device, &mut products, &x, &routes).map_err(failed)?;
        let outs = outs.into_iter().map(|out| out.taken(&what)).collect::<Result<_, _>>()?;
        device.synchronize().map_err(failed)?;
        Ok((routes, layers, outs))
    };
    let (routes, layers, found) = run(device)?;
    for (layer, found) in layers.iter().zip(&found) {
        let n = layer.experts.rows();
        for (expert, matrix) in layer.alone.iter().enumerate() {
            let places = |visit: &usize| routes.chosen()[*visit] as usize == expert;
            for visit in (0..routes.visits()).filter(places) {
                let place = routes.places()[visit] as usize;
                let (mut alone, x) = (vec![0.0; n], &x[place * k..][..k]);
                let bias = layer.biases.as_ref().map(|biases| &biases[expert * n..][..n]);
                let outcome = match bias {
                    Some(bias) => matmul::linear_bias(device, &mut alone, x, matrix, bias),
                    None => matmul::linear(device, &mut alone, x, matrix),
                };
                outcome.map_err(text)?;
                same_bits(&found[place * n..][..n], &alone, &format!("{what}: visit {visit} to expert {expert}"))?;
            }
        }
    }
    if matches!(format, Format::BF16 | Format::F16) && k.is_multiple_of(8) {
        return Ok(());
    }
    let (_, _, expected) = run(&cpu)?;
    found.iter().zip(&expected).try_for_each(|(found, expected)| same_bits(found, expected, &what))
}
