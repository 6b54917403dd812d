//! Products with weights of every format.

use half::{bf16, f16};

use super::inputs::*;
use super::{Checked, Guarded, same_bits};
use crate::ops::matmul::{self, Precision};
use crate::{Device, Format, Matrix};

const QUANTISED: [Format; 14] = [
    Format::Q4_0,
    Format::Q4_1,
    Format::Q5_0,
    Format::Q5_1,
    Format::Q8_0,
    Format::Q2K,
    Format::Q3K,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
    Format::Q8K,
    Format::MXFP4,
    Format::IQ4_NL,
    Format::IQ4_XS,
];

fn product(device: &Device, w: &Matrix, x: &[f32], precision: Precision, what: &str) -> Result<Vec<f32>, String> {
    let mut out = Guarded::new(x.len() / w.columns() * w.rows());
    matmul::linear_each(device, &mut [(out.values(), w)], x, precision).map_err(|error| format!("{what}: {error}"))?;
    out.taken(what)
}

/// Integers are exact and groups are added in order: the processor's bits.
pub fn quantised_products_have_the_processors_bits(device: &Device) -> Checked {
    let cpu = Device::cpu(1);
    for (index, format) in QUANTISED.into_iter().enumerate() {
        // Less than a tile of rows, more groups than a slab; less than a slab.
        let shapes = if format.block_values() == 32 { [(20, 34 * 32), (130, 96)] } else { [(20, 5 * 256), (130, 256)] };
        for (n, k) in shapes {
            let seed = 900 + 10 * index as u64;
            let bytes = weights(format, seed, n, k);
            let on_cpu = Matrix::from_bytes(format, n, k, &bytes).unwrap();
            let on_device = Matrix::on(device, format, n, k, &bytes).unwrap();
            for (tokens, precision) in
                [(1, Precision::Bits8), (9, Precision::Bits16), (70, Precision::Bits8), (40, Precision::Bits16)]
            {
                // The widest tile is slow to emulate; one format of each form goes there.
                let is_first_of_form = matches!(format, Format::Q4_1 | Format::Q8_0 | Format::Q6K);
                if tokens > 32 && (!is_first_of_form || n == 130) {
                    continue;
                }
                let what = format!("{format:?} [{n}, {k}] {precision:?}, {tokens} rows");
                let x = random_with_outliers(seed + 1, tokens * k);
                let expected = product(&cpu, &on_cpu, &x, precision, &what)?;
                same_bits(&product(device, &on_device, &x, precision, &what)?, &expected, &what)?;
            }
        }
    }
    Ok(())
}

/// One chain over k: the processor's bits, of f16 and bf16 too where rows begin off the borders of 16 bytes.
pub fn plain_products_have_the_processors_bits(device: &Device) -> Checked {
    let cpu = Device::cpu(1);
    for (format, n, k) in [(Format::F32, 70, 64), (Format::F32, 3, 37), (Format::F16, 70, 37), (Format::BF16, 9, 3)] {
        let bytes = stored(format, &random(940, n * k));
        let on_cpu = Matrix::from_bytes(format, n, k, &bytes).unwrap();
        let on_device = Matrix::on(device, format, n, k, &bytes).unwrap();
        for tokens in [1, 17] {
            let what = format!("{format:?} [{n}, {k}], {tokens} rows");
            let x = random_with_outliers(941, tokens * k);
            let expected = product(&cpu, &on_cpu, &x, Precision::Bits8, &what)?;
            same_bits(&product(device, &on_device, &x, Precision::Bits8, &what)?, &expected, &what)?;
        }
    }
    Ok(())
}

fn read(format: Format, value: f32) -> f32 {
    if format == Format::F16 { f16::from_f32(value).to_f32() } else { bf16::from_f32(value).to_f32() }
}

/// f16 and bf16 against double precision: 8 bits, with the activations rounded as the kernels round them, to the order of
/// the sum; 16 bits, with the activations themselves, to what two numbers of the type leave over.
pub fn rounded_products_are_near_the_definition(device: &Device) -> Checked {
    for (format, n, k) in
        [(Format::BF16, 20, 72), (Format::F16, 20, 72), (Format::BF16, 130, 520), (Format::F16, 130, 520)]
    {
        let weights: Vec<f32> = random(950, n * k).into_iter().map(|weight| read(format, weight)).collect();
        let matrix = Matrix::on(device, format, n, k, &stored(format, &weights)).unwrap();
        for tokens in [1, 5, 12, 30, 40] {
            let x = random_with_outliers(951, tokens * k);
            // The unit of f16 rows is a power of two, which changes no digit.
            let rounded: Vec<f32> = x.iter().map(|value| read(format, *value)).collect();
            for (precision, x_seen, most) in [(Precision::Bits8, &rounded, 3e-7), (Precision::Bits16, &x, 1e-5)] {
                let what = format!("{format:?} [{n}, {k}] {precision:?}, {tokens} rows");
                let found = product(device, &matrix, &x, precision, &what)?;
                let expected = linear(x_seen, &weights, k);
                let magnitudes = linear(
                    &x.iter().map(|x| x.abs()).collect::<Vec<_>>(),
                    &weights.iter().map(|w| w.abs()).collect::<Vec<_>>(),
                    k,
                );
                let error = found.iter().zip(&expected).zip(&magnitudes);
                let error = error.map(|((found, exact), whole)| (f64::from(*found) - exact).abs() / whole);
                let worst = error.fold(0.0, f64::max);
                if worst > most {
                    return Err(format!("{what}: off by {worst:e} of the sum of magnitudes, {most:e} allowed"));
                }
            }
        }
    }
    Ok(())
}

