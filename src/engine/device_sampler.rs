//! Draws on a GPU: a row whose logits nothing changes is drawn where they are, and a token comes back instead of its logits.
//! Those of other rows (penalties, a grammar, log-probabilities asked for) come over and are drawn by the sampler.
//!
//! Both ways draw the same token of the same logits, so how a row is drawn says nothing about its neighbours.

use lifelong_kernels::ops::residual;
use lifelong_kernels::ops::sample::{self, Sampling as DeviceSampling};
use lifelong_kernels::{Device, Error, Values};

use super::filters::NonFinite;
use super::sampler::{Draw, Found, Sampler, Wanted};

/// What each row gives, in order; `plain` tells how the rows that are drawn on the device are.
///
/// # Shapes
/// `logits`: `[wanted.len(), vocabulary]`; `plain`: `[wanted.len()]`
///
/// # Errors
/// [`Error::Cuda`] when the device fails.
pub(crate) fn sample(
    device: &Device,
    sampler: &Sampler,
    logits: &Values,
    vocabulary: usize,
    wanted: &[Wanted<'_>],
    plain: &[Option<DeviceSampling>],
) -> Result<Vec<Result<Found, NonFinite>>, Error> {
    // Rows that are drawn elsewhere take the likeliest here, which nobody looks at.
    const ELSEWHERE: DeviceSampling =
        DeviceSampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, key: 0, position: 0 };
    let rows: Vec<DeviceSampling> = plain.iter().map(|row| row.unwrap_or(ELSEWHERE)).collect();
    let drawn = match plain.iter().any(Option::is_some) {
        true => sample::draw(device, logits, vocabulary, &rows)?,
        false => vec![None; rows.len()],
    };
    let mut others = find_others(device, sampler, logits, vocabulary, wanted, plain)?.into_iter();
    let found = plain.iter().zip(drawn).map(|(plain, drawn)| match (plain, drawn) {
        (Some(_), Some(drawn)) => Ok(Found::Draw(Draw { token: drawn.token, logprobs: None })),
        (Some(_), None) => Err(NonFinite),
        (None, _) => others.next().unwrap_or(Err(NonFinite)),
    });
    Ok(found.collect())
}

/// The rows that are not plain, in order.
fn find_others(
    device: &Device,
    sampler: &Sampler,
    logits: &Values,
    vocabulary: usize,
    wanted: &[Wanted<'_>],
    plain: &[Option<DeviceSampling>],
) -> Result<Vec<Result<Found, NonFinite>>, Error> {
    let others = || (0..plain.len()).filter(|row| plain[*row].is_none());
    let rows: Vec<Wanted<'_>> = others().map(|row| wanted[row]).collect();
    let mut brought = vec![0.0; rows.len() * vocabulary];
    for (brought, row) in brought.chunks_exact_mut(vocabulary).zip(others()) {
        residual::copy(device, brought, &logits[row * vocabulary..(row + 1) * vocabulary])?;
    }
    Ok(sampler.sample(&mut brought, vocabulary, &rows))
}
