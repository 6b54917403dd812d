//! Exchanges between emulated GPUs have the bits of those between processors, whichever way kernels are started. Needs the
//! feature `emulate`.
#![cfg(feature = "emulate")]

use lifelong_kernels::ops::exchange;
use lifelong_kernels::{Device, Error, Launching, Values};

const LAUNCHING: [Launching; 3] = [Launching::Direct, Launching::Graphs, Launching::Watched];

fn gpus(count: usize, launching: Launching) -> Device {
    Device::group((0..count).map(|order| Device::emulated_with(order as u64, launching).unwrap()).collect()).unwrap()
}

fn cpus(count: usize) -> Device {
    Device::group((0..count).map(|_| Device::cpu(1)).collect()).unwrap()
}

/// Numbers of many sizes, so that another order of a sum is seen.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    (0..count)
        .map(|index| ((index * 37 + seed * 101) as f32 * 0.7).sin() * 10f32.powi((index + seed) as i32 % 9 - 4))
        .collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The sums of two exchanges in a row, on the heap and where both sides address them.
fn sums(group: &Device, count: usize) -> Vec<Vec<u32>> {
    let ranks = group.members().len();
    let mut found: Vec<Vec<u32>> = vec![Vec::new(); ranks];
    group
        .together(found.iter_mut().collect(), |device, found: &mut Vec<u32>| -> Result<(), Error> {
            let own = numbers(device.rank().number, count);
            let mut heap = own.clone();
            let mut placed = Values::copied(device, &own)?;
            exchange::sum(device, &mut heap)?;
            exchange::sum(device, &mut placed)?;
            exchange::sum(device, &mut placed)?;
            device.synchronize()?;
            *found = [bits(&heap), bits(&placed)].concat();
            Ok(())
        })
        .unwrap();
    found
}

/// Columns of `rows` rows, on the first.
fn columns(group: &Device, rows: usize, width: usize) -> Vec<u32> {
    let mut out: Vec<Vec<f32>> = group.members().iter().map(|_| Vec::new()).collect();
    group
        .together(out.iter_mut().collect(), |device, out: &mut Vec<f32>| -> Result<(), Error> {
            let rank = device.rank();
            let own = Values::copied(device, &numbers(rank.number, rows * rank.share(width).len()))?;
            let mut all = Values::zeros(device, if rank.is_first() { rows * width } else { 0 })?;
            exchange::columns(device, &mut all, &own, width)?;
            device.synchronize()?;
            *out = all.to_vec();
            Ok(())
        })
        .unwrap();
    bits(&out[0])
}

#[test]
fn sums_have_the_bits_of_the_processors() {
    for launching in LAUNCHING {
        for (ranks, count) in [(1, 5), (2, 1), (2, 257), (3, 700), (4, 64)] {
            let (found, expected) = (sums(&gpus(ranks, launching), count), sums(&cpus(ranks), count));
            assert_eq!(found, expected, "{ranks} ranks, {count} values, {launching:?}");
            assert!(found.iter().all(|own| *own == found[0]), "all have the same");
        }
    }
}

#[test]
fn columns_have_the_bits_of_the_processors() {
    for launching in LAUNCHING {
        for (ranks, rows, width) in [(1, 2, 5), (2, 3, 9), (3, 1, 100), (4, 5, 90), (4, 2, 6)] {
            let found = columns(&gpus(ranks, launching), rows, width);
            assert_eq!(found, columns(&cpus(ranks), rows, width), "{ranks} ranks, [{rows}, {width}], {launching:?}");
        }
    }
}

#[test]
fn a_gpu_that_leaves_ends_the_step_of_the_others() {
    let group = gpus(3, Launching::Direct);
    let step = |fails: bool| {
        group.together(vec![(); 3], |device, ()| {
            let mut x = Values::zeros(device, 10)?;
            exchange::sum(device, &mut x)?;
            if fails && device.rank().number == 1 {
                return Err(Error::Cuda("out of memory".into()));
            }
            exchange::sum(device, &mut x)
        })
    };
    assert_eq!(step(true).unwrap_err(), Error::Cuda("out of memory".into()));
    step(false).unwrap();
}