/// Activations that f16 does not hold keep their digits, and those that are no numbers show.
pub fn f16_rows_have_units_of_their_own(device: &Device) -> Checked {
    let (n, k) = (16, 64);
    let weights: Vec<f32> = random(960, n * k).into_iter().map(|weight| read(Format::F16, weight)).collect();
    let matrix = Matrix::on(device, Format::F16, n, k, &stored(Format::F16, &weights)).unwrap();
    let small = random(961, k);
    let x: Vec<f32> = [1.0, 1e8, 1e-9].into_iter().flat_map(|factor| small.iter().map(move |x| x * factor)).collect();
    let found = product(device, &matrix, &x, Precision::Bits16, "f16 of any size")?;
    let expected = linear(&x, &weights, k);
    for row in 0..3 {
        let error = relative_error(&found[row * n..][..n], &expected[row * n..][..n]);
        if error > 1e-5 {
            return Err(format!("row {row} of {:e}: off by {error:e}", x[row * k]));
        }
    }
    let mut x = small;
    x[5] = f32::INFINITY;
    let mut out = vec![0.0; n];
    matmul::linear(device, &mut out, &x, &matrix).map_err(|error| error.to_string())?;
    if out.iter().any(|value| value.is_finite()) {
        return Err("an infinite activation gave a number".into());
    }
    Ok(())
}

/// A row's bits do not depend on how many rows there are, though kernels do.
pub fn rows_do_not_depend_on_each_other(device: &Device) -> Checked {
    for (format, k, most) in
        [(Format::BF16, 520, 300), (Format::F16, 296, 129), (Format::Q4_1, 160, 129), (Format::Q6K, 256, 64)]
    {
        let n = 36;
        let bytes = weights(format, 970, n, k);
        let matrix = Matrix::on(device, format, n, k, &bytes).unwrap();
        let x = random_with_outliers(971, 300 * k);
        for precision in [Precision::Bits8, Precision::Bits16] {
            let what = format!("{format:?} {precision:?}");
            let mut alone = Vec::new();
            for row in [0, 1, 6, 7, 15, 16, 63, 128] {
                alone.push((row, product(device, &matrix, &x[row * k..][..k], precision, &what)?));
            }
            for tokens in [7, 8, 16, 17, 64, 129, 300].into_iter().filter(|tokens| *tokens <= most) {
                if tokens == 300 && precision == Precision::Bits16 {
                    continue;
                }
                let together = product(device, &matrix, &x[..tokens * k], precision, &what)?;
                for (row, alone) in alone.iter().filter(|(row, _)| *row < tokens) {
                    same_bits(&together[row * n..][..n], alone, &format!("{what}: row {row} of {tokens}"))?;
                }
            }
        }
    }
    Ok(())
}

/// Several matrices in one launch, of several kinds, with and without biases.
pub fn several_matrices_at_once_are_each_alone(device: &Device) -> Checked {
    let (k, tokens) = (256, 5);
    let x = random(980, tokens * k);
    let formats = [Format::Q4_1, Format::Q4_1, Format::Q8_0, Format::BF16, Format::BF16, Format::F32, Format::F32];
    let shapes = [48, 17, 20, 40, 17, 64, 33];
    let matrices: Vec<Matrix> = formats
        .into_iter()
        .zip(shapes)
        .map(|(format, n)| {
            let bytes = weights(format, n as u64, n, k);
            Matrix::on(device, format, n, k, &bytes).unwrap()
        })
        .collect();
    let biases: Vec<Vec<f32>> = shapes.iter().map(|n| random(*n as u64 + 1, *n)).collect();
    let mut outs: Vec<Guarded> = shapes.iter().map(|n| Guarded::new(tokens * n)).collect();
    let mut products: Vec<(&mut [f32], &Matrix, &[f32])> = outs
        .iter_mut()
        .zip(&matrices)
        .zip(&biases)
        .map(|((out, matrix), bias)| (out.values(), matrix, bias.as_slice()))
        .collect();
    matmul::linear_bias_each(device, &mut products, &x, Precision::Bits16).map_err(|error| error.to_string())?;
    for ((out, matrix), bias) in outs.into_iter().zip(&matrices).zip(&biases) {
        let what = format!("{matrix:?} among others");
        let mut alone = product(device, matrix, &x, Precision::Bits16, &what)?;
        let n = matrix.rows();
        alone.iter_mut().enumerate().for_each(|(index, value)| *value += bias[index % n]);
        same_bits(&out.taken(&what)?, &alone, &what)?;
    }
    Ok(())
}
