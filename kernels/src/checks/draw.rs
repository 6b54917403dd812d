//! Weights that are drawn where they lie.

use super::{Checked, same_bits};
use crate::ops::embed;
use crate::{Device, Draw, Format, Matrix};

pub fn drawn_weights_are_the_processors(device: &Device) -> Checked {
    for (format, n, k) in [(Format::F32, 5, 7), (Format::F16, 33, 64), (Format::BF16, 260, 8), (Format::BF16, 1, 1)] {
        let draw = Draw { key: 0x1234_5678_9abc_def0, reach: 0.37 };
        let rows: Vec<u32> = (0..n as u32).collect();
        let read = |device: &Device| {
            let mut numbers = vec![f32::NAN; n * k];
            let matrix = Matrix::drawn(device, format, n, k, draw).map_err(|error| error.to_string())?;
            embed::embedding(device, &mut numbers, &matrix, &rows).map_err(|error| error.to_string())?;
            Ok::<_, String>(numbers)
        };
        same_bits(&read(device)?, &read(&Device::cpu(1))?, &format!("{format:?} [{n}, {k}]"))?;
    }
    Ok(())
}
