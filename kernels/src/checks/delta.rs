//! The gated delta rule, its states included.

use super::inputs::*;
use super::{Checked, Guarded, same_bits};
use crate::ops::delta::{self, DeltaInputs, DeltaShape, DeltaWeights, HeadOrder};
use crate::{BLOCK_TOKENS, Device, KvCache, KvGeometry, KvType, Segment};

const SHAPES: [DeltaShape; 3] = [
    DeltaShape { key_heads: 2, value_heads: 4, key_dim: 8, value_dim: 12, kernel: 4, order: HeadOrder::Grouped },
    DeltaShape { key_heads: 1, value_heads: 1, key_dim: 32, value_dim: 32, kernel: 1, order: HeadOrder::Grouped },
    DeltaShape { key_heads: 3, value_heads: 6, key_dim: 20, value_dim: 50, kernel: 8, order: HeadOrder::Tiled },
];

/// Steps over a cache: two requests from position 0, both go on, one of them inside of a block; a third goes on from the
/// first's first block.
fn steps(device: &Device, shape: DeltaShape) -> Result<Vec<f32>, String> {
    let geometry = KvGeometry {
        layers: 1,
        blocks: 8,
        block_tokens: BLOCK_TOKENS,
        kv_heads: 1,
        head_dim: 1,
        kv_type: KvType::F32,
        state_layers: 2,
        state_values: shape.state_values(),
    };
    let mut cache = KvCache::new(device, geometry).unwrap();
    let tables = [5, 2, 7, 0, 1, 3, 5, 4];
    let plan: [&[Segment]; 3] = [
        &[segment(0, 20, 0, 0..3), segment(20, 16, 0, 3..6)],
        &[segment(0, 1, 20, 0..3), segment(1, 17, 16, 3..6)],
        &[segment(0, 12, 21, 0..3), segment(12, 5, 16, 6..8)],
    ];
    let convolution = random(1103, shape.kernel * shape.channels());
    let decay_rate: Vec<f32> = random(1104, shape.value_heads).iter().map(|rate| rate + 1.5).collect();
    let decay_bias = random(1105, shape.value_heads);
    let weights = DeltaWeights { convolution: &convolution, decay_rate: &decay_rate, decay_bias: &decay_bias };
    let mut all = Vec::new();
    for (index, segments) in plan.into_iter().enumerate() {
        let rows: usize = segments.iter().map(|segment| segment.query_len).sum();
        let seed = 1110 + 3 * index as u64;
        let mixed: Vec<f32> = random(seed, rows * shape.channels()).iter().map(|value| value * 2.0).collect();
        let [decay, strength] = [seed + 1, seed + 2].map(|seed| random(seed, rows * shape.value_heads));
        let inputs = DeltaInputs { mixed: &mixed, decay: &decay, strength: &strength };
        let what = format!("{shape:?}, step {index}");
        let mut out = Guarded::new(rows * shape.value_heads * shape.value_dim);
        let mut convolved = Guarded::new(rows * shape.channels());
        delta::gated_delta(
            device,
            out.values(),
            convolved.values(),
            inputs,
            weights,
            &mut cache,
            1,
            segments,
            &tables,
            shape,
        )
        .map_err(|error| format!("{what}: {error}"))?;
        all.extend(out.taken(&what)?);
        all.extend(convolved.taken(&what)?);
    }
    Ok(all)
}

pub fn the_delta_rule_has_the_processors_bits(device: &Device) -> Checked {
    for shape in SHAPES {
        let expected = steps(&Device::cpu(1), shape)?;
        same_bits(&steps(device, shape)?, &expected, &format!("{shape:?}"))?;
    }
    Ok(())
}
